//! Messages to an adapter of another daemon, as packets, over cables that lose, duplicate, delay
//! and corrupt packets.
//!
//! Shows: roce
//!
//! | module | what it holds |
//! | --- | --- |
//! | `changes` | paths of such QPs, and changes in the state SQD |
//! | `budgets` | what is counted for these QPs is what they have |
//! | `memory` | the memory of QPs whose messages travel as packets |

pub(crate) mod budgets;
pub(crate) mod changes;
pub(crate) mod memory;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use vrnic_abi::admin::Counter;
use vrnic_abi::cq::{self, Status};
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::host::Bar;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// Message sizes below, at and above multiples of the path MTU.
const SIZES: [usize; 9] = [0, 1, 63, 4095, 4096, 4097, 8192, 65_536, 100_001];

/// Shows: roce
#[test]
fn every_operation_goes_through_a_cable() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, mut b) = cable.connected(Setup::default(), |_| {});
    for len in SIZES {
        let data = pattern(len, len as u8);
        a.fill(3, &data);
        b.fill(5, &vec![0xee; len + 8]);
        let here = [a.sge(3, len as u32)];
        let write = Wr::new(Opcode::Write, &here).to(b.buffer + 5, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success, "WRITE of {len}");
        assert_eq!(b.bytes(5, len), data, "WRITE of {len}");
        assert_eq!(b.bytes(5 + len as u64, 8), [0xee; 8], "bytes behind a WRITE of {len}");

        let sink = [a.sge(200_000, len as u32)];
        let read = Wr::new(Opcode::Read, &sink).to(b.buffer + 5, b.key);
        let done = cable.complete(&mut a, &read);
        assert_eq!((status(&done), done.byte_len.get()), (Status::Success, len as u32));
        assert_eq!(a.bytes(200_000, len), data, "READ of {len}");

        b.post_recv(7, &[b.sge(300_000, 4000), b.sge(400_000, 200_000)]);
        let send = Wr::new(Opcode::SendImm, &here).imm(*b"imm!");
        assert_eq!(status(&cable.complete(&mut a, &send)), Status::Success, "SEND of {len}");
        let got = b.recv_cq.poll().expect("the receive");
        assert_eq!((got.byte_len.get(), got.imm), (len as u32, *b"imm!"));
        assert_eq!(got.src_qpn.get(), a.qpn);
        assert_eq!(b.bytes(300_000, len.min(4000)), data[..len.min(4000)]);
        assert_eq!(b.bytes(400_000, len.saturating_sub(4000)), data[len.min(4000)..]);

        b.post_recv(8, &[]);
        let write = Wr::new(Opcode::WriteImm, &here).to(b.buffer + 9, b.key).imm(*b"more");
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
        let got = b.recv_cq.poll().expect("the receive");
        assert_eq!((got.opcode, got.imm), (cq::Opcode::RecvWriteImm as u8, *b"more"));
        assert_eq!(got.byte_len.get(), len as u32);
        assert_eq!(b.bytes(9, len), data);
    }
    b.fill(64, &41u64.to_le_bytes());
    let add = Wr::new(Opcode::FetchAdd, &[a.sge(0, 8)]).to(b.buffer + 64, b.key).atomic(1, 0);
    assert_eq!(status(&cable.complete(&mut a, &add)), Status::Success);
    let swap = Wr::new(Opcode::CmpSwp, &[a.sge(8, 8)]).to(b.buffer + 64, b.key).atomic(7, 42);
    assert_eq!(status(&cable.complete(&mut a, &swap)), Status::Success);
    assert_eq!(a.bytes(0, 16), [41u64.to_le_bytes(), 42u64.to_le_bytes()].concat());
    assert_eq!(b.bytes(64, 8), 7u64.to_le_bytes());
}

/// Shows: roce: losses, doubled, delayed and corrupt frames: each message once and in order, each
/// atomic once
#[test]
fn every_message_arrives_once_and_in_order_over_a_bad_cable() {
    for seed in 0..6 {
        let cable = Cable::new(seed, Faults::all(20_000));
        let (mut a, mut b) = cable.connected(Setup::default(), |attr| {
            (attr.retry_cnt, attr.rnr_retry, attr.timeout) = (7, 7, 8);
        });
        const MESSAGES: u64 = 200;
        b.fill(0, &0u64.to_le_bytes());
        let (mut posted, mut receives, mut sent, mut got) = (0, 0, 0, 0);
        let lengths: Vec<usize> = (0..MESSAGES).map(|n| (n as usize * 977) % 20_000).collect();
        cable.run_until(|| {
            while receives < MESSAGES && receives < got + 4 {
                b.post_recv(receives, &[b.sge(100_000 + receives % 4 * 20_000, 20_000)]);
                receives += 1;
            }
            while let Some(cqe) = a.send_cq.poll() {
                assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::Success, sent));
                sent += 1;
            }
            while let Some(cqe) = b.recv_cq.poll() {
                assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::Success, got));
                let len = lengths[got as usize];
                assert_eq!(cqe.byte_len.get() as usize, len, "message {got}");
                let at = 100_000 + got % 4 * 20_000;
                assert!(b.bytes(at, len) == pattern(len, got as u8), "message {got}");
                got += 1;
            }
            while posted < 2 * MESSAGES && posted < sent + 8 {
                // A SEND, followed by an atomic that counts it.
                let slot = 8 * 1024 + posted % 8 * 20_000;
                if posted % 2 == 0 {
                    let len = lengths[posted as usize / 2];
                    a.fill(slot, &pattern(len, (posted / 2) as u8));
                    a.post_send(&Wr::new(Opcode::Send, &[a.sge(slot, len as u32)]).id(posted));
                } else {
                    let add = Wr::new(Opcode::FetchAdd, &[a.sge(slot, 8)]).atomic(1, 0);
                    a.post_send(&add.to(b.buffer, b.key).id(posted));
                }
                posted += 1;
            }
            sent == 2 * MESSAGES && got == MESSAGES
        });
        assert_eq!((sent, got), (2 * MESSAGES, MESSAGES), "seed {seed}");
        assert_eq!(b.bytes(0, 8), MESSAGES.to_le_bytes(), "each atomic once");
    }
}

#[test]
fn datagrams_and_unreliable_messages_go_through_a_cable() {
    let cable = Cable::new(3, Faults::default());
    let uc = Setup { kind: Type::Uc, ..Setup::default() };
    let (mut a, mut b) = cable.connected(uc, |_| {});
    let data = pattern(10_000, 9);
    a.fill(0, &data);
    b.post_recv(1, &[b.sge(0, 10_000)]);
    let long = Wr::new(Opcode::Send, &[a.sge(0, 10_000)]);
    assert_eq!(status(&cable.complete(&mut a, &long)), Status::Success);
    cable.settle();
    assert_eq!(b.recv_cq.poll().expect("the receive").byte_len.get(), 10_000);
    assert_eq!(b.bytes(0, 10_000), data);
    // The first packet of the next message is lost, and with it the message. Its sender gets a
    // success.
    let mut count = 0;
    cable.links[0].borrow_mut().rule(move |_| {
        count += 1;
        if count == 1 { Fate::Drop } else { Fate::Pass }
    });
    b.post_recv(2, &[b.sge(0, 10_000)]);
    assert_eq!(status(&cable.complete(&mut a, &long)), Status::Success);
    cable.settle();
    assert!(b.recv_cq.poll().is_none());
    let small = Wr::new(Opcode::Send, &[a.sge(0, 100)]);
    assert_eq!(status(&cable.complete(&mut a, &small)), Status::Success);
    cable.settle();
    assert_eq!(b.recv_cq.poll().expect("the receive").byte_len.get(), 100);
}

/// Shows: roce
#[test]
fn a_peer_refuses_and_both_ends_learn_it() {
    let cable = Cable::new(4, Faults::default());
    let refused = |wr: &dyn Fn(&Endpoint, &Endpoint) -> Wr, want| {
        let (mut a, b) = cable.connected(Setup::default(), |attr| attr.rnr_retry = 1);
        let wr = wr(&a, &b);
        assert_eq!(status(&cable.complete(&mut a, &wr)), want);
        assert_eq!(a.state(), State::Err);
        b.state()
    };
    let key = |a: &Endpoint, b: &Endpoint| {
        Wr::new(Opcode::Write, &[a.sge(0, 5000)]).to(b.buffer, b.key ^ 1)
    };
    assert_eq!(refused(&key, Status::RemAccessErr), State::Err);
    let unaligned = |a: &Endpoint, b: &Endpoint| {
        Wr::new(Opcode::FetchAdd, &[a.sge(0, 8)]).to(b.buffer + 4, b.key).atomic(1, 0)
    };
    assert_eq!(refused(&unaligned, Status::RemInvReqErr), State::Err);
    let no_receive = |a: &Endpoint, _: &Endpoint| Wr::new(Opcode::Send, &[a.sge(0, 8)]);
    assert_eq!(refused(&no_receive, Status::RnrRetryExcErr), State::Rts);
}

#[test]
fn the_pause_without_a_receive_can_be_changed_on_a_connection() {
    /// RNR timer codes of 0.01 ms and 491.52 ms.
    const CODES: [u8; 2] = [1, 31];
    let times = CODES.map(|code| {
        let cable = Cable::new(4, Faults::default());
        let tune = |attr: &mut Attr| (attr.rnr_retry, attr.min_rnr_timer) = (1, 12);
        let (mut a, b) = cable.connected(Setup::default(), tune);
        let attr = Attr { min_rnr_timer: code, ..Attr::default() };
        cable.gb.modify_qp(b.qpn, AttrMask::MIN_RNR_TIMER, &attr).expect("MODIFY_QP");
        let start = cable.now();
        let send = Wr::new(Opcode::Send, &[a.sge(0, 8)]);
        assert_eq!(status(&cable.complete(&mut a, &send)), Status::RnrRetryExcErr);
        cable.now() - start
    });
    assert!(times[0] < 5_000_000, "{times:?}");
    assert!(times[1] > 491_000_000, "{times:?}");
}

/// Shows: roce
#[test]
fn a_pulled_cable_ends_in_retries_and_a_replugged_one_does_not() {
    let cable = Cable::new(5, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    let write = |flags| Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key).flags(flags);
    let (first, second) = (write(Flags::SIGNALED), write(Flags::SIGNALED));
    cable.ga.adapter.set_link(false);
    a.post_send(&first);
    // The link comes back before the time-out ends.
    let _idle = cable.ga.adapter.poll(0);
    cable.world.advance(1_000_000);
    cable.ga.adapter.set_link(true);
    let mut done = None;
    cable.run_until(|| {
        done = done.or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(done.as_ref().map(status), Some(Status::Success));
    cable.ga.adapter.set_link(false);
    assert_eq!(status(&cable.complete(&mut a, &second)), Status::RetryExcErr);
}

/// Drops the frames of the first adapter, and returns them.
pub(crate) fn withheld(cable: &Cable) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let frames = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&frames);
    cable.links[0].borrow_mut().rule(move |frame| {
        kept.borrow_mut().push(frame.to_vec());
        Fate::Drop
    });
    frames
}

/// Lets the first adapter write 8 bytes, drops the frame, and returns it.
pub(crate) fn withheld_write(cable: &Cable, a: &mut Endpoint, b: &Endpoint) -> Vec<u8> {
    let frames = withheld(cable);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
    cable.run_until(|| !frames.borrow().is_empty());
    frames.borrow().first().expect("a frame").clone()
}

/// Shows: roce
#[test]
fn a_forged_packet_from_another_address_does_nothing() {
    let cable = Cable::new(6, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    a.fill(0, b"forged!!");
    let mut forged = withheld_write(&cable, &mut a, &b);
    // Changes the source address in the IPv6 header, and corrects the ICRC.
    forged[14 + 8 + 15] ^= 1;
    let end = forged.len() - 4;
    let crc = vrnic_roce::icrc::compute(&forged[14..end]).expect("a packet").to_le_bytes();
    forged[end..].copy_from_slice(&crc);
    b.fill(0, &[0; 8]);
    let before = b.guest.adapter.stats().get(Counter::RxRoceDiscards);
    let _not_roce = cable.gb.adapter.offer(Frame::new(forged));
    let _polled = cable.gb.adapter.poll(0);
    assert_eq!(b.bytes(0, 8), [0; 8]);
    assert_eq!(b.guest.adapter.stats().get(Counter::RxRoceDiscards), before + 1);
    cable.links[0].borrow_mut().rule(|_| Fate::Pass);
    let mut done = None;
    cable.run_until(|| {
        done = done.or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(b.bytes(0, 8), *b"forged!!");
}

/// A packet with the right addresses, numbers and ICRC is forged if its source MAC is the MAC of
/// another function of the daemon, or if it comes from another VLAN. The MAC of an unknown station
/// may be the MAC of a gateway.
///
/// Shows: roce
#[test]
fn packets_of_other_functions_and_vlans_do_nothing() {
    let cable = Cable::new(6, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    a.fill(0, b"genuine!");
    let sent = withheld_write(&cable, &mut a, &b);
    let from = |mac: [u8; 6]| [&sent[..6], &mac, &sent[12..]].concat();
    let tagged = |tag: u8| [&sent[..12], &[0x81, 0, 0, tag], &sent[12..]].concat();
    let cases = [
        ("another function", from(cable.gb.mac()), 1, [0; 8]),
        ("another VLAN", tagged(5), 1, [0; 8]),
        ("a priority without a VLAN", tagged(0), 0, *b"genuine!"),
        // This packet is a duplicate of the packet above.
        ("a gateway", from([2, 0, 0, 0, 0, 99]), 0, [0; 8]),
    ];
    let discards = || b.guest.adapter.stats().get(Counter::RxRoceDiscards);
    for (what, frame, dropped, bytes) in cases {
        b.fill(0, &[0; 8]);
        let before = discards();
        let _offered = cable.gb.adapter.offer(Frame::new(frame));
        let _polled = cable.gb.adapter.poll(0);
        assert_eq!((discards() - before, b.bytes(0, 8)), (dropped, bytes.to_vec()), "{what}");
    }
    cable.links[0].borrow_mut().rule(|_| Fate::Pass);
    cable.run_until(|| a.send_cq.poll().is_some_and(|cqe| status(&cqe) == Status::Success));
}

#[test]
fn a_frame_to_a_group_reaches_no_connection() {
    let cable = Cable::new(6, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |_| {});
    a.fill(0, b"to a few");
    b.fill(0, &[0; 8]);
    let sent = withheld_write(&cable, &mut a, &b);
    let before = b.guest.adapter.stats().get(Counter::RxRoceDiscards);
    for (bit, bytes, discards) in [(1, [0; 8], before + 1), (0, *b"to a few", before + 1)] {
        let mut frame = sent.clone();
        frame[0] |= bit;
        assert_eq!(cable.gb.adapter.offer(Frame::new(frame)), Offered::Taken);
        let _polled = cable.gb.adapter.poll(0);
        assert_eq!(b.bytes(0, 8), bytes);
        assert_eq!(b.guest.adapter.stats().get(Counter::RxRoceDiscards), discards);
    }
}

/// Shows: roce
#[test]
fn marks_of_congestion_come_back_as_notifications() {
    let cable = Cable::new(7, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |attr| attr.av.traffic_class = 3);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 100_000)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    let (here, there) = (cable.ga.adapter.stats(), cable.gb.adapter.stats());
    let marked = there.get(Counter::NpEcnMarkedRocePackets);
    assert!(marked >= 25, "{marked} of 25 packets were marked");
    let sent = there.get(Counter::NpCnpSent);
    assert!((1..=marked).contains(&sent));
    assert!((1..=sent).contains(&here.get(Counter::RpCnpHandled)));
}

#[test]
fn a_send_queue_that_has_failed_goes_on_with_its_numbers() {
    let cable = Cable::new(8, Faults::default());
    let uc = Setup { kind: Type::Uc, ..Setup::default() };
    let (mut a, b) = cable.connected(uc, |_| {});
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    cable.ga.host.restrict(a.buffer, 8, Bar::Unmapped);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::LocProtErr);
    assert_eq!(a.state(), State::Sqe);
    cable.ga.host.unrestrict();
    let attr = Attr { state: State::Rts as u8, ..Attr::default() };
    cable.ga.modify_qp(a.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
    a.fill(0, b"go on...");
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    cable.settle();
    assert_eq!(b.bytes(0, 8), *b"go on...");
}

#[test]
fn work_requests_behind_one_that_has_failed_are_flushed_before_the_queue_goes_on() {
    let cable = Cable::new(9, Faults::default());
    let uc = Setup { kind: Type::Uc, log_wqes: 7, log_cqes: 8, ..Setup::default() };
    let (mut a, b) = cable.connected(uc, |_| {});
    // The fault is found when the first packet leaves, after all requests were taken.
    cable.set_full(true);
    cable.ga.host.restrict(a.buffer, 8, Bar::Unmapped);
    const COUNT: usize = 120;
    for nth in 0..COUNT {
        let from = if nth == 0 { a.sge(0, 8) } else { a.sge(4096, 8) };
        a.store_send(&Wr::new(Opcode::Write, &[from]).to(b.buffer, b.key));
    }
    a.ring();
    for _ in 0..4 {
        cable.ga.adapter.poll(0);
    }
    cable.set_full(false);
    cable.world.clock.fetch_add(1_000_000, Ordering::AcqRel);
    cable.run_until(|| a.state() == State::Sqe);
    let attr = Attr { state: State::Rts as u8, ..Attr::default() };
    cable.ga.modify_qp(a.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
    cable.settle();
    let statuses: Vec<_> =
        std::iter::from_fn(|| a.send_cq.poll()).map(|cqe| status(&cqe)).collect();
    assert_eq!(statuses.len(), COUNT);
    assert_eq!(statuses[0], Status::LocProtErr);
    assert!(statuses[1..].iter().all(|status| *status == Status::WrFlushErr), "{statuses:?}");
    assert_eq!(a.state(), State::Rts);
    let write = Wr::new(Opcode::Write, &[a.sge(4096, 8)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
}

/// Lets B read 60,000 bytes of A while the cable refuses the answers, and moves the clock by a
/// millisecond. Returns the number of polls.
fn read_without_room(cable: &Cable, a: &Endpoint, b: &mut Endpoint) -> usize {
    cable.set_full(true);
    b.post_send(&Wr::new(Opcode::Read, &[b.sge(0, 60_000)]).to(a.buffer, a.key));
    let (mut polls, end) = (0, cable.now() + 1_000_000);
    cable.run_until(|| {
        polls += 1;
        cable.now() > end || polls > 10_000
    });
    polls
}

#[test]
fn answers_without_room_wait_in_pauses() {
    let cable = Cable::new(43, Faults::default());
    let (a, mut b) = cable.connected(Setup::default(), |_| {});
    a.fill(0, &pattern(60_000, 9));
    let polls = read_without_room(&cable, &a, &mut b);
    assert!(polls < 1000, "{polls} polls in a millisecond");
    cable.set_full(false);
    cable.run_until(|| b.send_cq.poll().is_some_and(|cqe| status(&cqe) == Status::Success));
    assert_eq!(b.bytes(0, 60_000), pattern(60_000, 9));
}

#[test]
fn a_qp_in_error_no_longer_answers_reads() {
    let cable = Cable::new(44, Faults::default());
    let (mut a, mut b) = cable.connected(Setup::default(), |_| {});
    read_without_room(&cable, &a, &mut b);
    a.set_state(State::Err);
    let frames = withheld(&cable);
    cable.set_full(false);
    cable.run_until(|| cable.now() > 3_000_000);
    assert_eq!(frames.borrow().len(), 0, "frames of a QP in the error state");
    cable.run_until(|| b.send_cq.poll().is_some_and(|cqe| status(&cqe) == Status::RetryExcErr));
    assert_eq!(b.state(), State::Err);
}

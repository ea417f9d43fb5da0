//! Messages in TCP connections (iWARP) between adapters of two daemons, over cables that lose,
//! duplicate, delay and corrupt frames.
//!
//! Shows: iwarp
//!
//! | module | what it holds |
//! | --- | --- |
//! | `acks` | completions of messages to peers that hold acknowledgements back |
//! | `closing` | states and events of a connection that is closed by a command |
//! | `depths` | the numbers of READs that a connection has, and their changes |
//! | `ends` | how TCP connections end |
//! | `far` | messages to memory whose bytes the host writes later |
//! | `gaps` | bytes of a TCP connection that arrive after a gap |
//! | `keys` | keys of messages in TCP connections |
//! | `one_touch` | keys for one message whose segments arrive after a gap |
//! | `pair_ends` | how such connections end |
//! | `pairs` | TCP connections between adapters of one daemon |
//! | `paths` | TCP connections over paths with a smaller MTU than the networks at their ends |
//! | `receives` | receives that are posted late, and receives of SRQs |
//! | `starts` | how TCP connections begin, as their drivers see it |

pub(crate) mod acks;
pub(crate) mod closing;
pub(crate) mod depths;
pub(crate) mod ends;
pub(crate) mod far;
pub(crate) mod gaps;
pub(crate) mod keys;
pub(crate) mod one_touch;
pub(crate) mod pair_ends;
pub(crate) mod pairs;
pub(crate) mod paths;
pub(crate) mod receives;
pub(crate) mod starts;

use std::cell::RefCell;
use std::mem::offset_of;
use std::rc::Rc;

use vrnic_abi::admin::{self};
use vrnic_abi::connection::{Connection, ConnectionFlags, Role};
use vrnic_abi::cq::{self, Cqe, Status};
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::Share;
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;

/// Message sizes below, at and above the size of a segment.
const SIZES: [usize; 8] = [0, 1, 63, 1441, 1442, 1443, 65_536, 100_001];

pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed) as u8).collect()
}

/// Returns two endpoints with a connection.
pub(crate) fn connected(cable: &Cable) -> (Endpoint, Endpoint) {
    let setup = Setup::default();
    let (a, b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    stream::connect_pair(&a, &b);
    assert_eq!((a.state(), b.state()), (State::Rts, State::Rts));
    (a, b)
}

/// Checks the completion of the receive of `news` after a WRITE of `len` bytes.
pub(crate) fn expect_immediate(got: &Cqe, len: usize) {
    assert_eq!((status(got), got.byte_len.get()), (Status::Success, len as u32));
    assert_eq!((got.opcode, got.imm), (cq::Opcode::RecvWriteImm as u8, *b"news"));
}

/// Waits for the completion of a receive.
pub(crate) fn received(cable: &Cable, on: &mut Endpoint) -> Cqe {
    let mut found = None;
    cable.run_until(|| {
        found = found.or_else(|| on.recv_cq.poll());
        found.is_some()
    });
    found.expect("the receive")
}

/// Runs every operation. Checks that its bytes arrive once and unchanged.
fn every_operation(cable: &Cable) {
    let (mut a, mut b) = connected(cable);
    for (seed, len) in SIZES.into_iter().enumerate() {
        let data = pattern(len, seed);
        a.fill(3, &data);
        b.fill(5, &vec![0xee; len + 8]);
        let here = [a.sge(3, len as u32)];
        let write = Wr::new(Opcode::Write, &here).to(b.buffer + 5, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success, "WRITE of {len}");
        let sink = [a.sge(200_000, len as u32)];
        let read = Wr::new(Opcode::Read, &sink).to(b.buffer + 5, b.key);
        let done = cable.complete(&mut a, &read);
        assert_eq!((status(&done), done.byte_len.get()), (Status::Success, len as u32));
        assert_eq!(b.bytes(5, len), data, "WRITE of {len}");
        assert_eq!(b.bytes(5 + len as u64, 8), [0xee; 8], "bytes behind a WRITE of {len}");
        assert_eq!(a.bytes(200_000, len), data, "READ of {len}");

        b.post_recv(7, &[b.sge(300_000, 4000), b.sge(400_000, 200_000)]);
        let send = Wr::new(Opcode::Send, &here);
        assert_eq!(status(&cable.complete(&mut a, &send)), Status::Success, "SEND of {len}");
        cable.settle();
        let got = b.recv_cq.poll().expect("the receive");
        assert_eq!((status(&got), got.byte_len.get()), (Status::Success, len as u32));
        assert_eq!(b.bytes(300_000, len.min(4000)), data[..len.min(4000)]);
        assert_eq!(b.bytes(400_000, len.saturating_sub(4000)), data[len.min(4000)..]);
        b.fill(5, &vec![0; len]);
        b.post_recv(8, &[]);
        let write = Wr::new(Opcode::WriteImm, &here).imm(*b"news").to(b.buffer + 5, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success, "immediate, {len}");
        cable.settle();
        expect_immediate(&b.recv_cq.poll().expect("the receive"), len);
        assert_eq!(b.bytes(5, len), data, "WRITE of {len} with immediate data");
    }
    b.fill(64, &40u64.to_le_bytes());
    let add = Wr::new(Opcode::FetchAdd, &[a.sge(8, 8)]).atomic(2, 0).to(b.buffer + 64, b.key);
    assert_eq!(status(&cable.complete(&mut a, &add)), Status::Success);
    assert_eq!(
        (a.bytes(8, 8), b.bytes(64, 8)),
        (40u64.to_le_bytes().to_vec(), 42u64.to_le_bytes().to_vec(),)
    );
}

/// Shows: iwarp
#[test]
fn every_operation_goes_through_a_connection() {
    every_operation(&Cable::new(1, Faults::default()));
}

/// Shows: iwarp: cables that lose, double, delay and corrupt frames
#[test]
fn bad_cables_change_nothing() {
    let faults = Faults::all(20_000);
    let cable = Cable::new(2, faults);
    every_operation(&cable);
    assert!(cable.ga.stats().tcp_retrans_segs.get() > 0);
}

/// The buffers of connections get no memory, except for what each connection always has. Bytes that
/// would need more buffers are sent again.
#[test]
fn connections_work_without_memory_for_their_buffers() {
    let cable = Cable::new(21, Faults::all(10_000));
    let mut all = Vec::new();
    for guest in [&cable.ga, &cable.gb] {
        let memory = guest.adapter.connection_memory();
        assert_eq!(
            memory.free(),
            CONNECTION_MEMORY,
            "each adapter has its own memory for connections"
        );
        while memory.free() > 1 {
            let mut share = Share::of(memory);
            assert!(share.take(memory.free() / 2));
            all.push(share);
        }
    }
    every_operation(&cable);
    assert!(cable.ga.stats().tcp_retrans_segs.get() > 0);
    drop(all);
    cable.settle();
    for guest in [&cable.ga, &cable.gb] {
        assert_eq!(guest.adapter.connection_memory().free(), CONNECTION_MEMORY);
    }
}

/// Connections with Linux have timestamps, which take room in each segment.
#[test]
fn an_fpdu_fills_a_segment_with_timestamps() {
    const FPDUS: u32 = 100;
    const PAYLOAD: u32 = 1428;
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) =
        (Endpoint::new(&cable.ga, Setup::default()), Endpoint::new(&cable.gb, Setup::default()));
    for (number, end, peer) in [(0, &a, &b), (1, &b, &a)] {
        let peer = peer.guest.mac();
        end.guest.take_through(end.qpn, attributes(peer, 0), &TO_RTS[..1]);
        let mut connection = stream::connection(number, [end.guest.mac(), peer], stream::MSS);
        connection.flags |= ConnectionFlags::TIMESTAMPS.bits();
        end.guest.open_connection(end.qpn, &connection).expect("OPEN_CONNECTION");
    }
    let write = |len| Wr::new(Opcode::Write, &[a.sge(0, len)]).to(b.buffer, b.key);
    let (short, long) = (write(8), write(FPDUS * PAYLOAD));
    assert_eq!(status(&cable.complete(&mut a, &short)), Status::Success);
    let before = cable.ga.stats().tx_pkts.get();
    assert_eq!(status(&cable.complete(&mut a, &long)), Status::Success);
    assert_eq!(cable.ga.stats().tx_pkts.get() - before, u64::from(FPDUS));
}

/// If a guest connects to itself, its kernel also sends the request, which must have the same
/// length (`driver/iwarp/start.rs`).
#[test]
fn the_request_is_the_one_that_drivers_know() {
    let cable = Cable::new(1, Faults::default());
    let a = Endpoint::new(&cable.ga, Setup::default());
    let requests = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&requests);
    cable.links[0].borrow_mut().rule(move |bytes| {
        if let Ok(Some(frame)) = TcpFrame::parse(bytes) {
            seen.borrow_mut().push(frame.segment.payload.to_vec());
        }
        Fate::Drop
    });
    stream::open(&a, 0, cable.gb.mac(), stream::MSS).expect("OPEN_CONNECTION");
    let over = cable.now() + 1_000_000;
    cable.run_until(|| cable.now() >= over);
    assert_eq!(requests.borrow().first(), Some(&stream::request()));
}

/// A retransmission reads the memory of the program again, so the program must not change it before
/// the completion. After the completion it may.
#[test]
fn buffers_are_used_again_at_the_completion() {
    const LEN: usize = 6000;
    const ROUNDS: usize = 60;
    let cable = Cable::new(12, Faults::all(30_000));
    let (mut a, mut b) = connected(&cable);
    for round in 0..ROUNDS {
        let to = (round * LEN) as u64;
        a.fill(0, &pattern(LEN, round));
        let here = [a.sge(0, LEN as u32)];
        let work = if round % 2 == 0 {
            Wr::new(Opcode::Write, &here).to(b.buffer + to, b.key)
        } else {
            b.post_recv(1, &[b.sge(to, LEN as u32)]);
            Wr::new(Opcode::Send, &here)
        };
        assert_eq!(status(&cable.complete(&mut a, &work)), Status::Success);
        a.fill(0, &[0xee; LEN]);
    }
    cable.settle();
    for round in 0..ROUNDS {
        assert!(b.bytes((round * LEN) as u64, LEN) == pattern(LEN, round), "message {round}");
    }
    assert!(cable.ga.stats().tcp_retrans_segs.get() > 10);
}

#[test]
fn faults_of_a_connection_are_counted() {
    let cable = Cable::new(8, Faults::default());
    let (a, mut b) = connected(&cable);
    let write = Wr::new(Opcode::Write, &[b.sge(0, 100)]).to(a.buffer, a.key);
    assert_eq!(status(&cable.complete(&mut b, &write)), Status::Success);
    let mut lost = 3;
    cable.links[1].borrow_mut().rule(move |_| {
        lost -= i32::from(lost > 0);
        if lost > 0 { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!(status(&cable.complete(&mut b, &write)), Status::Success);
    let stats = b.guest.stats();
    assert_eq!((stats.tcp_retrans_segs.get(), stats.mpa_crc_errors.get()), (2, 0));
    assert!(stats.tcp_timeouts.get() >= 1);
}

/// Shows: iwarp
#[test]
fn a_refused_message_ends_the_connection_at_both_ends() {
    let cable = Cable::new(3, Faults::default());
    let (mut a, mut b) = connected(&cable);
    b.post_recv(1, &[b.sge(0, 100)]);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 5000)]).to(b.buffer, b.key ^ 1);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::RemAccessErr);
    assert_eq!((a.state(), b.state()), (State::Err, State::Err));
    assert_eq!(status(&received(&cable, &mut b)), Status::WrFlushErr);
    assert!(b.bytes(0, 5000).iter().all(|byte| *byte == 0));
}

#[test]
fn a_program_that_ends_its_qp_resets_the_connection() {
    let cable = Cable::new(4, Faults::default());
    let (mut a, mut b) = connected(&cable);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
    b.post_recv(1, &[b.sge(0, 100)]);
    a.set_state(State::Err);
    assert_eq!(status(&received(&cable, &mut b)), Status::WrFlushErr);
    assert_eq!(b.state(), State::Err);
}

/// A QP that has failed can have another connection after it was reset.
#[test]
fn a_qp_takes_one_connection_after_the_other() {
    let cable = Cable::new(11, Faults::default());
    let (mut a, mut b) = connected(&cable);
    for round in 0..4 {
        a.fill(0, &[round; 8]);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success, "{round}");
        assert_eq!(b.bytes(0, 8), [round; 8]);
        b.post_recv(1, &[b.sge(0, 100)]);
        a.set_state(State::Err);
        assert_eq!(status(&received(&cable, &mut b)), Status::WrFlushErr);
        assert_eq!(b.state(), State::Err);
        [&mut a, &mut b].into_iter().for_each(|end| end.set_state(State::Reset));
        stream::connect_pair(&a, &b);
    }
}

/// Shows: iwarp: one TCP connection belongs to one queue pair
#[test]
fn a_connection_has_one_qp() {
    let cable = Cable::new(5, Faults::default());
    let (mut a, _b) = connected(&cable);
    let other = Endpoint::new(&cable.ga, Setup::default());
    let refused = stream::open(&other, 0, cable.gb.mac(), stream::MSS).expect_err("it has one");
    assert_eq!(refused.0, admin::Status::Busy);
    a.set_state(State::Reset);
    stream::open(&other, 0, cable.gb.mac(), stream::MSS).expect("it is free");
}

/// Shows: iwarp: requests that a driver gives with a connection are checked
#[test]
fn a_malformed_request_is_refused() {
    let cable = Cable::new(7, Faults::default());
    let end = Endpoint::new(&cable.gb, Setup::default());
    end.guest.take_through(end.qpn, attributes(cable.ga.mac(), 0), &TO_RTS[..1]);
    let good = stream::connection(1, [cable.gb.mac(), cable.ga.mac()], stream::MSS);
    let request = offset_of!(Connection, request);
    let request_len = offset_of!(Connection, request_len);
    let mut bad = [good; 8];
    bad[0].request[3] ^= 1;
    bad[1].request[17] = 3;
    bad[2].request[19] = 5;
    bad[3].request_len = 0.into();
    // The key of a reply, and an enhanced frame without control words.
    bad[4].request[9..11].copy_from_slice(b"ep");
    (bad[5].request_len, bad[5].request[19]) = (20.into(), 0);
    bad[6].request_len = 533.into();
    bad[7].role = Role::Initiator as u8;
    for (nth, bad) in bad.iter().enumerate() {
        let offset = if nth < 6 { request } else { request_len };
        let refused = end.guest.open_connection(end.qpn, bad).expect_err("it is malformed");
        assert_eq!(refused, Refused(admin::Status::BadParam, offset as u32), "{nth}");
    }
    let mut long = good;
    long.private_len = 509.into();
    let refused = end.guest.open_connection(end.qpn, &long).expect_err("it is too long");
    assert_eq!(refused.1 as usize, offset_of!(Connection, private_len));
    assert_eq!(end.state(), State::Init);
    end.guest.open_connection(end.qpn, &good).expect("it is right");
}

/// Returns the frames with data that this end of a cable sends from now on.
fn sent(cable: &Cable, end: usize) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sent);
    cable.links[end].borrow_mut().rule(move |bytes| {
        if let Ok(Some(frame)) = TcpFrame::parse(bytes)
            && !frame.segment.payload.is_empty()
        {
            seen.borrow_mut().push(frame.segment.payload.to_vec());
        }
        Fate::Pass
    });
    sent
}

/// RFC 5044, 7.1.
///
/// Shows: iwarp: CRCs are left out only if neither end demands them
#[test]
fn messages_lack_crcs_only_if_neither_end_demands_them() {
    const ASKS: u8 = 0x40;
    for demands in [[true, true], [true, false], [false, true], [false, false]] {
        let cable = Cable::new(9, Faults::default());
        cable.ga.adapter.demand_crcs(demands[0]);
        cable.gb.adapter.demand_crcs(demands[1]);
        let sent = [sent(&cable, 0), sent(&cable, 1)];
        let setup = Setup::default();
        let (mut a, mut b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
        stream::open(&a, 0, cable.gb.mac(), stream::MSS).expect("OPEN_CONNECTION");
        let mut connection = stream::connection(1, [cable.gb.mac(), cable.ga.mac()], stream::MSS);
        if !demands[0] {
            connection.request[16] &= !ASKS;
        }
        b.guest.take_through(b.qpn, attributes(cable.ga.mac(), 0), &TO_RTS[..1]);
        b.guest.open_connection(b.qpn, &connection).expect("OPEN_CONNECTION");
        let data = pattern(5000, 1);
        a.fill(0, &data);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 5000)]).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
        let write = Wr::new(Opcode::Write, &[b.sge(0, 5000)]).to(a.buffer + 8192, a.key);
        assert_eq!(status(&cable.complete(&mut b, &write)), Status::Success);
        assert_eq!(a.bytes(8192, 5000), data);
        let crcs = demands.contains(&true);
        for (sent, asks) in sent.iter().zip([demands[0], crcs]) {
            let sent = sent.borrow();
            let (start, fpdus) = sent.split_first().expect("a start frame");
            assert_eq!(start[16] & ASKS != 0, asks, "{demands:?}");
            assert!(fpdus.len() >= 4 && fpdus.iter().all(|fpdu| fpdu.ends_with(&[0; 4]) != crcs));
        }
    }
}

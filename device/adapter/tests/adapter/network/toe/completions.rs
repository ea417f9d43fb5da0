//! When receives and sends complete.
//!
//! Shows: tcp: when receives and sends of a stream complete

use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use super::{cable, connected, pass, received, send, sent};
use crate::bus::Endpoint;

const MS: u64 = 1_000_000;

#[test]
fn a_receive_is_complete_when_it_is_full() {
    let cable = cable(1, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 100)]);
    send(&mut a, 0, 99);
    assert_eq!(sent(&cable, &mut a), Status::Success);
    pass(&cable, 10 * MS);
    assert!(b.recv_cq.poll().is_none(), "a byte is missing");
    send(&mut a, 0, 3);
    assert_eq!(received(&cable, &mut b), 100);
    b.post_recv(2, &[b.sge(0, 5)]);
    send(&mut a, 0, 3);
    assert_eq!(received(&cable, &mut b), 5, "two bytes were there");
}

#[test]
fn a_receive_is_complete_at_psh_if_the_qp_asks_for_it() {
    let cable = cable(2, Faults::default());
    let (mut a, mut b) = connected(&cable, true);
    for nth in 1..4 {
        b.post_recv(nth, &[b.sge(0, 3000)]);
    }
    // The last segment of what is posted has the flag.
    for len in [10, 2000, 6] {
        send(&mut a, 0, len);
        assert_eq!(received(&cable, &mut b), len as usize);
    }
    // A receive that is full has no rest.
    b.post_recv(4, &[b.sge(0, 100)]);
    b.post_recv(5, &[b.sge(0, 100)]);
    send(&mut a, 0, 100);
    send(&mut a, 0, 7);
    assert_eq!((received(&cable, &mut b), received(&cable, &mut b)), (100, 7));
}

/// A send is complete when the peer has acknowledged its last byte, and not before: no bytes were
/// copied.
#[test]
fn a_send_is_complete_when_it_is_acknowledged() {
    for flags in [QpFlags::empty(), QpFlags::QUEUE_LENGTH] {
        a_send_is_complete(flags);
    }
}

#[track_caller]
fn a_send_is_complete(flags: QpFlags) {
    let cable = cable(3, Faults::default());
    let setup = Setup { flags, ..super::setup(false) };
    let (mut a, mut b) = (Endpoint::new(&cable.ga, setup), Endpoint::new(&cable.gb, setup));
    stream::connect_toes(&a, &b);
    b.post_recv(1, &[b.sge(0, 8)]);
    cable.links[1].borrow_mut().rule(|_| Fate::Drop);
    a.fill(0, b"original");
    send(&mut a, 0, 8);
    assert_eq!(received(&cable, &mut b), 8);
    pass(&cable, 100 * MS);
    assert!(a.send_cq.poll().is_none(), "its acknowledgement is lost");
    cable.links[1].borrow_mut().rule(|_| Fate::Pass);
    assert_eq!(sent(&cable, &mut a), Status::Success);
}

/// Both rules complete the same sends at the same times, and nothing before its bytes are
/// acknowledged.
///
/// Shows: tcp: sends complete by acknowledgement, or by the length of the queue
#[test]
fn both_rules_complete_sends_at_the_same_times() {
    let run = |flags: QpFlags| {
        let cable = cable(8, Faults::all(10_000));
        let setup = |flags| Setup { flags, ..super::setup(false) };
        let mut a = Endpoint::new(&cable.ga, setup(flags));
        let mut b = Endpoint::new(&cable.gb, setup(QpFlags::empty()));
        stream::connect_toes(&a, &b);
        let lens = [1, 0, 5000, 100_000, 1460, 0, 20_000, 3, 64_000, 8];
        let total: u32 = lens.iter().sum();
        b.post_recv(1, &[b.sge(0, total)]);
        let (mut next, mut times) = (0, Vec::new());
        cable.run_until(|| {
            // Some are posted while others wait.
            while next < lens.len() && next < times.len() + 4 {
                send(&mut a, 0, lens[next]);
                next += 1;
            }
            while let Some(cqe) = a.send_cq.poll() {
                assert_eq!(status(&cqe), Status::Success);
                times.push(cable.now());
            }
            times.len() == lens.len()
        });
        assert_eq!(received(&cable, &mut b), total as usize);
        times
    };
    let times = run(QpFlags::empty());
    assert_eq!(times.len(), 10);
    assert_eq!(times, run(QpFlags::QUEUE_LENGTH));
}

#[test]
fn sends_without_bytes_complete_in_order() {
    let cable = cable(4, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 8)]);
    for len in [0, 8, 0] {
        send(&mut a, 0, len);
    }
    for _ in 0..3 {
        assert_eq!(sent(&cable, &mut a), Status::Success);
    }
    assert_eq!(received(&cable, &mut b), 8);
}

/// A QP that carries bytes has no other operations, and a refused one ends the connection.
#[test]
fn other_operations_are_refused() {
    for opcode in [Opcode::Write, Opcode::Read, Opcode::SendImm, Opcode::LocalInv, Opcode::BindMw] {
        let cable = cable(5, Faults::default());
        let (mut a, mut b) = connected(&cable, false);
        send(&mut a, 0, 4);
        a.post_send(&Wr::new(opcode, &[a.sge(0, 8)]).to(b.buffer, b.key));
        b.post_recv(1, &[b.sge(0, 4)]);
        assert_eq!(sent(&cable, &mut a), Status::Success, "the bytes before it are sent");
        assert_eq!(sent(&cable, &mut a), Status::LocQpOpErr, "{opcode:?}");
        assert_eq!(received(&cable, &mut b), 4);
        cable.run_until(|| b.state() == State::Err);
        assert_eq!((a.state(), b.state()), (State::Err, State::Err), "{opcode:?}");
    }
}

/// Memory that the key does not allow: the connection is reset, and nothing of it arrives.
#[test]
fn memory_of_others_is_not_sent() {
    let cable = cable(6, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    b.post_recv(1, &[b.sge(0, 8)]);
    let mut sge = a.sge(0, 8);
    sge.lkey = (sge.lkey.get() ^ 1).into();
    a.post_send(&Wr::new(Opcode::Send, &[sge]));
    assert_ne!(sent(&cable, &mut a), Status::Success);
    cable.run_until(|| b.state() == State::Err);
    assert_eq!((a.state(), b.bytes(0, 8)), (State::Err, vec![0; 8]));
}

/// The same for the memory of a receive.
#[test]
fn memory_of_others_is_not_written() {
    let cable = cable(7, Faults::default());
    let (mut a, mut b) = connected(&cable, false);
    let mut sge = b.sge(0, 8);
    sge.lkey = (sge.lkey.get() ^ 1).into();
    b.post_recv(1, &[sge]);
    a.fill(0, &[7; 8]);
    send(&mut a, 0, 8);
    cable.run_until(|| a.state() == State::Err);
    assert_eq!((b.state(), b.bytes(0, 8)), (State::Err, vec![0; 8]));
}

//! Bytes of a TCP connection that arrive after a gap (iWARP): they are placed at once, and have
//! their other effects in order.
//!
//! Shows: iwarp

use std::cell::Cell;
use std::rc::Rc;

use vrnic_abi::admin::{Opcode as Admin, Pages, RegMr, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::datapath::responder::outcome;
use vrnic_adapter::host::Lane;
use vrnic_adapter::slice::{SLICE_NS, Slice};
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::srq::LOG_SHARED;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, SharedQueue};
use crate::cable::Cable;
use crate::network::streams;
use crate::network::streams::ends::pass;
use crate::network::streams::receives::connect_at;

/// Nanoseconds after which all frames that are not lost have arrived.
pub(super) const SOON: u64 = 300_000;

pub(super) fn connected(cable: &Cable) -> (Endpoint, Endpoint) {
    let (mut a, b) = streams::connected(cable);
    pass(cable, 5_000_000);
    prove_whole_messages(cable, &mut a, &b);
    (a, b)
}

/// Lets `a` send enough segments with whole messages that `b` assumes whole messages in later
/// segments, too, also after a gap.
pub(super) fn prove_whole_messages(cable: &Cable, a: &mut Endpoint, b: &Endpoint) {
    let write = Wr::new(Opcode::Write, &[a.sge(0, 1)]).to(b.buffer, b.key);
    for _ in 0..64 {
        assert_eq!(status(&cable.complete(a, &write)), Status::Success);
    }
}

/// Drops the `nth` frame with data from A, counted from now, each time it is sent, until the
/// returned cell is set.
pub(super) fn lose(cable: &Cable, nth: usize) -> Rc<Cell<bool>> {
    let over = Rc::new(Cell::new(false));
    let (ends, mut count, mut lost) = (Rc::clone(&over), 0, None);
    cable.links[0].borrow_mut().rule(move |bytes| {
        let Ok(Some(frame)) = TcpFrame::parse(bytes) else { return Fate::Pass };
        if ends.get() || frame.segment.payload.is_empty() {
            return Fate::Pass;
        }
        let seq = frame.segment.header.seq;
        if count == nth {
            lost.get_or_insert(seq);
        }
        count += 1;
        if lost == Some(seq) { Fate::Drop } else { Fate::Pass }
    });
    over
}

/// Returns how many bytes of a message of sevens have been placed.
pub(super) fn there(end: &Endpoint, at: u64, len: usize) -> usize {
    end.bytes(at, len).iter().filter(|byte| **byte == 7).count()
}

/// Shows: iwarp: bytes after a gap are placed at once, and messages complete in order
#[test]
fn bytes_behind_a_gap_are_in_memory_at_once() {
    const LEN: usize = 14_000;
    for opcode in [Opcode::Write, Opcode::Send] {
        let cable = Cable::new(1, Faults::default());
        let (mut a, mut b) = connected(&cable);
        a.fill(0, &[7; LEN]);
        b.post_recv(1, &[b.sge(0, 5000), b.sge(5000, 20_000)]);
        let over = lose(&cable, 2);
        a.post_send(&Wr::new(opcode, &[a.sge(0, LEN as u32)]).to(b.buffer, b.key));
        pass(&cable, SOON);
        // All bytes have been placed, except the bytes of the lost segment.
        let early = there(&b, 0, LEN);
        assert!((LEN - 1460..LEN - 1400).contains(&early), "{early}");
        assert_eq!(there(&b, 6000, LEN - 6000), LEN - 6000);
        assert!(b.recv_cq.poll().is_none() && a.send_cq.poll().is_none());
        over.set(true);
        pass(&cable, 3_000_000_000);
        assert_eq!(there(&b, 0, LEN), LEN);
        assert_eq!(status(&a.send_cq.poll().expect("it is sent")), Status::Success);
        let received = b.recv_cq.poll();
        assert_eq!(received.is_some(), opcode == Opcode::Send);
        assert!(received.is_none_or(|cqe| cqe.byte_len.get() == LEN as u32));
    }
}

#[test]
fn sends_behind_a_gap_use_their_own_receives_in_order() {
    let cable = Cable::new(2, Faults::default());
    let (mut a, mut b) = connected(&cable);
    // There is one receive less than SENDs, and the last receive is too small.
    for nth in 0..8u64 {
        b.post_recv(nth, &[b.sge(nth * 10_000, if nth == 7 { 10 } else { 4000 })]);
    }
    let over = lose(&cable, 1);
    a.fill(0, &[7; 4000]);
    for nth in 0..9u32 {
        a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, if nth == 3 { 0 } else { 3000 + nth })]));
    }
    pass(&cable, SOON);
    assert!(b.recv_cq.poll().is_none());
    for nth in [1, 2, 4, 5, 6] {
        assert_eq!(there(&b, nth * 10_000, 4000), 3000 + nth as usize, "{nth}");
    }
    // When bytes may be placed in a receive, the guest can no longer change the receive: its WQE is
    // not read again.
    over.set(true);
    pass(&cable, 3_000_000_000);
    let received: Vec<_> = std::iter::from_fn(|| b.recv_cq.poll()).collect();
    let seen: Vec<_> =
        received.iter().map(|cqe| (cqe.wr_id.get(), status(cqe), cqe.byte_len.get())).collect();
    let mut expected: Vec<_> = (0..7)
        .map(|nth| (nth, Status::Success, if nth == 3 { 0 } else { 3000 + nth as u32 }))
        .collect();
    expected.push((7, Status::LocLenErr, 0));
    assert_eq!(seen, expected);
    assert_eq!((there(&b, 0, 4000), there(&b, 70_000, 4000)), (3000, 0));
    assert_eq!((a.state(), b.state()), (State::Err, State::Err));
}

#[test]
fn receives_that_were_taken_ahead_are_flushed_once() {
    for shared in [false, true] {
        let cable = Cable::new(3, Faults::default());
        let mut a = Endpoint::new(&cable.ga, Setup::default());
        let base = Endpoint::new(&cable.gb, Setup::default());
        let mut srq = SharedQueue::new(&base);
        let mut b = if shared { base.sibling(Type::Rc, srq.srqn) } else { base };
        stream::connect_pair(&a, &b);
        pass(&cable, 5_000_000);
        prove_whole_messages(&cable, &mut a, &b);
        for nth in 0..8 {
            let sge = b.sge(nth * 10_000, 4000);
            if shared { srq.post(nth, &[sge]) } else { b.post_recv(nth, &[sge]) }
        }
        let _lost = lose(&cable, 0);
        (0..4).for_each(|_| a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 3000)])));
        pass(&cable, SOON);
        b.set_state(State::Err);
        pass(&cable, 3_000_000_000);
        assert_eq!(b.state(), State::Err);
        let flushed: Vec<_> = std::iter::from_fn(|| b.recv_cq.poll())
            .map(|cqe| (cqe.wr_id.get(), status(&cqe)))
            .collect();
        // Only the receive of the message in progress is taken from an SRQ.
        let count = if shared { 1 } else { 8 };
        let expected: Vec<_> = (0..count).map(|nth| (nth, Status::WrFlushErr)).collect();
        assert_eq!(flushed, expected);
    }
}

#[test]
fn ends_of_messages_take_no_receives_from_others() {
    const RECEIVES: u64 = 1 << LOG_SHARED;
    let cable = Cable::new(3, Faults::default());
    let base = Endpoint::new(&cable.gb, Setup::default());
    let mut srq = SharedQueue::new(&base);
    let [(mut first, other), (mut second, mut b)] = [8000, 8001].map(|port| {
        let ends = (Endpoint::new(&cable.ga, Setup::default()), base.sibling(Type::Rc, srq.srqn));
        connect_at(&ends.0, &ends.1, port);
        ends
    });
    pass(&cable, 5_000_000);
    prove_whole_messages(&cable, &mut first, &other);
    (0..RECEIVES).for_each(|nth| srq.post(nth, &[base.sge(0, 4000)]));
    let _lost = lose(&cable, 0);
    (0..16).for_each(|_| first.post_send(&Wr::new(Opcode::Send, &[first.sge(0, 3000)])));
    pass(&cable, SOON);
    for nth in 1..RECEIVES {
        second.post_send(&Wr::new(Opcode::Send, &[second.sge(0, 8)]));
        pass(&cable, SOON);
        let received = b.recv_cq.poll().map(|cqe| status(&cqe));
        assert_eq!(received, Some(Status::Success), "message {nth}");
    }
}

#[test]
fn the_last_receive_is_told_behind_those_that_were_taken_ahead() {
    let cable = Cable::new(3, Faults::default());
    let mut a = Endpoint::new(&cable.ga, Setup::default());
    let base = Endpoint::new(&cable.gb, Setup::default());
    let mut srq = SharedQueue::new(&base);
    let mut b = base.sibling(Type::Rc, srq.srqn);
    stream::connect_pair(&a, &b);
    pass(&cable, 5_000_000);
    prove_whole_messages(&cable, &mut a, &b);
    (0..8).for_each(|nth| srq.post(nth, &[b.sge(nth * 10_000, 4000)]));
    let _lost = lose(&cable, 0);
    (0..4).for_each(|_| a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, 3000)])));
    pass(&cable, SOON);
    let _events = cable.gb.drain_events();
    b.set_state(State::Err);
    // A worker without time left flushes one receive in a turn.
    let adapter = &cable.gb.adapter;
    let qp = adapter.qp(b.qpn).expect("QP");
    let slice = Slice::new(adapter.host(), Lane::SHARED);
    slice.charge(SLICE_NS);
    cable.world.advance(SLICE_NS);
    slice.charge(SLICE_NS);
    assert_eq!(outcome::flush(adapter.core(), &qp, &slice), 1);
    assert_eq!(b.recv_cq.poll().map(|cqe| cqe.wr_id.get()), Some(0));
    assert_eq!(cable.gb.drain_events(), []);
    pass(&cable, SOON);
    let events = cable.gb.drain_events();
    assert!(events.contains(&(Kind::QpLastWqe, b.qpn)), "{events:?}");
}

#[test]
fn a_key_that_ends_meanwhile_takes_nothing_more() {
    const LEN: usize = 28_000;
    let cable = Cable::new(4, Faults::default());
    let (mut a, b) = connected(&cable);
    let params = RegMr::new(b.pdn, ALL, b.buffer, 1 << 20, Pages::new(b.buffer, 12, 0));
    let key = b.guest.command::<command::RegMr>(&params).expect("a key").get();
    a.fill(0, &[7; LEN]);
    let over = lose(&cable, 2);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, LEN as u32)]).to(b.buffer, key));
    pass(&cable, SOON);
    assert!(there(&b, 0, LEN) > 10_000);
    b.guest.on_object(Admin::DeregMr, key).expect("DEREG_MR");
    b.fill(0, &[0xee; LEN]);
    over.set(true);
    pass(&cable, 3_000_000_000);
    assert!(b.bytes(0, LEN).iter().all(|byte| *byte == 0xee), "bytes were placed after the end");
    assert_eq!(status(&a.send_cq.poll().expect("a failure")), Status::RemAccessErr);
    assert_eq!((a.state(), b.state()), (State::Err, State::Err));
}

#[test]
fn keys_and_rights_are_checked_behind_a_gap() {
    for fault in 0..2 {
        let cable = Cable::new(5, Faults::default());
        let (mut a, b) = connected(&cable);
        a.fill(0, &[7; 14_000]);
        let (access, size) =
            if fault == 0 { (ALL, 5000) } else { (Access::LOCAL_WRITE.bits(), 1 << 20) };
        let params = RegMr::new(b.pdn, access, b.buffer, size, Pages::new(b.buffer, 12, 0));
        let key = b.guest.command::<command::RegMr>(&params).expect("a key").get();
        let over = lose(&cable, 0);
        a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 14_000)]).to(b.buffer, key));
        pass(&cable, SOON);
        let early = there(&b, 0, 20_000);
        assert!(if fault == 0 { (2000..5000).contains(&early) } else { early == 0 }, "{early}");
        over.set(true);
        pass(&cable, 3_000_000_000);
        let done = status(&a.send_cq.poll().expect("a completion"));
        assert_eq!(done, Status::RemAccessErr);
    }
}

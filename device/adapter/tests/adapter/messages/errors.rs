//! Errors, and how they are reported to each side (docs/adapter.md, section 9).
//!
//! Shows: data

use std::sync::atomic::Ordering;

use vrnic_abi::cq::{self, Status};
use vrnic_abi::doorbell::RQ_PI;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, Attr, State};
use vrnic_abi::sq::{Flags, Opcode, Sge};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::{ALL, REGION, Setup};
use vrnic_testdriver::wr::Wr;

use crate::host::{Bar, RAM_LEN};
use crate::world::{Pair, by_packets};

pub(crate) const MS: u64 = 1_000_000;

/// Posts `wr` and another request on A. Checks their statuses, and that A is in the error state.
/// Returns the events of B and the statuses of its receives.
fn fail_with(p: &mut Pair, wr: &Wr, expected: Status) -> (Vec<Kind>, Vec<Status>) {
    p.a.post_send(wr);
    p.a.post_send(&Wr::new(Opcode::Send, &[]).id(1000));
    p.settle();
    let cqe = p.sent().expect("completion of the faulty request");
    assert_eq!((status(&cqe), cqe.wr_id.get()), (expected, wr.wr_id));
    assert_eq!(cqe.qpn.get(), p.a.qpn);
    let cqe = p.sent().expect("flush completion");
    assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::WrFlushErr, 1000));
    assert_eq!(p.a.state(), State::Err);
    let kinds = p.gb.drain_events().into_iter().map(|(kind, id)| {
        assert_eq!(id, p.b.qpn);
        kind
    });
    let kinds = kinds.collect();
    let statuses = std::iter::from_fn(|| p.received()).map(|cqe| status(&cqe)).collect();
    (kinds, statuses)
}

/// Checks that a request fails which A's own adapter refuses, and that B notices nothing.
fn fail_locally(wr: impl Fn(&Pair) -> Wr, expected: Status) {
    assert_eq!(statuses_of_peer(wr, expected), []);
}

/// Like [`fail_locally`]; returns the statuses of B's receives.
fn statuses_of_peer(wr: impl Fn(&Pair) -> Wr, expected: Status) -> Vec<Status> {
    let mut p = Pair::new();
    p.b.post_recv(1, &[p.b.sge(0, 100)]);
    let wr = wr(&p);
    let (events, statuses) = fail_with(&mut p, &wr, expected);
    assert_eq!((events, p.b.state()), (vec![], State::Rts));
    statuses
}

#[test]
fn malformed_requests() {
    let op = Status::LocQpOpErr;
    for opcode in [0, 16, 0x80, 255] {
        fail_locally(|_| Wr { opcode, ..Wr::new(Opcode::Send, &[]) }, op);
    }
    let bad_flags = Flags::from_bits_retain(0x90);
    fail_locally(|_| Wr::new(Opcode::Send, &[]).flags(bad_flags), op);
    fail_locally(|p| Wr::new(Opcode::Send, &vec![p.a.sge(0, 1); 17]), op);
    fail_locally(|p| Wr { inline: Some(vec![]), ..Wr::new(Opcode::Read, &[p.a.sge(0, 1)]) }, op);
    let atomic = Some((1, 1));
    for length in [0, 4, 7, 9, 16] {
        let add = |p: &Pair| Wr { atomic, ..Wr::new(Opcode::FetchAdd, &[p.a.sge(0, length)]) };
        fail_locally(add, Status::LocLenErr);
    }
    let two = |p: &Pair| [p.a.sge(0, 4), p.a.sge(4, 4)];
    fail_locally(|p| Wr { atomic, ..Wr::new(Opcode::FetchAdd, &two(p)) }, op);
    fail_locally(|_| Wr { atomic, ..Wr::new(Opcode::CmpSwp, &[]) }, op);
    // Requests about keys have no segments, no inline data and few flags; a command has data.
    for opcode in [Opcode::LocalInv, Opcode::RegMr, Opcode::BindMw, Opcode::Transfer, Opcode::Await]
    {
        let body = vec![0; 32];
        fail_locally(|p| Wr { body: body.clone(), ..Wr::new(opcode, &[p.a.sge(0, 1)]) }, op);
        fail_locally(|_| Wr { inline: Some(vec![]), ..Wr::new(opcode, &[]) }, op);
    }
    let flags = |at: usize| (0..32).map(|nth| u8::from(nth == at) << 7).collect();
    fail_locally(|_| Wr { body: flags(25), ..Wr::new(Opcode::RegMr, &[]) }, op);
    fail_locally(|_| Wr { body: flags(16), ..Wr::new(Opcode::BindMw, &[]) }, op);
    fail_locally(|_| Wr { body: vec![0; 16], ..Wr::new(Opcode::SendCmd, &[]) }, op);
    let long = |p: &Pair| Wr::new(Opcode::Write, &[p.a.sge(0, 1 << 30), p.a.sge(0, 1)]);
    fail_locally(long, Status::LocLenErr);
}

#[test]
fn local_segments() {
    let prot = Status::LocProtErr;
    let send = |sge| Wr::new(Opcode::Send, &[sge]);
    let key = |sge: Sge, key: u32| Sge { lkey: key.into(), ..sge };
    fail_locally(|p| send(key(p.a.sge(0, 8), 0)), prot);
    fail_locally(|p| send(key(p.a.sge(0, 8), p.a.key ^ 1)), prot);
    fail_locally(|p| send(key(p.a.sge(0, 8), p.a.key + 0x100)), prot);
    fail_locally(|p| send(key(p.a.sge(0, 8), u32::MAX)), prot);
    fail_locally(|p| send(p.a.sge(REGION - 7, 8)), prot);
    fail_locally(|p| send(Sge { addr: (p.a.buffer - 1).into(), ..p.a.sge(0, 8) }), prot);
    fail_locally(|p| send(Sge { addr: u64::MAX.into(), ..p.a.sge(0, 8) }), prot);
    // A region of another PD, and a region without the right to write.
    let other_pd = |p: &Pair| {
        let pdn = p.ga.on_object(vrnic_abi::admin::Opcode::AllocPd, p.a.context).expect("PD");
        let other = p.ga.reg_flat(pdn, ALL, p.a.buffer, 4096).expect("MR");
        send(key(p.a.sge(0, 8), other))
    };
    fail_locally(other_pd, prot);
    let read_only = |p: &Pair| {
        let other = p.ga.reg_flat(p.a.pdn, 0, p.a.buffer, 4096).expect("MR");
        Wr::new(Opcode::Read, &[key(p.a.sge(0, 8), other)]).to(p.b.buffer, p.b.key)
    };
    fail_locally(read_only, prot);
    let gone = |p: &Pair| {
        p.ga.host.restrict(p.a.buffer, 4096, Bar::Unmapped);
        Wr::new(Opcode::Write, &[p.a.sge(8, 8)]).to(p.b.buffer, p.b.key)
    };
    fail_locally(gone, prot);
    let unwritable = |p: &Pair| {
        p.ga.host.restrict(p.a.buffer, 4096, Bar::ReadOnly);
        Wr::new(Opcode::Read, &[p.a.sge(8, 8)]).to(p.b.buffer, p.b.key)
    };
    // Over packets, the SEND behind the READ has arrived before the READ's bytes come back.
    let arrived = if by_packets() { vec![Status::Success] } else { vec![] };
    assert_eq!(statuses_of_peer(unwritable, prot), arrived);
}

#[test]
fn zero_length_segments_are_not_checked() {
    let mut p = Pair::new();
    let nowhere = Sge { addr: 1.into(), length: 0.into(), lkey: 99.into() };
    p.b.post_recv(1, &[nowhere]);
    let cqe = p.complete(&Wr::new(Opcode::Send, &[nowhere, p.a.sge(0, 0)]));
    assert_eq!(status(&cqe), Status::Success);
    let cqe = p.complete(&Wr::new(Opcode::Write, &[]).to(7, 99));
    assert_eq!(status(&cqe), Status::Success);
}

#[test]
fn remote_memory() {
    type Case = fn(&Pair) -> Wr;
    let cases: [(Case, Status, Kind); 9] = [
        (|p| write(p).to(p.b.buffer, p.b.key ^ 1), Status::RemAccessErr, Kind::QpAccessError),
        (|p| write(p).to(p.b.buffer, 0), Status::RemAccessErr, Kind::QpAccessError),
        (|p| write(p).to(p.b.buffer - 1, p.b.key), Status::RemAccessErr, Kind::QpAccessError),
        (|p| write(p).to(u64::MAX - 3, p.b.key), Status::RemAccessErr, Kind::QpAccessError),
        (|p| write(p).to(p.b.buffer, weak(p, 0)), Status::RemAccessErr, Kind::QpAccessError),
        (
            |p| Wr::new(Opcode::Read, &[p.a.sge(0, 8)]).to(p.b.buffer, weak(p, 3)),
            Status::RemAccessErr,
            Kind::QpAccessError,
        ),
        (|p| atomic(p).to(p.b.buffer, weak(p, 3)), Status::RemAccessErr, Kind::QpAccessError),
        (|p| atomic(p).to(p.b.buffer + 4, p.b.key), Status::RemInvReqErr, Kind::QpRequestError),
        (
            |p| {
                p.gb.host.restrict(p.b.buffer, 4096, Bar::ReadOnly);
                write(p).to(p.b.buffer, p.b.key)
            },
            Status::RemOpErr,
            Kind::QpFatal,
        ),
    ];
    for (at, (wr, expected, kind)) in cases.iter().enumerate() {
        let mut p = Pair::new();
        p.b.post_recv(1, &[p.b.sge(0, 100)]);
        p.b.fill(0, &[0x77; 16]);
        let wr = wr(&p);
        let (kinds, statuses) = fail_with(&mut p, &wr, *expected);
        assert_eq!(kinds, [*kind], "case {at}");
        assert_eq!(statuses, [Status::WrFlushErr], "case {at}");
        assert_eq!(p.b.state(), State::Err, "case {at}");
        assert_eq!(p.b.bytes(0, 16), [0x77; 16], "case {at}");
    }
}

pub(crate) fn write(p: &Pair) -> Wr {
    Wr::new(Opcode::Write, &[p.a.sge(0, 8)])
}

fn atomic(p: &Pair) -> Wr {
    Wr::new(Opcode::FetchAdd, &[p.a.sge(0, 8)]).atomic(1, 1)
}

/// Returns a key of B's memory with these rights.
fn weak(p: &Pair, access: u32) -> u32 {
    p.gb.reg_flat(p.b.pdn, access, p.b.buffer, 4096).expect("MR")
}

#[test]
fn operations_that_the_responder_does_not_enable() {
    for wr in [write, atomic, |p: &Pair| Wr::new(Opcode::Read, &[p.a.sge(0, 8)])] {
        let mut p = Pair::with(Setup::default(), |attr| attr.access = 0.into());
        let wr = wr(&p).to(p.b.buffer, p.b.key);
        let (kinds, _) = fail_with(&mut p, &wr, Status::RemInvReqErr);
        assert_eq!(kinds, [Kind::QpRequestError]);
    }
    // READs and atomics need resources at both ends.
    let none = |attr: &mut Attr| attr.max_dest_rd_atomic = 0;
    let mut p = Pair::with(Setup::default(), none);
    let wr = atomic(&p).to(p.b.buffer, p.b.key);
    fail_with(&mut p, &wr, Status::RemInvReqErr);
    let mut p = Pair::with(Setup::default(), |attr| attr.max_rd_atomic = 0);
    let wr = Wr::new(Opcode::Read, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key);
    fail_with(&mut p, &wr, Status::LocQpOpErr);
}

#[test]
fn receive_too_short() {
    let mut p = Pair::new();
    p.b.post_recv(1, &[p.b.sge(0, 9)]);
    p.b.post_recv(2, &[p.b.sge(0, 100)]);
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 10)]);
    let (_, statuses) = fail_with(&mut p, &wr, Status::RemInvReqErr);
    assert_eq!(statuses, [Status::LocLenErr, Status::WrFlushErr]);
    assert_eq!(p.b.state(), State::Err);
}

#[test]
fn receive_without_usable_memory() {
    let bad_key = |p: &Pair| Sge { lkey: 1.into(), ..p.b.sge(0, 100) };
    let unwritable = |p: &Pair| Sge { lkey: weak(p, 0).into(), ..p.b.sge(0, 100) };
    let barred = |p: &Pair| {
        p.gb.host.restrict(p.b.buffer, 4096, Bar::ReadOnly);
        p.b.sge(0, 100)
    };
    for sge in [bad_key, unwritable, barred] {
        let mut p = Pair::new();
        let sge = sge(&p);
        p.b.post_recv(1, &[sge]);
        let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 10)]);
        let (_, statuses) = fail_with(&mut p, &wr, Status::RemOpErr);
        assert_eq!(statuses, [Status::LocProtErr]);
    }
}

#[test]
fn malformed_receive_fails_its_own_side() {
    let mut p = Pair::new();
    let mut bytes = [0; 16];
    bytes[8] = 200;
    p.b.post_raw_recv(&bytes);
    let wr = Wr::new(Opcode::Send, &[p.a.sge(0, 10)]);
    let (_, statuses) = fail_with(&mut p, &wr, Status::RemOpErr);
    assert_eq!(statuses, [Status::LocQpOpErr]);
}

#[test]
fn the_error_state_flushes_what_was_and_what_will_be_posted() {
    let mut p = Pair::new();
    for n in 0..16 {
        p.b.post_recv(n, &[p.b.sge(0, 8)]);
    }
    p.b.set_state(State::Err);
    p.settle();
    for n in 0..16 {
        let cqe = p.received().expect("flushed");
        assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::WrFlushErr, n));
        assert_eq!((cqe.opcode, cqe.byte_len.get()), (cq::Opcode::Recv as u8, 0));
    }
    for round in 0..40u64 {
        p.b.post_recv(100 + round, &[]);
        p.b.post_send(&Wr::new(Opcode::Write, &[]).id(200 + round).flags(Flags::empty()));
        p.world.advance(200 * MS);
        p.settle();
        let cqe = p.received().expect("flushed receive");
        assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::WrFlushErr, 100 + round));
        let cqe = p.b.send_cq.poll().expect("flushed send");
        assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::WrFlushErr, 200 + round));
        assert_eq!(cqe.opcode, cq::Opcode::Write as u8);
    }
    assert_eq!(p.gb.drain_events(), [], "the driver itself has moved the QP to the error state");
}

#[test]
fn producer_index_beyond_the_ring() {
    let p = Pair::new();
    p.ga.slot32(p.a.uar, p.a.slot, 0).store(17, Ordering::Release);
    p.ga.ring(p.a.uar, p.a.slot);
    p.settle();
    assert_eq!(p.ga.drain_events(), [(Kind::QpFatal, p.a.qpn)]);
    assert_eq!(p.a.state(), State::Err);

    let mut p = Pair::new();
    p.gb.slot32(p.b.uar, p.b.slot, RQ_PI).store(17, Ordering::Release);
    let cqe = p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
    assert_eq!(status(&cqe), Status::RemOpErr);
    assert_eq!(p.gb.drain_events(), [(Kind::QpFatal, p.b.qpn)]);
    assert_eq!(p.b.state(), State::Err);
}

#[test]
fn ring_memory_that_goes_away() {
    let mut p = Pair::new();
    p.a.store_send(&Wr::new(Opcode::Write, &[]));
    p.ga.host.restrict(BASE, RAM_LEN, Bar::Unmapped);
    p.a.ring();
    p.settle();
    p.ga.host.unrestrict();
    assert_eq!(p.a.state(), State::Err);
    assert_eq!(p.b.state(), State::Rts);
}

#[test]
fn a_local_fault_in_the_middle_of_a_message() {
    let mut p = Pair::new();
    let len = 2 << 20;
    p.b.post_recv(1, &[p.b.sge(0, len)]);
    p.ga.host.restrict(p.a.buffer + (1 << 20), 4096, Bar::Unmapped);
    let cqe = p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, len)]));
    assert_eq!(status(&cqe), Status::LocProtErr);
    // B has received half of the message. Its receive is flushed when its QP is moved to the error
    // state.
    assert_eq!(p.b.state(), State::Rts);
    assert!(p.received().is_none());
    p.b.set_state(State::Err);
    p.settle();
    assert_eq!(status(&p.received().expect("flushed")), Status::WrFlushErr);
}

#[test]
fn access_rights_are_those_of_the_last_modify() {
    let mut p = Pair::new();
    let attr = Attr { access: Access::REMOTE_READ.bits().into(), ..Attr::default() };
    p.gb.modify_qp(p.b.qpn, vrnic_abi::qp::AttrMask::ACCESS_FLAGS, &attr).expect("modify");
    let wr = write(&p).to(p.b.buffer, p.b.key);
    fail_with(&mut p, &wr, Status::RemInvReqErr);
}

/// The memory of a receive that a message does not fill is not checked. The next message fills it.
#[test]
fn a_receive_is_checked_as_far_as_it_is_filled() {
    let mut p = Pair::new();
    let mut beyond = p.b.sge(1000, 100);
    beyond.lkey = 0xdead_0000.into();
    p.a.fill(0, b"as long as the first segment");
    let places = [p.b.sge(0, 28), beyond];
    for (length, expected) in [(28, Status::Success), (29, Status::RemOpErr)] {
        p.b.post_recv(5, &places);
        let wr = Wr::new(Opcode::Send, &[p.a.sge(0, length)]);
        p.a.post_send(&wr);
        p.settle();
        assert_eq!(status(&p.sent().expect("completion")), expected, "{length} bytes");
        assert_eq!(p.b.bytes(0, 28), b"as long as the first segment");
    }
}

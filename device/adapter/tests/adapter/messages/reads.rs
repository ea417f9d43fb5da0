//! READs that take several turns: which requests overtake them, which wait for them, and the order
//! of completions. Uses memory copies, because over packets a turn does not move the bytes of a
//! READ by itself.
//!
//! Shows: data

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_adapter::datapath::requester;
use vrnic_adapter::datapath::send_queue::Turn;
use vrnic_adapter::datapath::space::Space;
use vrnic_adapter::datapath::turn::Allowance;
use vrnic_adapter::host::Lane;
use vrnic_adapter::slice::Slice;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;

use crate::world::Pair;

/// Bytes of a long READ, and of a turn. A long READ takes four turns.
const READ_LEN: u32 = 1 << 20;
const TURN: u64 = 256 << 10;
/// Offsets of A's buffers for READs and for sends.
const SINK: u64 = 0;
const SOURCE: u64 = 6 << 20;

/// Returns a pair with data for two READs and a receive on B. At most `max_rd_atomic` READs may be
/// outstanding.
fn pair(max_rd_atomic: u8) -> Pair {
    let mut p = Pair::local(Setup::default(), |attr: &mut Attr| attr.max_rd_atomic = max_rd_atomic);
    (0..2).for_each(|nth| p.b.fill(nth * u64::from(READ_LEN), &bytes(nth)));
    p.b.post_recv(7, &[p.b.sge(7 << 20, 64)]);
    p
}

/// Runs a turn of A's QP that moves at most [`TURN`] bytes.
fn turn(p: &Pair) -> Turn {
    let qp = p.ga.adapter.qp(p.a.qpn).expect("QP");
    let slice = Slice::new(&p.ga.host, Lane::SHARED);
    requester::run(
        p.ga.adapter.network(),
        &qp,
        &mut Space::default(),
        &Allowance { budget: TURN, slice: &slice },
    )
}

/// Returns the n-th long READ. Each has its own buffer.
fn read(p: &Pair, nth: u64) -> Wr {
    let at = nth * u64::from(READ_LEN);
    Wr::new(Opcode::Read, &[p.a.sge(SINK + at, READ_LEN)])
        .to(p.b.buffer + at, p.b.key)
        .id(100 + nth)
}

fn send(p: &Pair, id: u64) -> Wr {
    Wr::new(Opcode::Send, &[p.a.sge(SOURCE, 64)]).id(id)
}

/// Returns the data of the n-th READ.
fn bytes(nth: u64) -> Vec<u8> {
    (0..u64::from(READ_LEN)).map(|at| (at ^ (at >> 8) ^ (nth * 77)) as u8).collect()
}

/// Returns whether the data of the n-th READ has arrived at A.
fn arrived(p: &Pair, nth: u64) -> bool {
    p.a.bytes(SINK + nth * u64::from(READ_LEN), READ_LEN as usize) == bytes(nth)
}

/// Returns the work requests that A has completed, with their statuses.
fn completed(p: &mut Pair) -> Vec<(u64, Status)> {
    std::iter::from_fn(|| p.sent()).map(|cqe| (cqe.wr_id.get(), status(&cqe))).collect()
}

fn post(p: &mut Pair, wrs: &[Wr]) {
    wrs.iter().for_each(|wr| p.a.store_send(wr));
    p.a.ring();
}

#[test]
fn a_send_passes_a_long_read_and_completes_after_it() {
    let mut p = pair(16);
    let wrs = [read(&p, 0), send(&p, 2)];
    post(&mut p, &wrs);
    assert_eq!((turn(&p), turn(&p)), (Turn::More, Turn::More));
    assert_eq!(p.received().map(|cqe| cqe.wr_id.get()), Some(7), "the SEND waits for the READ");
    assert!(completed(&mut p).is_empty() && !arrived(&p, 0), "the READ completes too early");
    p.settle();
    assert_eq!(completed(&mut p), [(100, Status::Success), (2, Status::Success)]);
    assert!(arrived(&p, 0));
}

#[test]
fn a_fence_waits_for_reads() {
    let mut p = pair(16);
    let wrs = [read(&p, 0), send(&p, 2).flags(Flags::SIGNALED | Flags::FENCE)];
    post(&mut p, &wrs);
    while !arrived(&p, 0) {
        assert!(p.received().is_none(), "the SEND overtakes the READ despite the fence");
        assert_eq!(turn(&p), Turn::More);
    }
    p.settle();
    assert_eq!(completed(&mut p), [(100, Status::Success), (2, Status::Success)]);
    assert!(p.received().is_some());
}

#[test]
fn as_many_reads_are_outstanding_as_the_peer_allows() {
    for (max_reads, outstanding) in [(1, false), (2, true)] {
        let mut p = pair(max_reads);
        let wrs = [read(&p, 0), read(&p, 1), send(&p, 2)];
        post(&mut p, &wrs);
        let _turns = (turn(&p), turn(&p));
        assert_eq!(p.received().is_some(), outstanding, "of at most {max_reads}");
        p.settle();
        let all = [(100, Status::Success), (101, Status::Success), (2, Status::Success)];
        assert_eq!(completed(&mut p), all);
        assert!(arrived(&p, 0) && arrived(&p, 1));
    }
}

#[test]
fn an_atomic_waits_for_reads() {
    let mut p = pair(16);
    let word = p.b.buffer + (7 << 20);
    let mut add = Wr::new(Opcode::FetchAdd, &[p.a.sge(SOURCE, 8)]).to(word, p.b.key).id(2);
    add.atomic = Some((5, 0));
    let wrs = [read(&p, 0), add];
    post(&mut p, &wrs);
    assert_eq!((turn(&p), turn(&p)), (Turn::More, Turn::More));
    assert_eq!(p.b.bytes(7 << 20, 8), [0; 8]);
    p.settle();
    assert_eq!(completed(&mut p), [(100, Status::Success), (2, Status::Success)]);
    assert_eq!(p.b.bytes(7 << 20, 8), [5, 0, 0, 0, 0, 0, 0, 0]);
}

/// A request that is refused ends both QPs, so it is refused only when the READ before it has
/// brought all of its bytes.
#[test]
fn a_refused_entry_waits_for_the_reads_before_it() {
    let p = pair(16);
    let bad = Wr::new(Opcode::Write, &[p.a.sge(SOURCE, 64)]).to(p.b.buffer, p.b.key ^ 0xff).id(2);
    let bad_read = read(&p, 1).to(p.b.buffer, p.b.key ^ 0xff).id(3);
    // Longer than the receive.
    let bad_send = Wr::new(Opcode::Send, &[p.a.sge(SOURCE, 65)]).id(4);
    let access = Status::RemAccessErr;
    for (refused, why) in [(bad, access), (bad_read, access), (bad_send, Status::RemInvReqErr)] {
        let id = refused.wr_id;
        let mut p = pair(16);
        let wrs = [read(&p, 0), refused, send(&p, 9)];
        post(&mut p, &wrs);
        assert_eq!((turn(&p), turn(&p)), (Turn::More, Turn::More));
        assert!(!arrived(&p, 0) && p.received().is_none(), "the refused entry ends a QP too early");
        p.settle();
        let all = [(100, Status::Success), (id, why), (9, Status::WrFlushErr)];
        assert_eq!(completed(&mut p), all);
        assert!(arrived(&p, 0));
        let received = if id == 4 { Status::LocLenErr } else { Status::WrFlushErr };
        assert_eq!(p.received().as_ref().map(status), Some(received));
    }
}

#[test]
fn an_entry_that_cannot_be_parsed_waits_for_the_reads_before_it() {
    let mut p = pair(16);
    let wrs = [read(&p, 0), Wr { opcode: 0xee, ..send(&p, 2) }];
    post(&mut p, &wrs);
    p.settle();
    assert_eq!(completed(&mut p), [(100, Status::Success), (2, Status::LocQpOpErr)]);
    assert!(arrived(&p, 0));
}

/// The region is deregistered during the READ. The SEND after the READ has been executed, but is
/// flushed.
#[test]
fn a_read_that_fails_on_the_way_flushes_what_is_behind() {
    let mut p = pair(16);
    let key = p.gb.reg_flat(p.b.pdn, ALL, p.b.buffer, u64::from(READ_LEN)).expect("MR");
    let wrs = [read(&p, 0).to(p.b.buffer, key), send(&p, 2), send(&p, 3)];
    post(&mut p, &wrs[..2]);
    assert_eq!((turn(&p), turn(&p)), (Turn::More, Turn::More));
    assert!(p.received().is_some());
    p.gb.on_object(Admin::DeregMr, key).expect("DEREG_MR");
    post(&mut p, &wrs[2..]);
    p.settle();
    let all = [(100, Status::RemAccessErr), (2, Status::WrFlushErr), (3, Status::WrFlushErr)];
    assert_eq!(completed(&mut p), all);
    assert_eq!(p.a.state(), State::Err);
}

#[test]
fn a_read_is_tried_again_while_the_port_is_closed() {
    let mut p = pair(16);
    let wrs = [read(&p, 0), send(&p, 2)];
    post(&mut p, &wrs[..1]);
    assert_eq!(turn(&p), Turn::More);
    p.gb.adapter.set_link(false);
    let Turn::Wait(until) = turn(&p) else { panic!("no answer, and no wait") };
    post(&mut p, &wrs[1..]);
    p.gb.adapter.set_link(true);
    p.world.advance(until.0);
    p.settle();
    assert_eq!(completed(&mut p), [(100, Status::Success), (2, Status::Success)]);
    assert!(arrived(&p, 0));

    post(&mut p, &wrs[..1]);
    assert_eq!(turn(&p), Turn::More);
    p.gb.adapter.set_link(false);
    while let Turn::Wait(until) = turn(&p) {
        p.world.advance(until.0);
    }
    assert_eq!(completed(&mut p), [(100, Status::RetryExcErr)]);
}

#[test]
fn the_send_queue_drains_when_its_reads_have_ended() {
    let mut p = pair(16);
    let wrs = [read(&p, 0), send(&p, 2)];
    post(&mut p, &wrs[..1]);
    assert_eq!(turn(&p), Turn::More);
    p.a.set_state(State::Sqd);
    post(&mut p, &wrs[1..]);
    assert_eq!(turn(&p), Turn::More);
    assert_eq!(p.ga.query_qp(p.a.qpn).expect("QUERY_QP").sq_draining, 1);
    p.settle();
    assert_eq!(p.ga.query_qp(p.a.qpn).expect("QUERY_QP").sq_draining, 0);
    assert_eq!(completed(&mut p), [(100, Status::Success)]);
    p.a.set_state(State::Rts);
    p.settle();
    assert_eq!(completed(&mut p), [(2, Status::Success)]);
}

#[test]
fn a_reset_ends_outstanding_reads() {
    let mut p = pair(16);
    let wrs = [read(&p, 0)];
    post(&mut p, &wrs);
    assert_eq!(turn(&p), Turn::More);
    p.a.set_state(State::Reset);
    p.settle();
    assert!(completed(&mut p).is_empty() && !arrived(&p, 0));
}

/// At most as many READs are outstanding as the queue has entries, although the guest overwrites
/// entries of outstanding READs.
#[test]
fn no_more_is_outstanding_than_the_queue_holds() {
    let mut p = pair(16);
    let long = read(&p, 0);
    post(&mut p, &[long]);
    assert_eq!(turn(&p), Turn::More);
    let write = Wr::new(Opcode::Write, &[]).to(p.b.buffer, p.b.key).id(2);
    for _ in 0..40 {
        post(&mut p, std::slice::from_ref(&write));
        let qp = p.ga.adapter.qp(p.a.qpn).expect("QP");
        let slice = Slice::new(&p.ga.host, Lane::SHARED);
        let turn = requester::run(
            p.ga.adapter.network(),
            &qp,
            &mut Space::default(),
            &Allowance { budget: 2, slice: &slice },
        );
        assert_ne!(turn, Turn::Idle);
        assert!(qp.requester.lock().open_reads.len() <= 16);
    }
}

/// The number of outstanding READs does not change in SQD before the last one has ended.
///
/// Shows: data
#[test]
fn the_limit_of_reads_does_not_change_before_the_queue_has_drained() {
    let mut p = pair(2);
    p.a.post_send(&read(&p, 0));
    turn(&p);
    p.a.set_state(State::Sqd);
    let change = |p: &Pair| {
        let attr = Attr { max_rd_atomic: 1, ..Attr::default() };
        let changed = p.ga.modify_qp(p.a.qpn, AttrMask::MAX_QP_RD_ATOMIC, &attr);
        changed.map_err(|refused| refused.0)
    };
    assert_eq!(change(&p), Err(vrnic_abi::admin::Status::BadState));
    p.settle();
    assert_eq!(completed(&mut p), [(100, Status::Success)]);
    assert_eq!(change(&p), Ok(()));
}

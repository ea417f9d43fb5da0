//! INSPECT: the records of objects by which a driver finds faults.
//!
//! Shows: views

use vrnic_abi::admin::{
    AllocMr, AllocMw, CqRecord, Doing, EqRecord, INSPECT_LEN_MAX, Inspect, Inspected, KeyKind,
    KeyRecord, MwType, NONE, Opcode as Admin, QpRecord, SrqRecord, Status as AdminStatus, command,
};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::ARM_NEXT;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::{ALL, LOG_WQES, REGION, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::FromBytes;

use crate::bus::{Endpoint, Guest, SharedQueue};
use crate::world::Pair;

/// Returns a page of records from `from` on, in a buffer of `len` bytes, and where the next page
/// begins.
pub(crate) fn list<T: FromBytes>(
    guest: &Guest,
    kind: Inspected,
    from: u32,
    len: u32,
) -> (Vec<T>, u32) {
    let buffer = guest.ram().alloc(4096);
    let params = Inspect::new(kind, from, buffer, len);
    let result = guest.command::<command::Inspect>(&params).expect("INSPECT");
    let at = |nth| guest.ram().fetch(buffer + u64::from(nth) * size_of::<T>() as u64);
    ((0..result.count.get()).map(at).collect(), result.next.get())
}

/// Returns all records of a kind.
pub(crate) fn all<T: FromBytes>(guest: &Guest, kind: Inspected) -> Vec<T> {
    let (records, next) = list(guest, kind, 0, INSPECT_LEN_MAX);
    assert_eq!(next, NONE);
    records
}

/// Uses memory copies: over packets, a QP takes further requests while the first send waits.
#[test]
fn a_connection_shows_its_rings() {
    let mut p = Pair::local(Setup::default(), |attr| {
        (attr.path_mtu, attr.min_rnr_timer, attr.rnr_retry) = (3, 14, 5);
    });
    for n in 0..3 {
        p.a.post_recv(n, &[]);
    }
    p.a.send_cq.arm(ARM_NEXT);
    for n in 0..4 {
        p.a.post_send(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]).id(0x70 + n));
    }
    p.settle();
    let qps: Vec<QpRecord> = all(&p.ga, Inspected::Qp);
    let [qp] = &qps[..] else { panic!("{qps:?}") };
    assert_eq!((qp.qpn.get(), qp.kind, qp.state), (p.a.qpn, Type::Rc as u8, State::Rts as u8));
    assert_eq!((qp.path_mtu, qp.sq_in_device, qp.worker.get()), (3, 0, 0));
    assert_eq!((qp.context.get(), qp.pdn.get()), (p.a.context, p.a.pdn));
    let cqns = (p.a.send_cq.cqn, p.a.recv_cq.cqn);
    assert_eq!((qp.send_cqn.get(), qp.recv_cqn.get(), qp.srqn.get()), (cqns.0, cqns.1, NONE));
    assert_eq!((qp.dest_qpn.get(), qp.dmac), (p.b.qpn, p.gb.mac()));
    assert_eq!((qp.uar.get(), qp.slot.get()), (p.a.uar, p.a.slot));
    // B has no receive: the first send waits, the others are not taken.
    let ring = [qp.sq.size, qp.sq.posted, qp.sq.next].map(|n| n.get());
    assert_eq!(ring, [1 << LOG_WQES, 4, 1]);
    let ring = [qp.rq.size, qp.rq.posted, qp.rq.next].map(|n| n.get());
    assert_eq!(ring, [1 << LOG_WQES, 3, 0]);
    assert_eq!((qp.doing, qp.wr_id.get(), qp.done.get()), (Doing::Waiting as u8, 0x70, 0));
    assert_eq!((qp.retries, qp.rnr_retries, qp.receiving), (3, 4, 0));

    let cqs: Vec<CqRecord> = all(&p.ga, Inspected::Cq);
    let cq = cqs.iter().find(|cq| cq.cqn.get() == p.a.send_cq.cqn).expect("the send CQ");
    assert_eq!((cq.armed.get(), cq.failed.get(), cq.users.get()), (ARM_NEXT, 0, 1));
    assert_eq!((cq.eqn.get(), cq.size.get(), cq.produced.get()), (p.a.eqn, 64, 0));
    for n in 0..4 {
        p.b.post_recv(n, &[p.b.sge(0, 8)]);
    }
    p.world.advance(2_000_000);
    p.settle();
    let (cqs, _) = list::<CqRecord>(&p.ga, Inspected::Cq, p.a.send_cq.cqn, 48);
    let state = [cqs[0].produced, cqs[0].consumed, cqs[0].armed].map(|n| n.get());
    assert_eq!((cqs.len(), state), (1, [4, 0, 0]));
    let eqs: Vec<EqRecord> = all(&p.ga, Inspected::Eq);
    let numbers = |eq: &EqRecord| [eq.eqn.get(), eq.vector.get(), eq.cqs.get(), eq.produced.get()];
    assert_eq!(eqs.iter().map(numbers).collect::<Vec<_>>(), [[0, 0, 0, 0], [p.a.eqn, 1, 2, 1]]);
}

#[test]
fn a_shared_queue_shows_its_ring() {
    let p = Pair::new();
    let mut srq = SharedQueue::new(&p.a);
    srq.post(1, &[]);
    let _qp = p.a.sibling(Type::Rc, srq.srqn);
    let srqs: Vec<SrqRecord> = all(&p.ga, Inspected::Srq);
    let [record] = &srqs[..] else { panic!("{srqs:?}") };
    assert_eq!((record.srqn.get(), record.users.get(), record.xrcdn.get()), (srq.srqn, 1, NONE));
    assert_eq!(
        (record.slot.get(), record.ring.posted.get(), record.ring.next.get()),
        (srq.slot, 1, 0)
    );
}

#[test]
fn keys_show_kind_state_and_windows() {
    let p = Pair::with(Setup { kernel: true, ..Setup::default() }, |_| {});
    let keys: Vec<KeyRecord> = all(&p.gb, Inspected::Key);
    let [region] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!((region.key.get(), region.pdn.get(), region.qpn.get()), (p.b.key, p.b.pdn, NONE));
    assert_eq!((region.kind, region.valid, region.one_touch), (KeyKind::Region as u8, 1, 0));
    assert_eq!((region.base.get(), region.length.get()), (p.b.buffer, REGION));
    assert_eq!((region.access.get(), region.windows.get()), (ALL, 0));

    let fast = p.gb.command::<command::AllocMr>(&AllocMr::new(p.b.pdn, 8)).expect("ALLOC_MR");
    let window =
        p.gb.command::<command::AllocMw>(&AllocMw::new(p.b.pdn, MwType::Type2)).expect("ALLOC_MW");
    let (keys, next) = list::<KeyRecord>(&p.gb, Inspected::Key, fast.get() >> 8, 4096);
    let summary = |key: &KeyRecord| (key.key.get(), key.kind, key.valid, key.length.get());
    let want =
        [(fast.get(), KeyKind::Fast as u8, 0, 0), (window.get(), KeyKind::Window2 as u8, 0, 0)];
    assert_eq!((keys.iter().map(summary).collect::<Vec<_>>(), next), (want.to_vec(), NONE));
}

/// A list is returned in pages. Destroyed objects are left out.
#[test]
fn lists_come_in_pages() {
    let p = Pair::new();
    let guest = &p.ga;
    let register = |n: u64| guest.reg_flat(p.a.pdn, ALL, p.a.buffer + n, 64).expect("REG_MR");
    let keys: Vec<u32> = (0..300).map(register).collect();
    for key in &keys[10..290] {
        guest.on_object(Admin::DeregMr, *key).expect("DEREG_MR");
    }
    let (mut from, mut seen, mut pages) = (0, Vec::new(), 0);
    while from != NONE {
        let len = 7 * size_of::<KeyRecord>() as u32 + 1;
        let (page, next) = list::<KeyRecord>(guest, Inspected::Key, from, len);
        assert!(page.len() <= 7 && next > from, "{} records, from {from} to {next}", page.len());
        seen.extend(page.iter().map(|record| record.key.get()));
        (from, pages) = (next, pages + 1);
    }
    let left: Vec<u32> = [p.a.key].iter().chain(&keys[..10]).chain(&keys[290..]).copied().collect();
    assert_eq!((seen, pages), (left, 3));
    assert_eq!(list::<QpRecord>(guest, Inspected::Qp, NONE - 1, 4096).1, NONE);
}

#[test]
fn what_is_asked_for_badly_is_refused() {
    let p = Pair::new();
    let guest = &p.ga;
    let page = guest.ram().alloc(4096);
    let ask = |params: &Inspect| guest.command::<command::Inspect>(params).err();
    let good = Inspect::new(Inspected::Qp, 0, page, 4096);
    assert_eq!(ask(&good), None);
    for (bad, at) in [
        (Inspect { kind: 0, ..good }, 16),
        (Inspect { kind: 7, ..good }, 16),
        (Inspect { len: 4097.into(), ..good }, 8),
        (Inspect { len: 95.into(), ..good }, 8),
        (Inspect { addr: (page + 4).into(), ..good }, 0),
    ] {
        assert_eq!(ask(&bad), Some(Refused(AdminStatus::BadParam, at)), "{bad:?}");
    }
    let nowhere = Inspect { addr: 0x1000.into(), ..good };
    assert_eq!(ask(&nowhere), Some(Refused(AdminStatus::BadAddress, 0)));
    // After another endpoint was created, the list has another record.
    let _more = Endpoint::new(guest, Setup::default());
    assert_eq!(all::<QpRecord>(guest, Inspected::Qp).len(), 2);
}

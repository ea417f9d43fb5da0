//! Work requests about keys: fast registration, invalidation, windows, one touch, and both forms of
//! failure.

use vrnic_abi::admin::{
    AllocMr, AllocMw, MrFlags, MwType, Opcode as Admin, Pages, QpFlags, RegMr, Rereg, ReregMr,
    Status as AdminStatus, command,
};
use vrnic_abi::cq::{self, Cqe, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, Attr, AttrMask, State};
use vrnic_abi::sq::{BindMwSeg, Flags, MemFlags, Opcode, RegMrSeg, Sge};
use vrnic_adapter::host::Clock;
use vrnic_adapter::memory::tpt::Denied;
use zerocopy::IntoBytes;

use crate::common::driver::{Guest, Refused};
use crate::common::host::{BASE, Bar, RAM_LEN};
use crate::common::pair::{ALL, Endpoint, Pair, Setup, Wr, status};
use crate::rereg::reregister;

pub(crate) const PAGE: u64 = 4096;
/// All rights, and windows may be bound.
pub(crate) const BINDABLE: u32 = ALL | Access::MW_BIND.bits();
const REMOTE: u32 = Access::REMOTE_READ.bits() | Access::REMOTE_WRITE.bits();

/// A pair of the kernels' own, who alone register by work requests.
pub(crate) fn kernel_pair() -> Pair {
    Pair::with(Setup { kernel: true, ..Setup::default() }, |_| {})
}

pub(crate) fn alloc_mr(guest: &Guest, pdn: u32, max_pages: u32) -> u32 {
    let params = AllocMr::new(pdn, max_pages);
    guest.command::<command::AllocMr>(&params).expect("ALLOC_MR").get()
}

pub(crate) fn alloc_mw(guest: &Guest, pdn: u32, kind: MwType) -> u32 {
    guest.command::<command::AllocMw>(&AllocMw::new(pdn, kind)).expect("ALLOC_MW").get()
}

pub(crate) fn dereg(guest: &Guest, key: u32) -> Result<u32, Refused> {
    guest.on_object(Admin::DeregMr, key)
}

/// A page list in guest memory.
fn list(guest: &Guest, pages: &[u64]) -> u64 {
    let at = guest.alloc(pages.len() as u64 * 8);
    let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
    guest.write(at, &bytes);
    at
}

pub(crate) fn reg_seg(guest: &Guest, pages: &[u64], length: u64, access: u32) -> RegMrSeg {
    RegMrSeg {
        length: length.into(),
        table: list(guest, pages).into(),
        access: access.into(),
        page_count: (pages.len() as u32).into(),
        page_shift: 12,
        ..RegMrSeg::default()
    }
}

pub(crate) fn reg(key: u32, iova: u64, seg: &RegMrSeg) -> Wr {
    Wr { body: seg.as_bytes().to_vec(), ..Wr::new(Opcode::RegMr, &[]) }.to(iova, key)
}

pub(crate) fn bind(key: u32, lkey: u32, (addr, length): (u64, u64), access: u32) -> Wr {
    let seg = BindMwSeg {
        length: length.into(),
        lkey: lkey.into(),
        access: access.into(),
        ..BindMwSeg::default()
    };
    Wr { body: seg.as_bytes().to_vec(), ..Wr::new(Opcode::BindMw, &[]) }.to(addr, key)
}

pub(crate) fn local_inv(key: u32) -> Wr {
    Wr::new(Opcode::LocalInv, &[]).to(0, key)
}

pub(crate) fn ok(cqe: &Cqe, opcode: cq::Opcode) {
    assert_eq!((status(cqe), cqe.opcode), (Status::Success, opcode as u8));
}

/// Posts on B, whose keys the tests are about.
pub(crate) fn on_b(p: &mut Pair, wr: &Wr) -> Cqe {
    p.b.post_send(&p.gb, wr);
    p.settle();
    p.b.send_cq.poll(&p.gb).expect("completion on B")
}

pub(crate) fn write(p: &Pair, addr: u64, key: u32, len: u32) -> Wr {
    Wr::new(Opcode::Write, &[p.a.sge(0, len)]).to(addr, key)
}

/// A registration of two pages in reverse order, at `iova`.
fn two_pages(p: &mut Pair, key: u32, iova: u64, access: u32) -> Cqe {
    let pages = [p.b.buffer + PAGE, p.b.buffer];
    let seg = reg_seg(&p.gb, &pages, 2 * PAGE - 500, access);
    on_b(p, &reg(key, iova, &seg))
}

/// Part 3: registration, use and invalidation through the send queue, again and again with new
/// keys.
#[test]
fn fast_registration() {
    let mut p = kernel_pair();
    let first = alloc_mr(&p.gb, p.b.pdn, 2);
    // Invalid until registered.
    for round in 0..300u32 {
        let key = first & !0xff | round & 0xff;
        let iova = 0x7000_0000_0064 + u64::from(round);
        let cqe = two_pages(&mut p, key, iova, ALL);
        ok(&cqe, cq::Opcode::RegMr);
        let data = [round as u8; 200];
        p.a.fill(&p.ga, 0, &data);
        // Across the page boundary: the second page lies before the first.
        let within = 0x64 + u64::from(round);
        let at = PAGE - within - 100;
        let wr = write(&p, iova + at, key, 200);
        ok(&p.complete(&wr), cq::Opcode::Write);
        assert_eq!(p.b.bytes(&p.gb, 2 * PAGE - 100, 100), data[..100]);
        assert_eq!(p.b.bytes(&p.gb, 0, 100), data[..100]);
        ok(&on_b(&mut p, &local_inv(key)), cq::Opcode::LocalInv);
    }
    let stats = p.gb.stats();
    assert_eq!((stats.reg_wqes.get(), stats.local_inv_wqes.get()), (300, 300));
    // Gone after the last invalidation.
    let key = first & !0xff | 299 & 0xff;
    let wr = write(&p, 0x7000_0000_0064 + 299, key, 8);
    assert_eq!(status(&p.complete(&wr)), Status::RemAccessErr);
    assert_eq!(dereg(&p.gb, first), Ok(0));
}

/// The region serves local segments too, by its new key.
#[test]
fn fast_regions_are_local_too() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, key + 1, 0, 1), cq::Opcode::RegMr);
    let sge = Sge { addr: (PAGE - 4).into(), length: 8.into(), lkey: (key + 1).into() };
    p.b.post_recv(&p.gb, 9, &[sge]);
    p.a.fill(&p.ga, 0, b"abcdefgh");
    ok(&p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)])), cq::Opcode::Send);
    assert_eq!(p.b.bytes(&p.gb, 2 * PAGE - 4, 4), b"abcd");
    assert_eq!(p.b.bytes(&p.gb, 0, 4), b"efgh");
}

/// Unsignaled requests are completed by the one behind them.
#[test]
fn unsignaled_requests_about_keys() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2);
    let pages = [p.b.buffer + PAGE, p.b.buffer];
    let seg = reg_seg(&p.gb, &pages, PAGE, ALL);
    let quiet = Flags::empty();
    p.b.post_send(&p.gb, &reg(key, 0, &seg).flags(quiet).id(1));
    p.b.post_send(&p.gb, &local_inv(key).flags(quiet).id(2));
    p.b.post_send(&p.gb, &reg(key + 1, 0, &seg).flags(quiet).id(3));
    p.b.post_send(&p.gb, &local_inv(key + 1).id(4));
    p.settle();
    let cqe = p.b.send_cq.poll(&p.gb).expect("completion");
    ok(&cqe, cq::Opcode::LocalInv);
    assert_eq!((cqe.wr_id.get(), cqe.wqe_index.get()), (4, 3));
    assert!(p.b.send_cq.poll(&p.gb).is_none());
}

/// SEND_INV: the key is invalid before the receive completes, and the completion names it.
#[test]
fn send_with_invalidate() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2) + 7;
    ok(&two_pages(&mut p, key, 0, ALL), cq::Opcode::RegMr);
    p.b.post_recv(&p.gb, 5, &[p.b.sge(64 << 10, 64)]);
    p.a.fill(&p.ga, 0, b"done");
    let cqe = p.complete(&Wr::new(Opcode::SendInv, &[p.a.sge(0, 4)]).to(0, key));
    ok(&cqe, cq::Opcode::Send);
    let cqe = p.received().expect("receive");
    ok(&cqe, cq::Opcode::Recv);
    assert_eq!((cqe.wr_id.get(), cqe.byte_len.get(), cqe.key.get()), (5, 4, key));
    assert_eq!(cqe.flags.get(), cq::Flags::INVALIDATED.bits());
    assert_eq!(p.b.bytes(&p.gb, 64 << 10, 4), b"done");
    assert_eq!(p.gb.stats().remote_invalidations.get(), 1);
    // It may be registered again.
    ok(&two_pages(&mut p, key + 1, 0, ALL), cq::Opcode::RegMr);
    // And a stale key is an access error, like any other use of it.
    p.b.post_recv(&p.gb, 6, &[p.b.sge(64 << 10, 64)]);
    let cqe = p.complete(&Wr::new(Opcode::SendInv, &[]).to(0, key));
    assert_eq!((status(&cqe), cqe.vendor_err.get()), (Status::RemAccessErr, Denied::Stale as u32));
    assert_eq!(p.gb.drain_events(), [(Kind::QpAccessError, p.b.qpn)]);
    assert_eq!(status(&p.received().expect("flush")), Status::WrFlushErr);
}

/// Each key that a peer may not invalidate.
#[test]
fn remote_invalidation_is_refused() {
    type Case = fn(&mut Pair) -> u32;
    let cases: [(Case, Denied); 4] = [
        (|p| p.b.key, Denied::Kind),
        (|_| 0x55_5500, Denied::Invalid),
        (
            |p| {
                let key = alloc_mr(&p.gb, p.b.pdn, 2);
                ok(&two_pages(p, key, 0, 1), cq::Opcode::RegMr);
                key
            },
            Denied::Rights,
        ),
        (
            |p| {
                let pdn = p.gb.on_object(Admin::AllocPd, p.b.context).expect("PD");
                alloc_mr(&p.gb, pdn, 2)
            },
            Denied::Invalid,
        ),
    ];
    for (case, why) in cases {
        let mut p = kernel_pair();
        let key = case(&mut p);
        p.b.post_recv(&p.gb, 6, &[p.b.sge(0, 64)]);
        let cqe = p.complete(&Wr::new(Opcode::SendInv, &[]).to(0, key));
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::RemAccessErr, why as u32));
    }
}

/// Each reason for which a REG_MR, LOCAL_INV or BIND_MW is refused.
#[test]
fn refused_requests_about_keys() {
    type Case = fn(&mut Pair) -> Wr;
    fn seg(p: &Pair, pages: u64, length: u64, access: u32) -> RegMrSeg {
        let pages: Vec<u64> = (0..pages).map(|nth| p.b.buffer + 2 * nth * PAGE).collect();
        reg_seg(&p.gb, &pages, length, access)
    }
    fn fresh(p: &Pair) -> u32 {
        alloc_mr(&p.gb, p.b.pdn, 4)
    }
    let cases: [(Case, Denied); 15] = [
        (|p| reg(0x7f_0000, 0, &seg(p, 1, 8, 1)), Denied::Invalid),
        (|p| reg(p.b.key, 0, &seg(p, 1, 8, 1)), Denied::Kind),
        (|p| reg(fresh(p), 0, &seg(p, 1, 0, 1)), Denied::Bounds),
        // A list that is too short for the region, or wraps, or is longer than ALLOC_MR said.
        (|p| reg(fresh(p), 1, &seg(p, 1, PAGE, 1)), Denied::Bounds),
        (|p| reg(fresh(p), u64::MAX - 7, &seg(p, 4, 16, 1)), Denied::Bounds),
        (|p| reg(fresh(p), 0, &seg(p, 5, 16, 1)), Denied::Bounds),
        (|p| reg(fresh(p), 0, &seg(p, 1, 8, 2)), Denied::Rights),
        (|p| reg(fresh(p), 0, &RegMrSeg { page_shift: 31, ..seg(p, 1, 8, 1) }), Denied::Bounds),
        (
            |p| {
                let table = (BASE + RAM_LEN - 8).into();
                reg(fresh(p), 0, &RegMrSeg { table, ..seg(p, 4, 8, 1) })
            },
            Denied::Memory,
        ),
        (
            |p| {
                let unaligned = [p.b.buffer + 8];
                reg(fresh(p), 0, &reg_seg(&p.gb, &unaligned, 8, 1))
            },
            Denied::Bounds,
        ),
        (|p| local_inv(p.b.key), Denied::Kind),
        (|p| local_inv(fresh(p)), Denied::Invalid),
        (
            |p| bind(alloc_mw(&p.gb, p.b.pdn, MwType::Type2), p.b.key, (p.b.buffer, 8), 4),
            Denied::NotBindable,
        ),
        (|p| bind(p.b.key, p.b.key, (p.b.buffer, 8), 4), Denied::Kind),
        (
            |p| bind(alloc_mw(&p.gb, p.b.pdn, MwType::Type2), p.b.key, (p.b.buffer, 0), 4),
            Denied::Bounds,
        ),
    ];
    for (nth, (case, why)) in cases.into_iter().enumerate() {
        let mut p = kernel_pair();
        let wr = case(&mut p);
        let cqe = on_b(&mut p, &wr);
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::MwBindErr, why as u32), "case {nth}");
        assert_eq!(p.gb.stats().mem_mgmt_op_err.get(), 1);
    }
}

/// A REG_MR contains guest addresses, so a process may not post one: neither with a region of its
/// own, which it gets none of, nor with the kernel's.
#[test]
fn users_register_nothing_by_work_requests() {
    let mut p = Pair::new();
    let params = AllocMr::new(p.b.pdn, 4);
    assert_eq!(p.gb.command::<command::AllocMr>(&params).err(), Some((AdminStatus::Permission, 0)));
    let pdn = p.gb.on_object(Admin::AllocPd, 0).expect("PD of the kernel");
    let key = alloc_mr(&p.gb, pdn, 4);
    let wr = reg(key, 0, &reg_seg(&p.gb, &[p.b.buffer], 8, ALL));
    let cqe = on_b(&mut p, &wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::Foreign as u32));
}

/// Anticipatory failure: the QP and its peer go to the error state, everything is flushed.
#[test]
fn anticipatory_failure() {
    let mut p = Pair::new();
    p.a.post_recv(&p.ga, 70, &[]);
    p.b.post_recv(&p.gb, 80, &[]);
    p.b.post_send(&p.gb, &local_inv(1).id(1));
    p.b.post_send(&p.gb, &Wr::new(Opcode::Send, &[]).id(2));
    p.settle();
    let cqes = [(); 2].map(|()| p.b.send_cq.poll(&p.gb).expect("completion"));
    assert_eq!(cqes.each_ref().map(status), [Status::MwBindErr, Status::WrFlushErr]);
    assert_eq!(status(&p.b.recv_cq.poll(&p.gb).expect("flush")), Status::WrFlushErr);
    assert_eq!(status(&p.a.recv_cq.poll(&p.ga).expect("flush")), Status::WrFlushErr);
    assert_eq!((p.a.state(&p.ga), p.b.state(&p.gb)), (State::Err, State::Err));
    assert_eq!(p.ga.drain_events(), [(Kind::QpFatal, p.a.qpn)]);
}

/// Reactive failure: only the send queue fails, and may be used again.
#[test]
fn reactive_failure() {
    // What is not there is neither invalidated nor registered.
    let (length, page_count) = (8.into(), 1.into());
    let page = RegMrSeg { length, page_count, page_shift: 12, ..RegMrSeg::default() };
    for refused in [local_inv(0x7f_0000), reg(0x7f_0000, 0, &page)] {
        fails_alone(&refused);
    }
}

fn fails_alone(refused: &Wr) {
    let setup = Setup { flags: QpFlags::REACTIVE, kernel: true, ..Setup::default() };
    let mut p = Pair::with(setup, |_| {});
    p.b.post_recv(&p.gb, 80, &[]);
    p.b.post_send(&p.gb, &write_back(&p, 1));
    p.b.post_send(&p.gb, &refused.clone().id(2));
    p.b.post_send(&p.gb, &write_back(&p, 3));
    p.settle();
    let mut statuses = Vec::new();
    while let Some(cqe) = p.b.send_cq.poll(&p.gb) {
        statuses.push((cqe.wr_id.get(), status(&cqe)));
    }
    let expected = [(1, Status::Success), (2, Status::MwBindErr), (3, Status::WrFlushErr)];
    assert_eq!(statuses, expected);
    assert_eq!((p.a.state(&p.ga), p.b.state(&p.gb)), (State::Rts, State::Sqe));
    // Receives, and what the peer does, go on.
    ok(&p.complete(&Wr::new(Opcode::Send, &[])), cq::Opcode::Send);
    ok(&p.received().expect("receive"), cq::Opcode::Recv);
    let read = Wr::new(Opcode::Read, &[p.a.sge(0, 64)]).to(p.b.buffer, p.b.key);
    ok(&p.complete(&read), cq::Opcode::Read);
    // What is posted meanwhile is flushed.
    let wr = write_back(&p, 4);
    assert_eq!(status(&on_b(&mut p, &wr)), Status::WrFlushErr);
    let attr = Attr { state: State::Rts as u8, ..Attr::default() };
    p.gb.modify_qp(p.b.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
    let wr = write_back(&p, 5);
    ok(&on_b(&mut p, &wr), cq::Opcode::Write);
    assert!(p.gb.drain_events().is_empty() && p.ga.drain_events().is_empty());
}

fn write_back(p: &Pair, id: u64) -> Wr {
    Wr::new(Opcode::Write, &[p.b.sge(0, 8)]).to(p.a.buffer, p.a.key).id(id)
}

/// Part 4: a window shows its part of the region and no more, by the window's rights.
#[test]
fn windows_show_a_part() {
    for kind in [MwType::Type1, MwType::Type2] {
        let mut p = Pair::new();
        let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
        let key = alloc_mw(&p.gb, p.b.pdn, kind) + 3;
        let at = p.b.buffer + 100;
        let cqe = on_b(&mut p, &bind(key, region, (at, PAGE), Access::REMOTE_WRITE.bits()));
        ok(&cqe, cq::Opcode::BindMw);
        p.a.fill(&p.ga, 0, b"window");
        for addr in [at, at + PAGE - 6] {
            let wr = write(&p, addr, key, 6);
            ok(&p.complete(&wr), cq::Opcode::Write);
            assert_eq!(p.gb.read(addr, 6), b"window");
        }
        assert_eq!(dereg(&p.gb, region), Err((AdminStatus::Busy, 0)));
        // Not locally.
        let sge = Sge { addr: at.into(), length: 8.into(), lkey: key.into() };
        let cqe = on_b(&mut p, &Wr::new(Opcode::Send, &[sge]));
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::LocProtErr, Denied::Kind as u32));
        assert_eq!(p.gb.on_object(Admin::DeallocMw, key), Ok(0));
        assert_eq!(dereg(&p.gb, region), Ok(0));
    }
    let outside: [fn(u64) -> (u64, u32); 3] =
        [|at| (at - 1, 2), |at| (at + PAGE - 1, 2), |at| (at + PAGE, 1)];
    for outside in outside {
        let mut p = Pair::new();
        let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
        let key = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
        let at = p.b.buffer + 100;
        ok(&on_b(&mut p, &bind(key, region, (at, PAGE), REMOTE)), cq::Opcode::BindMw);
        let (addr, len) = outside(at);
        let wr = write(&p, addr, key, len);
        let cqe = p.complete(&wr);
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::RemAccessErr, Denied::Bounds as u32));
    }
}

/// A window of type 1 is bound again without more ado; of type 2, after an invalidation.
#[test]
fn rebinding() {
    let mut p = Pair::new();
    let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
    let one = alloc_mw(&p.gb, p.b.pdn, MwType::Type1);
    for round in 0..3 {
        let wr = bind(one + round, region, (p.b.buffer + u64::from(round) * PAGE, 8), REMOTE);
        ok(&on_b(&mut p, &wr), cq::Opcode::BindMw);
        let wr = write(&p, p.b.buffer + u64::from(round) * PAGE, one + round, 8);
        ok(&p.complete(&wr), cq::Opcode::Write);
    }
    ok(&on_b(&mut p, &bind(one + 3, region, (0, 0), 0)), cq::Opcode::BindMw);
    // Unbound: the region may go, which leaves the window to be bound elsewhere.
    assert_eq!(dereg(&p.gb, region), Ok(0));
    let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
    let two = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
    let start = (p.b.buffer, 8);
    ok(&on_b(&mut p, &bind(two, region, start, REMOTE)), cq::Opcode::BindMw);
    ok(&on_b(&mut p, &local_inv(two)), cq::Opcode::LocalInv);
    ok(&on_b(&mut p, &bind(two + 1, region, start, REMOTE)), cq::Opcode::BindMw);
    p.b.post_recv(&p.gb, 1, &[]);
    ok(&p.complete(&Wr::new(Opcode::SendInv, &[]).to(0, two + 1)), cq::Opcode::Send);
    ok(&on_b(&mut p, &bind(two, region, start, REMOTE)), cq::Opcode::BindMw);
    let cqe = on_b(&mut p, &bind(two + 1, region, start, REMOTE));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::InUse as u32));
}

/// A fast region with a window cannot be invalidated; a window of type 2 serves its QP alone.
#[test]
fn windows_and_their_association() {
    let mut p = kernel_pair();
    let fast = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, fast, 0, BINDABLE), cq::Opcode::RegMr);
    let window = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
    ok(&on_b(&mut p, &bind(window, fast, (PAGE - 4, 8), REMOTE)), cq::Opcode::BindMw);
    p.a.fill(&p.ga, 0, b"abcdefgh");
    let wr = write(&p, PAGE - 4, window, 8);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(p.b.bytes(&p.gb, 0, 4), b"efgh");
    let cqe = on_b(&mut p, &local_inv(fast));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::InUse as u32));
    // Another QP of the same PD is a stranger to the window.
    let (mut other_a, other_b) = {
        let a = Endpoint::new(&p.ga, Setup::default());
        let mut params = crate::common::pair::qp_params(&p.gb, false);
        params.pdn = p.b.pdn.into();
        params.uar = p.b.uar.into();
        params.send_cqn = p.b.send_cq.cqn.into();
        params.recv_cqn = p.b.recv_cq.cqn.into();
        let (qpn, ..) = p.gb.create_qp(&params).expect("QP");
        (a, qpn)
    };
    other_a.connect(&p.ga, p.gb.adapter.mac(), other_b, |_| {});
    let mut attr = crate::common::pair::attributes(p.ga.adapter.mac(), other_a.qpn);
    for (state, mask) in
        [(State::Init, crate::common::pair::INIT), (State::Rtr, crate::common::pair::RTR)]
    {
        attr.state = state as u8;
        p.gb.modify_qp(other_b, mask, &attr).expect("MODIFY_QP");
    }
    let wr = Wr::new(Opcode::Write, &[other_a.sge(0, 4)]).to(PAGE, window);
    other_a.post_send(&p.ga, &wr);
    p.settle();
    let cqe = other_a.send_cq.poll(&p.ga).expect("completion");
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, Denied::Foreign as u32));
}

/// Part 5: a key for one touch serves one message, however long, and dies with it.
#[test]
fn one_touch() {
    const LEN: u32 = 3 << 20;
    let register = |p: &mut Pair| {
        let params = RegMr {
            flags: MrFlags::ONE_TOUCH.bits().into(),
            ..RegMr::new(p.b.pdn, ALL, p.b.buffer, 4 << 20, Pages::new(p.b.buffer, 12, 0))
        };
        p.gb.command::<command::RegMr>(&params).expect("MR").get()
    };
    let window = |p: &mut Pair| {
        let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 << 20).expect("MR");
        let key = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
        let seg = BindMwSeg {
            length: (4 << 20).into(),
            lkey: region.into(),
            access: REMOTE.into(),
            flags: MemFlags::ONE_TOUCH.bits(),
            ..BindMwSeg::default()
        };
        let wr = Wr { body: seg.as_bytes().to_vec(), ..Wr::new(Opcode::BindMw, &[]) };
        ok(&on_b(p, &wr.to(p.b.buffer, key)), cq::Opcode::BindMw);
        key
    };
    let fast = |p: &mut Pair| {
        let key = alloc_mr(&p.gb, p.b.pdn, 512);
        let seg = RegMrSeg {
            page_shift: 21,
            flags: MemFlags::ONE_TOUCH.bits(),
            ..reg_seg(
                &p.gb,
                &[
                    p.b.buffer & !0x1f_ffff,
                    (p.b.buffer & !0x1f_ffff) + (2 << 20),
                    (p.b.buffer & !0x1f_ffff) + (4 << 20),
                ],
                4 << 20,
                ALL,
            )
        };
        ok(&on_b(p, &reg(key, p.b.buffer, &seg)), cq::Opcode::RegMr);
        key
    };
    let makers: [&dyn Fn(&mut Pair) -> u32; 3] = [&register, &window, &fast];
    for make in makers {
        for opcode in [Opcode::Write, Opcode::Read] {
            let mut p = kernel_pair();
            let key = make(&mut p);
            let message = |p: &Pair, len| Wr::new(opcode, &[p.a.sge(0, len)]).to(p.b.buffer, key);
            let (long, short) = (message(&p, LEN), message(&p, 1));
            assert_eq!(status(&p.complete(&long)), Status::Success);
            let cqe = p.complete(&short);
            let got = (status(&cqe), cqe.vendor_err.get());
            assert_eq!(got, (Status::RemAccessErr, Denied::Invalid as u32));
            assert_eq!(p.gb.drain_events(), [(Kind::QpAccessError, p.b.qpn)]);
        }
    }
}

/// A key that a message has touched, but not ended, stays that message's when the QPs begin anew
/// and count their messages from the start.
#[test]
fn one_touch_outlives_a_reset() {
    let mut p = Pair::new();
    let params = RegMr {
        flags: MrFlags::ONE_TOUCH.bits().into(),
        ..RegMr::new(p.b.pdn, ALL, p.b.buffer, PAGE, Pages::new(p.b.buffer, 12, 0))
    };
    let key = p.gb.command::<command::RegMr>(&params).expect("MR").get();
    let wr = Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, key);
    p.ga.host.restrict(p.a.buffer, 8, Bar::Unmapped);
    assert_eq!(status(&p.complete(&wr)), Status::LocProtErr);
    p.ga.host.unrestrict();
    let (a, b) = (p.ga.adapter.mac(), p.gb.adapter.mac());
    p.a.set_state(&p.ga, State::Reset);
    p.b.set_state(&p.gb, State::Reset);
    p.a.connect(&p.ga, b, p.b.qpn, |attr| attr.rq_psn = attr.sq_psn);
    p.b.connect(&p.gb, a, p.a.qpn, |attr| attr.rq_psn = attr.sq_psn);
    let cqe = p.complete(&wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, Denied::Touched as u32));
}

/// Part 7: REREG_MR changes what it names, gives a new key when that is the memory, and leaves the
/// region alone when it fails.
#[test]
fn reregistration() {
    let mut p = Pair::new();
    let key = p.gb.reg_flat(p.b.pdn, ALL, p.b.buffer, PAGE).expect("MR");
    // Other pages.
    let far = p.b.buffer + (1 << 20);
    let params = ReregMr {
        pages: Pages::new(far, 12, 0),
        iova: 0x1000.into(),
        length: (2 * PAGE).into(),
        ..ReregMr::new(key, Rereg::TRANSLATION)
    };
    let second = reregister(&p, params).expect("REREG_MR");
    assert_eq!((second >> 8, second == key), (key >> 8, false));
    p.a.fill(&p.ga, 0, b"moved");
    let wr = write(&p, 0x1000 + PAGE, second, 5);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(p.gb.read(far + PAGE, 5), b"moved");
    // A failure changes nothing, and so does a try with the old key.
    let gone = Pages::new(BASE + RAM_LEN, 12, 1);
    let bad = ReregMr { key: second.into(), pages: gone, ..params };
    assert_eq!(reregister(&p, bad), Err((AdminStatus::BadAddress, 0)));
    assert_eq!(reregister(&p, params), Err((AdminStatus::NotFound, 0)));
    let wr = write(&p, 0x1000, second, 5);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(dereg(&p.gb, second), Ok(0));
}

/// Part 1: addresses that count from zero, with a first page partly used.
#[test]
fn zero_based_regions() {
    let mut p = Pair::new();
    let access = ALL | Access::ZERO_BASED.bits();
    let key = p.gb.reg_flat(p.b.pdn, access, p.b.buffer + 100, PAGE).expect("MR");
    p.a.fill(&p.ga, 0, b"zero");
    let wr = write(&p, 0, key, 4);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(p.b.bytes(&p.gb, 100, 4), b"zero");
    let wr = write(&p, PAGE - 3, key, 4);
    assert_eq!(status(&p.complete(&wr)), Status::RemAccessErr);
}

/// Memory that is gone under a registered region is an error of that access, and no more.
#[test]
fn memory_that_goes_away_under_a_fast_region() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, key, 0, ALL), cq::Opcode::RegMr);
    p.gb.host.restrict(p.b.buffer, PAGE, crate::common::host::Bar::Unmapped);
    let wr = write(&p, 0, key, 8);
    ok(&p.complete(&wr), cq::Opcode::Write);
    let wr = write(&p, PAGE - 4, key, 8);
    assert_eq!(status(&p.complete(&wr)), Status::RemOpErr);
    assert!(p.gb.host.now() == p.ga.host.now());
}

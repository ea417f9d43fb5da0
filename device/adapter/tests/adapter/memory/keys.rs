//! Work requests about keys: fast registration, invalidation, and both kinds of failure.
//!
//! Shows: memory

use vrnic_abi::admin::{
    AllocMr, AllocMw, MwType, Opcode as Admin, QpFlags, Status as AdminStatus, command,
};
use vrnic_abi::cq::{self, Cqe, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, Attr, AttrMask, State};
use vrnic_abi::sq::{BindMwSeg, Flags, Opcode, RegMrSeg, Sge};
use vrnic_adapter::host::Clock;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::Guest;
use crate::host::{Bar, RAM_LEN};
use crate::world::{Pair, by_packets, state_of_failed_peer, told_by_peer};

pub(crate) const PAGE: u64 = 4096;
/// All rights, and the right to bind windows.
pub(crate) const BINDABLE: u32 = ALL | Access::MW_BIND.bits();
pub(crate) const REMOTE: u32 = Access::REMOTE_READ.bits() | Access::REMOTE_WRITE.bits();

/// Returns a pair of kernel QPs. Only kernels register memory by work requests.
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

/// Writes a page list to guest memory. Returns its address.
fn list(guest: &Guest, pages: &[u64]) -> u64 {
    let at = guest.ram().alloc(pages.len() as u64 * 8);
    let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
    guest.ram().write(at, &bytes);
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
    Wr::new(Opcode::RegMr, &[]).body(seg.as_bytes()).to(iova, key)
}

pub(crate) fn bind(key: u32, lkey: u32, addr: u64, length: u64, access: u32) -> Wr {
    let seg = BindMwSeg {
        length: length.into(),
        lkey: lkey.into(),
        access: access.into(),
        ..BindMwSeg::default()
    };
    Wr::new(Opcode::BindMw, &[]).body(seg.as_bytes()).to(addr, key)
}

pub(crate) fn local_inv(key: u32) -> Wr {
    Wr::new(Opcode::LocalInv, &[]).to(0, key)
}

pub(crate) fn ok(cqe: &Cqe, opcode: cq::Opcode) {
    assert_eq!((status(cqe), cqe.opcode), (Status::Success, opcode as u8));
}

/// Posts on B. The tests are about the keys of B.
pub(crate) fn on_b(p: &mut Pair, wr: &Wr) -> Cqe {
    p.b.post_send(wr);
    p.settle();
    p.b.send_cq.poll().expect("completion on B")
}

pub(crate) fn write(p: &Pair, addr: u64, key: u32, len: u32) -> Wr {
    Wr::new(Opcode::Write, &[p.a.sge(0, len)]).to(addr, key)
}

pub(crate) fn write_back(p: &Pair, id: u64) -> Wr {
    Wr::new(Opcode::Write, &[p.b.sge(0, 8)]).to(p.a.buffer, p.a.key).id(id)
}

/// Registers two pages in reverse order at `iova`.
pub(crate) fn two_pages(p: &mut Pair, key: u32, iova: u64, access: u32) -> Cqe {
    let pages = [p.b.buffer + PAGE, p.b.buffer];
    let seg = reg_seg(&p.gb, &pages, 2 * PAGE - 500, access);
    on_b(p, &reg(key, iova, &seg))
}

/// Part 3: registration, use and invalidation through the send queue, many times, each time with a
/// new key.
#[test]
fn fast_registration() {
    let mut p = kernel_pair();
    let first = alloc_mr(&p.gb, p.b.pdn, 2);
    // Each key is invalid before it is registered.
    for round in 0..300u32 {
        let key = first & !0xff | round & 0xff;
        let iova = 0x7000_0000_0064 + u64::from(round);
        let cqe = two_pages(&mut p, key, iova, ALL);
        ok(&cqe, cq::Opcode::RegMr);
        let data = [round as u8; 200];
        p.a.fill(0, &data);
        // Across the page boundary: the second page lies before the first.
        let within = 0x64 + u64::from(round);
        let at = PAGE - within - 100;
        let wr = write(&p, iova + at, key, 200);
        ok(&p.complete(&wr), cq::Opcode::Write);
        assert_eq!(p.b.bytes(2 * PAGE - 100, 100), data[..100]);
        assert_eq!(p.b.bytes(0, 100), data[..100]);
        ok(&on_b(&mut p, &local_inv(key)), cq::Opcode::LocalInv);
    }
    let stats = p.gb.stats();
    assert_eq!((stats.reg_wqes.get(), stats.local_inv_wqes.get()), (300, 300));
    // The key is invalid after the last invalidation.
    let key = first & !0xff | 299 & 0xff;
    let wr = write(&p, 0x7000_0000_0064 + 299, key, 8);
    assert_eq!(status(&p.complete(&wr)), Status::RemAccessErr);
    assert_eq!(dereg(&p.gb, first), Ok(0));
}

/// Only iWARP QPs have READs that invalidate the key of their sink.
#[test]
fn reads_invalidate_no_key_over_roce() {
    let mut p = kernel_pair();
    let read = Wr::new(Opcode::ReadInv, &[p.b.sge(0, 8)]).to(p.a.buffer, p.a.key);
    assert_eq!(status(&on_b(&mut p, &read)), Status::LocQpOpErr);
}

/// The new key of the region is valid in local segments, too.
#[test]
fn fast_regions_are_local_too() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, key + 1, 0, 1), cq::Opcode::RegMr);
    let sge = Sge { addr: (PAGE - 4).into(), length: 8.into(), lkey: (key + 1).into() };
    p.b.post_recv(9, &[sge]);
    p.a.fill(0, b"abcdefgh");
    ok(&p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)])), cq::Opcode::Send);
    assert_eq!(p.b.bytes(2 * PAGE - 4, 4), b"abcd");
    assert_eq!(p.b.bytes(0, 4), b"efgh");
}

/// Unsignaled requests are completed by the completion of the next signaled request.
#[test]
fn unsignaled_requests_about_keys() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2);
    let pages = [p.b.buffer + PAGE, p.b.buffer];
    let seg = reg_seg(&p.gb, &pages, PAGE, ALL);
    let quiet = Flags::empty();
    p.b.post_send(&reg(key, 0, &seg).flags(quiet).id(1));
    p.b.post_send(&local_inv(key).flags(quiet).id(2));
    p.b.post_send(&reg(key + 1, 0, &seg).flags(quiet).id(3));
    p.b.post_send(&local_inv(key + 1).id(4));
    p.settle();
    let cqe = p.b.send_cq.poll().expect("completion");
    ok(&cqe, cq::Opcode::LocalInv);
    assert_eq!((cqe.wr_id.get(), cqe.wqe_index.get()), (4, 3));
    assert!(p.b.send_cq.poll().is_none());
}

/// SEND_INV: the key is invalid before the receive completes, and the completion contains it.
#[test]
fn send_with_invalidate() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2) + 7;
    ok(&two_pages(&mut p, key, 0, ALL), cq::Opcode::RegMr);
    p.b.post_recv(5, &[p.b.sge(64 << 10, 64)]);
    p.a.fill(0, b"done");
    let cqe = p.complete(&Wr::new(Opcode::SendInv, &[p.a.sge(0, 4)]).to(0, key));
    ok(&cqe, cq::Opcode::Send);
    let cqe = p.received().expect("receive");
    ok(&cqe, cq::Opcode::Recv);
    assert_eq!((cqe.wr_id.get(), cqe.byte_len.get(), cqe.key.get()), (5, 4, key));
    assert_eq!(cqe.flags.get(), cq::Flags::INVALIDATED.bits());
    assert_eq!(p.b.bytes(64 << 10, 4), b"done");
    assert_eq!(p.gb.stats().remote_invalidations.get(), 1);
    // The region may be registered again.
    ok(&two_pages(&mut p, key + 1, 0, ALL), cq::Opcode::RegMr);
    // A stale key is an access error, as with any other use of it.
    p.b.post_recv(6, &[p.b.sge(64 << 10, 64)]);
    let cqe = p.complete(&Wr::new(Opcode::SendInv, &[]).to(0, key));
    let expected = (Status::RemAccessErr, told_by_peer(Denied::Stale));
    assert_eq!((status(&cqe), cqe.vendor_err.get()), expected);
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
        p.b.post_recv(6, &[p.b.sge(0, 64)]);
        let cqe = p.complete(&Wr::new(Opcode::SendInv, &[]).to(0, key));
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::RemAccessErr, told_by_peer(why)));
    }
}

/// Each reason for which a REG_MR, LOCAL_INV or BIND_MW is refused.
///
/// Shows: memory: each cause for which a request about keys is refused
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
        // A list that is too short for the region, a region that wraps, and a list that is longer
        // than ALLOC_MR has allowed.
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
            |p| bind(alloc_mw(&p.gb, p.b.pdn, MwType::Type2), p.b.key, p.b.buffer, 8, 4),
            Denied::NotBindable,
        ),
        (|p| bind(p.b.key, p.b.key, p.b.buffer, 8, 4), Denied::Kind),
        (
            |p| bind(alloc_mw(&p.gb, p.b.pdn, MwType::Type2), p.b.key, p.b.buffer, 0, 4),
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

/// A REG_MR contains guest addresses, so a process may not post one. It gets no region for it, and
/// may not use a region of the kernel.
///
/// Shows: memory: registration by work requests of the kernel, but not of users
#[test]
fn users_register_nothing_by_work_requests() {
    let mut p = Pair::new();
    let params = AllocMr::new(p.b.pdn, 4);
    assert_eq!(
        p.gb.command::<command::AllocMr>(&params).err(),
        Some(Refused(AdminStatus::Permission, 0))
    );
    let pdn = p.gb.on_object(Admin::AllocPd, 0).expect("PD of the kernel");
    let key = alloc_mr(&p.gb, pdn, 4);
    let wr = reg(key, 0, &reg_seg(&p.gb, &[p.b.buffer], 8, ALL));
    let cqe = on_b(&mut p, &wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::Foreign as u32));
}

/// Anticipatory failure: the QP and its peer go to the error state, and everything is flushed. Over
/// packets the peer does not notice this, because no packet can report it.
#[test]
fn anticipatory_failure() {
    let mut p = Pair::new();
    p.a.post_recv(70, &[]);
    p.b.post_recv(80, &[]);
    p.b.post_send(&local_inv(1).id(1));
    p.b.post_send(&Wr::new(Opcode::Send, &[]).id(2));
    p.settle();
    let cqes = [(); 2].map(|()| p.b.send_cq.poll().expect("completion"));
    assert_eq!(cqes.each_ref().map(status), [Status::MwBindErr, Status::WrFlushErr]);
    assert_eq!(status(&p.b.recv_cq.poll().expect("flush")), Status::WrFlushErr);
    assert_eq!((p.a.state(), p.b.state()), (state_of_failed_peer(), State::Err));
    let flushed = p.a.recv_cq.poll().map(|cqe| status(&cqe));
    assert_eq!(flushed, (!by_packets()).then_some(Status::WrFlushErr));
    let events = if by_packets() { vec![] } else { vec![(Kind::QpFatal, p.a.qpn)] };
    assert_eq!(p.ga.drain_events(), events);
    // Over packets, a peer without outstanding requests notices the failure at its next request.
    p.a.post_send(&Wr::new(Opcode::Send, &[]).id(3));
    p.settle();
    let expected = if by_packets() { Status::RemOpErr } else { Status::WrFlushErr };
    assert_eq!(p.a.send_cq.poll().map(|cqe| status(&cqe)), Some(expected));
    assert_eq!(p.a.state(), State::Err);
}

/// Reactive failure: only the send queue fails, and may be used again.
#[test]
fn reactive_failure() {
    // An index without an object can neither be invalidated nor registered.
    let (length, page_count) = (8.into(), 1.into());
    let page = RegMrSeg { length, page_count, page_shift: 12, ..RegMrSeg::default() };
    for refused in [local_inv(0x7f_0000), reg(0x7f_0000, 0, &page)] {
        fails_alone(&refused);
    }
}

fn fails_alone(refused: &Wr) {
    let setup = Setup { flags: QpFlags::REACTIVE, kernel: true, ..Setup::default() };
    let mut p = Pair::with(setup, |_| {});
    p.b.post_recv(80, &[]);
    p.b.post_send(&write_back(&p, 1));
    p.b.post_send(&refused.clone().id(2));
    p.b.post_send(&write_back(&p, 3));
    p.settle();
    let mut statuses = Vec::new();
    while let Some(cqe) = p.b.send_cq.poll() {
        statuses.push((cqe.wr_id.get(), status(&cqe)));
    }
    let expected = [(1, Status::Success), (2, Status::MwBindErr), (3, Status::WrFlushErr)];
    assert_eq!(statuses, expected);
    assert_eq!((p.a.state(), p.b.state()), (State::Rts, State::Sqe));
    // Receives and requests of the peer still work.
    ok(&p.complete(&Wr::new(Opcode::Send, &[])), cq::Opcode::Send);
    ok(&p.received().expect("receive"), cq::Opcode::Recv);
    let read = Wr::new(Opcode::Read, &[p.a.sge(0, 64)]).to(p.b.buffer, p.b.key);
    ok(&p.complete(&read), cq::Opcode::Read);
    // Requests that are posted now are flushed.
    let wr = write_back(&p, 4);
    assert_eq!(status(&on_b(&mut p, &wr)), Status::WrFlushErr);
    let attr = Attr { state: State::Rts as u8, ..Attr::default() };
    p.gb.modify_qp(p.b.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
    let wr = write_back(&p, 5);
    ok(&on_b(&mut p, &wr), cq::Opcode::Write);
    assert!(p.gb.drain_events().is_empty() && p.ga.drain_events().is_empty());
}

/// If the memory of a registered region is removed, only the access to it fails.
///
/// Shows: memory
#[test]
fn memory_that_goes_away_under_a_fast_region() {
    let mut p = kernel_pair();
    let key = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, key, 0, ALL), cq::Opcode::RegMr);
    p.gb.host.restrict(p.b.buffer, PAGE, Bar::Unmapped);
    let wr = write(&p, 0, key, 8);
    ok(&p.complete(&wr), cq::Opcode::Write);
    let wr = write(&p, PAGE - 4, key, 8);
    assert_eq!(status(&p.complete(&wr)), Status::RemOpErr);
    assert!(p.gb.host.now() == p.ga.host.now());
}

/// Part 1: zero-based regions whose first page is partly used.
#[test]
fn zero_based_regions() {
    let mut p = Pair::new();
    let access = ALL | Access::ZERO_BASED.bits();
    let key = p.gb.reg_flat(p.b.pdn, access, p.b.buffer + 100, PAGE).expect("MR");
    p.a.fill(0, b"zero");
    let wr = write(&p, 0, key, 4);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(p.b.bytes(100, 4), b"zero");
    let wr = write(&p, PAGE - 3, key, 4);
    assert_eq!(status(&p.complete(&wr)), Status::RemAccessErr);
}

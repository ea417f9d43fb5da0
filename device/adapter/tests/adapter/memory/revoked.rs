//! REVOKE_MR, which ends access by a key that stays in use.
//!
//! Shows: memory

use vrnic_abi::admin::{MwType, Opcode as Admin, Rereg, ReregMr, Status as AdminStatus};
use vrnic_abi::cq::{self, Status};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use crate::bus::Guest;
use crate::memory::keys::{
    BINDABLE, PAGE, REMOTE, alloc_mr, alloc_mw, bind, dereg, kernel_pair, ok, on_b,
};
use crate::memory::keys::{two_pages, write};
use crate::memory::rereg::reregister;
use crate::world::{Pair, told_by_peer};

fn revoke(guest: &Guest, key: u32) -> Result<u32, Refused> {
    guest.on_object(Admin::RevokeMr, key)
}

/// Registers a region of B to which windows can be bound.
fn region(p: &Pair) -> u32 {
    p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, PAGE).expect("MR")
}

/// Posts a WRITE of A to the region or window of B, which refuses it.
fn refused_by_b(p: &mut Pair, key: u32) {
    let cqe = p.complete(&write(p, p.b.buffer, key, 8));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Invalid)));
}

#[test]
fn a_peer_does_not_reach_a_revoked_region() {
    for opcode in [Opcode::Write, Opcode::Read] {
        let mut p = Pair::new();
        let key = region(&p);
        let wr = Wr::new(opcode, &[p.a.sge(0, 8)]).to(p.b.buffer, key);
        assert_eq!(status(&p.complete(&wr)), Status::Success);
        assert_eq!(revoke(&p.gb, key), Ok(0));
        p.a.fill(0, b"withdraw");
        let before = p.b.bytes(0, 8);
        let cqe = p.complete(&wr);
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Invalid)), "{opcode:?}");
        assert_eq!((p.b.bytes(0, 8), p.a.bytes(0, 8)), (before, b"withdraw".to_vec()));
        assert_eq!(dereg(&p.gb, key), Ok(0));
    }
}

/// Segments of the guest's own work requests: sources, and the buffer of a receive.
#[test]
fn work_requests_do_not_reach_a_revoked_region() {
    let mut p = Pair::new();
    let key = region(&p);
    assert_eq!(revoke(&p.gb, key), Ok(0));
    let sge = |p: &Pair| vrnic_abi::sq::Sge { lkey: key.into(), ..p.b.sge(0, 8) };
    let wr = Wr::new(Opcode::Write, &[sge(&p)]).to(p.a.buffer, p.a.key);
    let cqe = on_b(&mut p, &wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::LocProtErr, Denied::Invalid as u32));
    let mut p = Pair::new();
    let key = region(&p);
    p.b.post_recv(1, &[vrnic_abi::sq::Sge { lkey: key.into(), ..p.b.sge(0, 8) }]);
    assert_eq!(revoke(&p.gb, key), Ok(0));
    let cqe = p.complete(&Wr::new(Opcode::Send, &[p.a.sge(0, 8)]));
    assert_eq!(status(&cqe), Status::RemOpErr);
    let cqe = p.received().expect("the receive has failed");
    assert_eq!(status(&cqe), Status::LocProtErr);
}

/// Windows of a revoked region give no access any more. They are not bound, so the region can be
/// removed, and they can be bound to another one.
#[test]
fn windows_of_a_revoked_region_are_unbound() {
    for kind in [MwType::Type1, MwType::Type2] {
        let mut p = Pair::new();
        let (key, other) = (region(&p), region(&p));
        let windows = [0; 3].map(|_| alloc_mw(&p.gb, p.b.pdn, kind));
        let lkeys = [key, other, key];
        for (window, lkey) in windows.into_iter().zip(lkeys) {
            let wr = bind(window, lkey, p.b.buffer, PAGE, REMOTE);
            ok(&on_b(&mut p, &wr), cq::Opcode::BindMw);
        }
        assert_eq!(dereg(&p.gb, key), Err(Refused(AdminStatus::Busy, 0)));
        assert_eq!(revoke(&p.gb, key), Ok(0));
        ok(&p.complete(&write(&p, p.b.buffer, windows[1], 8)), cq::Opcode::Write);
        // The window, and not only its key, is free for another region.
        let wr = bind(windows[2] + 1, other, p.b.buffer, PAGE, REMOTE);
        ok(&on_b(&mut p, &wr), cq::Opcode::BindMw);
        ok(&p.complete(&write(&p, p.b.buffer, windows[2] + 1, 8)), cq::Opcode::Write);
        assert_eq!(dereg(&p.gb, key), Ok(0));
        assert_eq!(dereg(&p.gb, other), Err(Refused(AdminStatus::Busy, 0)));
        refused_by_b(&mut p, windows[0]);
    }
}

/// No window can be bound to a revoked region.
#[test]
fn a_revoked_region_takes_no_windows() {
    let mut p = Pair::new();
    let key = region(&p);
    let window = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
    assert_eq!(revoke(&p.gb, key), Ok(0));
    let wr = bind(window, key, p.b.buffer, 8, REMOTE);
    let cqe = on_b(&mut p, &wr);
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::Invalid as u32));
}

/// The key belongs to the region until DEREG_MR, and nothing makes it valid again.
#[test]
fn the_key_of_a_revoked_region_stays_in_use() {
    let p = Pair::new();
    let key = region(&p);
    assert_eq!(revoke(&p.gb, key ^ 1), Err(Refused(AdminStatus::NotFound, 0)), "another instance");
    assert_eq!(revoke(&p.gb, key), Ok(0));
    assert_eq!(revoke(&p.gb, key), Ok(0), "again");
    let bad_state = Err(Refused(AdminStatus::BadState, 0));
    for what in [Rereg::ACCESS, Rereg::PD, Rereg::TRANSLATION] {
        let mut params = ReregMr::new(key, what);
        if what == Rereg::PD {
            params.pdn = p.b.pdn.into();
        }
        assert_eq!(reregister(&p, params), bad_state, "{what:?}");
    }
    for _ in 0..300 {
        let next = region(&p);
        assert_ne!(next >> 8, key >> 8, "the index was given again");
        assert_eq!(dereg(&p.gb, next), Ok(0));
    }
    assert_eq!(dereg(&p.gb, key), Ok(0));
    assert_eq!(revoke(&p.gb, key), Err(Refused(AdminStatus::NotFound, 0)));
}

/// The command is for regions of REG_MR. A kernel client ends its own ones by LOCAL_INV.
#[test]
fn only_regions_of_commands_are_revoked() {
    let mut p = kernel_pair();
    let fast = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, fast, 0x1000, BINDABLE), cq::Opcode::RegMr);
    let window = alloc_mw(&p.gb, p.b.pdn, MwType::Type1);
    for key in [fast, window, 0, u32::MAX] {
        assert_eq!(revoke(&p.gb, key), Err(Refused(AdminStatus::NotFound, 0)));
    }
    ok(&p.complete(&write(&p, 0x1000, fast, 8)), cq::Opcode::Write);
}

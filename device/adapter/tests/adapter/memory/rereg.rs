//! REREG_MR of rights and PD, which keeps the key, and of regions whose one-touch key was used.
//!
//! Shows: memory

use vrnic_abi::admin::{
    MrFlags, MwType, Opcode as Admin, Pages, RegMr, Rereg, ReregMr, Status as AdminStatus, command,
};
use vrnic_abi::cq::{self, Status};
use vrnic_abi::qp::Access;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::ALL;

use crate::host::RAM_LEN;
use crate::memory::keys::{BINDABLE, PAGE, alloc_mw, bind, dereg, ok, on_b, write};
use crate::world::{Pair, told_by_peer};

/// Returns the key of the region after REREG_MR.
pub(crate) fn reregister(p: &Pair, params: ReregMr) -> Result<u32, Refused> {
    p.gb.command::<command::ReregMr>(&params).map(|key| key.get())
}

/// A change of the rights or of the PD keeps the key.
#[test]
fn reregistration_keeps_the_key() {
    let mut p = Pair::new();
    let read = Access::REMOTE_READ.bits() | 1;
    let key = p.gb.reg_flat(p.b.pdn, read, p.b.buffer, PAGE).expect("MR");
    // More rights, which are valid at once.
    let params = ReregMr { access: ALL.into(), ..ReregMr::new(key, Rereg::ACCESS) };
    assert_eq!(reregister(&p, params), Ok(key));
    p.a.fill(0, b"more");
    ok(&p.complete(&write(&p, p.b.buffer, key, 4)), cq::Opcode::Write);
    assert_eq!(p.b.bytes(0, 4), b"more");
    // Another PD, and back. A PD with a region cannot be freed.
    let pdn = p.gb.on_object(Admin::AllocPd, p.b.context).expect("PD");
    let params = |pdn: u32| ReregMr { pdn: pdn.into(), ..ReregMr::new(key, Rereg::PD) };
    assert_eq!(reregister(&p, params(pdn)), Ok(key));
    assert_eq!(p.gb.on_object(Admin::FreePd, pdn), Err(Refused(AdminStatus::Busy, 0)));
    assert_eq!(reregister(&p, params(p.b.pdn)), Ok(key));
    ok(&p.complete(&write(&p, p.b.buffer, key, 4)), cq::Opcode::Write);
    assert_eq!(reregister(&p, params(pdn)), Ok(key));
    let cqe = p.complete(&write(&p, p.b.buffer, key, 4));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Foreign)));
    assert_eq!(dereg(&p.gb, key), Ok(0));
    assert_eq!(p.gb.on_object(Admin::FreePd, pdn), Ok(0));
}

/// Fewer rights, and a change of rights and PD at once. A bound window prevents this change, as it
/// prevents others.
#[test]
fn reregistration_takes_rights_away() {
    let mut p = Pair::new();
    let key = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, PAGE).expect("MR");
    let window = alloc_mw(&p.gb, p.b.pdn, MwType::Type1);
    let held = bind(window + 1, key, p.b.buffer, 8, 0);
    ok(&on_b(&mut p, &held), cq::Opcode::BindMw);
    let what = Rereg::ACCESS | Rereg::PD;
    let pdn = p.b.pdn;
    let params = ReregMr { access: 1.into(), pdn: pdn.into(), ..ReregMr::new(key, what) };
    assert_eq!(reregister(&p, params), Err(Refused(AdminStatus::Busy, 0)));
    ok(&p.complete(&write(&p, p.b.buffer, key, 8)), cq::Opcode::Write);
    ok(&on_b(&mut p, &bind(window + 2, 0, 0, 0, 0)), cq::Opcode::BindMw);
    assert_eq!(reregister(&p, params), Ok(key));
    let cqe = p.complete(&write(&p, p.b.buffer, key, 8));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Rights)));
}

/// REREG_MR makes a region valid again whose one-touch key was used, whatever it changes. The new
/// key is not the key that the message had. The region is still one-touch.
#[test]
fn reregistration_after_a_touch() {
    for what in [Rereg::ACCESS, Rereg::PD, Rereg::TRANSLATION] {
        let mut p = Pair::new();
        let (buffer, pages) = (p.b.buffer, Pages::new(p.b.buffer, 12, 0));
        let flags = MrFlags::ONE_TOUCH.bits().into();
        let params = RegMr { flags, ..RegMr::new(p.b.pdn, ALL, buffer, PAGE, pages) };
        let key = p.gb.command::<command::RegMr>(&params).expect("MR").get();
        ok(&p.complete(&write(&p, buffer, key, 8)), cq::Opcode::Write);
        let params = |key| match what {
            Rereg::ACCESS => ReregMr { access: ALL.into(), ..ReregMr::new(key, what) },
            Rereg::PD => ReregMr { pdn: p.b.pdn.into(), ..ReregMr::new(key, what) },
            _ => ReregMr {
                pages,
                iova: buffer.into(),
                length: PAGE.into(),
                ..ReregMr::new(key, what)
            },
        };
        let second = reregister(&p, params(key)).expect("REREG_MR");
        assert_ne!(second, key);
        assert_eq!(reregister(&p, params(key)), Err(Refused(AdminStatus::NotFound, 0)));
        ok(&p.complete(&write(&p, buffer, second, 8)), cq::Opcode::Write);
        let cqe = p.complete(&write(&p, buffer, second, 8));
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Invalid)));
        assert_eq!(dereg(&p.gb, second), Ok(0));
    }
}

/// Part 7: REREG_MR changes only what its parameters name, gives a new key if that is the memory,
/// and leaves the region as it was if it fails.
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
    p.a.fill(0, b"moved");
    let wr = write(&p, 0x1000 + PAGE, second, 5);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(p.gb.ram().read(far + PAGE, 5), b"moved");
    // If REREG_MR fails, or names the old key, nothing changes.
    let gone = Pages::new(BASE + RAM_LEN, 12, 1);
    let bad = ReregMr { key: second.into(), pages: gone, ..params };
    assert_eq!(reregister(&p, bad), Err(Refused(AdminStatus::BadAddress, 0)));
    assert_eq!(reregister(&p, params), Err(Refused(AdminStatus::NotFound, 0)));
    let wr = write(&p, 0x1000, second, 5);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(dereg(&p.gb, second), Ok(0));
}

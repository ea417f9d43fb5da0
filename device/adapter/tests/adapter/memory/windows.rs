//! Memory windows: which memory they give access to, rebinding, and the QP or PD that they belong
//! to.
//!
//! Shows: memory

use vrnic_abi::admin::{MwType, Opcode as Admin, Status as AdminStatus};
use vrnic_abi::cq::{self, Status};
use vrnic_abi::qp::Access;
use vrnic_abi::sq::{Opcode, Sge};
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::memory::keys::{
    BINDABLE, PAGE, REMOTE, alloc_mr, alloc_mw, bind, dereg, kernel_pair, local_inv, ok, on_b,
    two_pages, write,
};
use crate::world::{Pair, told_by_peer};

/// Part 4: a window gives access to its part of the region only, with the rights of the window.
#[test]
fn windows_show_a_part() {
    for kind in [MwType::Type1, MwType::Type2] {
        let mut p = Pair::new();
        let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
        let key = alloc_mw(&p.gb, p.b.pdn, kind) + 3;
        let at = p.b.buffer + 100;
        let cqe = on_b(&mut p, &bind(key, region, at, PAGE, Access::REMOTE_WRITE.bits()));
        ok(&cqe, cq::Opcode::BindMw);
        p.a.fill(0, b"window");
        for addr in [at, at + PAGE - 6] {
            let wr = write(&p, addr, key, 6);
            ok(&p.complete(&wr), cq::Opcode::Write);
            assert_eq!(p.gb.ram().read(addr, 6), b"window");
        }
        assert_eq!(dereg(&p.gb, region), Err(Refused(AdminStatus::Busy, 0)));
        // A window's key is not valid in local segments.
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
        ok(&on_b(&mut p, &bind(key, region, at, PAGE, REMOTE)), cq::Opcode::BindMw);
        let (addr, len) = outside(at);
        let wr = write(&p, addr, key, len);
        let cqe = p.complete(&wr);
        let got = (status(&cqe), cqe.vendor_err.get());
        assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Bounds)));
    }
}

/// A window of type 1 can be bound again at once; a window of type 2 must be invalidated first.
#[test]
fn rebinding() {
    let mut p = Pair::new();
    let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
    let one = alloc_mw(&p.gb, p.b.pdn, MwType::Type1);
    for round in 0..3 {
        let wr = bind(one + round, region, p.b.buffer + u64::from(round) * PAGE, 8, REMOTE);
        ok(&on_b(&mut p, &wr), cq::Opcode::BindMw);
        let wr = write(&p, p.b.buffer + u64::from(round) * PAGE, one + round, 8);
        ok(&p.complete(&wr), cq::Opcode::Write);
    }
    ok(&on_b(&mut p, &bind(one + 3, region, 0, 0, 0)), cq::Opcode::BindMw);
    // When the window is not bound, the region can be deregistered. The window can then be bound
    // elsewhere.
    assert_eq!(dereg(&p.gb, region), Ok(0));
    let region = p.gb.reg_flat(p.b.pdn, BINDABLE, p.b.buffer, 4 * PAGE).expect("MR");
    let two = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
    let start = p.b.buffer;
    ok(&on_b(&mut p, &bind(two, region, start, 8, REMOTE)), cq::Opcode::BindMw);
    ok(&on_b(&mut p, &local_inv(two)), cq::Opcode::LocalInv);
    ok(&on_b(&mut p, &bind(two + 1, region, start, 8, REMOTE)), cq::Opcode::BindMw);
    p.b.post_recv(1, &[]);
    ok(&p.complete(&Wr::new(Opcode::SendInv, &[]).to(0, two + 1)), cq::Opcode::Send);
    ok(&on_b(&mut p, &bind(two, region, start, 8, REMOTE)), cq::Opcode::BindMw);
    let cqe = on_b(&mut p, &bind(two + 1, region, start, 8, REMOTE));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::InUse as u32));
}

/// A fast-registered region with a window cannot be invalidated. Only its own QP can use a window
/// of type 2.
#[test]
fn windows_and_their_association() {
    let mut p = kernel_pair();
    let fast = alloc_mr(&p.gb, p.b.pdn, 2);
    ok(&two_pages(&mut p, fast, 0, BINDABLE), cq::Opcode::RegMr);
    let window = alloc_mw(&p.gb, p.b.pdn, MwType::Type2);
    ok(&on_b(&mut p, &bind(window, fast, PAGE - 4, 8, REMOTE)), cq::Opcode::BindMw);
    p.a.fill(0, b"abcdefgh");
    let wr = write(&p, PAGE - 4, window, 8);
    ok(&p.complete(&wr), cq::Opcode::Write);
    assert_eq!(p.b.bytes(0, 4), b"efgh");
    let cqe = on_b(&mut p, &local_inv(fast));
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::MwBindErr, Denied::InUse as u32));
    // Another QP of the same PD may not use the window.
    let (mut other_a, other_b) = (Endpoint::new(&p.ga, Setup::default()), p.b.beside(|_| {}));
    Endpoint::connect_pair(&other_a, &other_b);
    let wr = Wr::new(Opcode::Write, &[other_a.sge(0, 4)]).to(PAGE, window);
    other_a.post_send(&wr);
    p.settle();
    let cqe = other_a.send_cq.poll().expect("completion");
    let got = (status(&cqe), cqe.vendor_err.get());
    assert_eq!(got, (Status::RemAccessErr, told_by_peer(Denied::Foreign)));
}

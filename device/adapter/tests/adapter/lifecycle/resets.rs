//! Fatal errors and resets: what ends, and what works afterwards.
//!
//! Shows: queues

use std::sync::atomic::Ordering;

use vrnic_abi::admin::{Opcode, Status};
use vrnic_abi::qp::State;
use vrnic_abi::regs;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::guest::ADMIN_LOG;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::host::{Bar, RAM_LEN};
use crate::world::{Pair, World, guest};

#[test]
fn bad_rings_are_fatal_until_reset() {
    let world = World::default();
    let guest = world.guest(1);
    let cases: [(u32, u32, regs::FatalCode); 6] = [
        (regs::ADMIN_LOG_SIZE, 1, regs::FatalCode::BadRings),
        (regs::ADMIN_LOG_SIZE, 11, regs::FatalCode::BadRings),
        (regs::ASYNC_EQ_LOG_SIZE, 3, regs::FatalCode::BadRings),
        (regs::ADMIN_SQ_LO, 0x123, regs::FatalCode::BadRings),
        (regs::ADMIN_CQ_HI, 0xffff_ffff, regs::FatalCode::RingMemory),
        (regs::ASYNC_EQ_LO, 0x1000, regs::FatalCode::RingMemory),
    ];
    for (register, value, code) in cases {
        guest.set_register(regs::CONTROL, regs::Control::RESET.bits());
        guest.set_address(regs::ADMIN_SQ_LO, BASE);
        guest.set_address(regs::ADMIN_CQ_LO, BASE);
        guest.set_address(regs::ASYNC_EQ_LO, BASE);
        guest.set_register(regs::ADMIN_LOG_SIZE, 4);
        guest.set_register(regs::ASYNC_EQ_LOG_SIZE, 4);
        guest.set_register(register, value);
        guest.set_register(regs::CONTROL, regs::Control::ENABLE.bits());
        let status = guest.status();
        assert!(status.contains(regs::Status::FATAL) && !status.contains(regs::Status::ENABLED));
        assert_eq!(guest.adapter.read_register(regs::FATAL_CODE), code as u32, "{register:#x}");
    }
    guest.set_register(regs::CONTROL, regs::Control::RESET.bits());
    assert_eq!(guest.status(), regs::Status::LINK_UP);
    guest.bring_up();
    assert!(guest.on_object(Opcode::AllocPd, 0).is_ok());
}

#[test]
fn an_admin_index_beyond_the_ring_is_fatal() {
    let guest = guest();
    let taken = guest.stats().completed_cmds.get() as u32;
    guest.set_register(regs::ADMIN_SQ_PI, taken + (1 << ADMIN_LOG) + 1);
    assert!(guest.status().contains(regs::Status::FATAL));
    let code = guest.adapter.read_register(regs::FATAL_CODE);
    assert_eq!(code, regs::FatalCode::AdminIndex as u32);
    let event = (vrnic_abi::eq::Kind::DeviceFatal, regs::FatalCode::AdminIndex as u32);
    assert_eq!(guest.drain_events(), [event]);
}

#[test]
fn no_qp_works_or_answers_after_a_fatal_error() {
    let mut p = Pair::new();
    let write =
        |p: &Pair| Wr::new(vrnic_abi::sq::Opcode::Write, &[p.a.sge(0, 64)]).to(p.b.buffer, p.b.key);
    assert!(p.complete(&write(&p)).status == 0);
    p.b.fill(0, &[7; 64]);
    p.gb.set_register(regs::ADMIN_SQ_PI, 999);
    assert!(p.gb.status().contains(regs::Status::FATAL));
    // A request of the peer to the failed adapter.
    let wr = write(&p);
    p.a.post_send(&wr);
    // A request that was posted on the failed adapter.
    let wr = Wr::new(vrnic_abi::sq::Opcode::Write, &[p.b.sge(0, 64)]).to(p.a.buffer, p.a.key);
    p.a.fill(0, &[9; 64]);
    p.b.post_send(&wr);
    for _ in 0..20 {
        p.settle();
        p.world.advance(4096 << 14);
    }
    assert_eq!(p.a.state(), State::Err);
    assert_eq!(p.a.bytes(0, 64), [9; 64]);
    assert_eq!(p.b.bytes(0, 64), [7; 64]);
}

#[test]
fn a_reset_from_any_state_ends_all() {
    for fatal in [false, true] {
        let mut p = Pair::new();
        for n in 0..4 {
            p.a.post_send(&Wr::new(vrnic_abi::sq::Opcode::Send, &[]).id(n));
        }
        p.ga.adapter.poll(0);
        if fatal {
            p.ga.set_register(regs::ADMIN_SQ_PI, 999);
        }
        p.ga.set_register(regs::CONTROL, regs::Control::RESET.bits());
        assert_eq!(p.ga.status(), regs::Status::LINK_UP);
        let word = p.ga.slot64(p.a.uar, p.a.slot).load(Ordering::Acquire);
        assert_eq!(word, 0, "doorbell memory is zeroed");
        p.ga.host.restrict(BASE, RAM_LEN, Bar::Unmapped);
        p.world.advance(1 << 40);
        p.settle();
        p.ga.host.unrestrict();
        p.ga.bring_up();
        // QUERY_STATS itself, and the command that gives the port its address.
        assert_eq!(p.ga.stats().completed_cmds.get(), 2);
        assert_eq!(p.ga.query_qp(p.a.qpn).map(|_| ()), Err(Refused(Status::NotFound, 0)));
        // The peer notices the reset at its next request.
        p.b.post_send(&Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
        for _ in 0..5 {
            p.settle();
            p.world.advance(4096 << 14);
        }
        assert_eq!(p.b.state(), State::Err);
        // A new connection works.
        p.a = Endpoint::new(&p.ga, Setup::default());
        p.b = Endpoint::new(&p.gb, Setup::default());
        Endpoint::connect_pair(&p.a, &p.b);
        let cqe = p.complete(&Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
        assert_eq!(status(&cqe), vrnic_abi::cq::Status::Success);
    }
}

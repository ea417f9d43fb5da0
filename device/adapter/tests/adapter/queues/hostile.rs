//! Hostile guests: random commands, work requests and doorbells. The adapter answers each, does not
//! panic, and other guests are not affected.
//!
//! Shows: hostile

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use vrnic_abi::admin::{
    CreateCq, CreateEq, CreateQp, CreateSrq, Inspect, Inspected, ModifyQp, ModifySrq, NO_QUEUE,
    Opcode as Admin, Pages, QueryParams, RegMr, ResizeSrq, SetPort, Status as AdminStatus,
    SwitchCounter,
};
use vrnic_abi::cq::Status;
use vrnic_abi::direct::Direction;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::padded;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::{FromZeros, IntoBytes};

use crate::bus::{Endpoint, Guest};
use crate::direct::transfer;
use crate::world::{Pair, World};

/// Returns valid commands that name the objects of `e`. The tests change their bytes.
fn templates(guest: &Guest, e: &Endpoint) -> Vec<(Admin, [u8; 56])> {
    let page = guest.ram().alloc(4096);
    let object = |id: u32| padded(&id.to_le_bytes());
    let qp = e.params();
    let bytes = padded;
    let pages = Pages::new(page, 12, 0);
    let mut device_qp = qp;
    (device_qp.flags, device_qp.sq_table, device_qp.sq_page_shift) = (1, 0.into(), 0);
    let srq = CreateSrq {
        pages,
        pdn: e.pdn.into(),
        uar: e.uar.into(),
        log_size: 3,
        log_stride: 6,
        ..CreateSrq::default()
    };
    let shared_qp = CreateQp { srqn: 1.into(), rq_log_size: NO_QUEUE, ..qp };
    vec![
        (Admin::QueryDevice, bytes(QueryParams::new(page, 256).as_bytes())),
        (Admin::QueryStats, bytes(QueryParams::new(page, 256).as_bytes())),
        (Admin::SwitchCounter, bytes(SwitchCounter::new(1, true).as_bytes())),
        (Admin::QueryOptional, bytes(QueryParams::new(page, 256).as_bytes())),
        (Admin::CreateEq, bytes(CreateEq::new(pages, 3, 6).as_bytes())),
        (Admin::DestroyEq, object(e.eqn)),
        (Admin::AllocContext, [0; 56]),
        (Admin::FreeContext, object(e.context)),
        (Admin::AllocUar, object(e.context)),
        (Admin::FreeUar, object(e.uar)),
        (Admin::AllocPd, object(e.context)),
        (Admin::FreePd, object(e.pdn)),
        (Admin::RegMr, bytes(RegMr::new(e.pdn, ALL, page, 4096, pages).as_bytes())),
        (Admin::DeregMr, object(e.key)),
        (Admin::RevokeMr, object(e.key)),
        (Admin::CreateCq, bytes(CreateCq::new(e.uar, e.eqn, 6, pages).as_bytes())),
        (Admin::DestroyCq, object(e.send_cq.cqn)),
        (Admin::CreateQp, bytes(qp.as_bytes())),
        (Admin::CreateQp, bytes(device_qp.as_bytes())),
        (Admin::DestroyQp, object(e.qpn)),
        (Admin::CreateSrq, bytes(srq.as_bytes())),
        (Admin::DestroySrq, object(1)),
        (Admin::ModifySrq, bytes(ModifySrq::new(1, 2).as_bytes())),
        (Admin::QuerySrq, object(1)),
        (Admin::ResizeSrq, bytes(ResizeSrq::new(1, 2, pages).as_bytes())),
        (Admin::CreateQp, bytes(shared_qp.as_bytes())),
        (Admin::AllocXrcd, [0; 56]),
        (Admin::FreeXrcd, object(1)),
        (Admin::ModifyQp, bytes(ModifyQp::new(e.qpn, 1, page).as_bytes())),
        (Admin::Inspect, bytes(Inspect::new(Inspected::Key, 0, page, 4096).as_bytes())),
        (Admin::SetPort, bytes(SetPort::new(3, true).as_bytes())),
        (Admin::QueryQp, bytes(ModifyQp::new(e.qpn, 0, page).as_bytes())),
        (Admin::ArmRange, bytes(transfer(e, 0, Direction::Write, 64).as_bytes())),
        (Admin::EndRange, object(0)),
        (Admin::QueryRange, object(0)),
    ]
}

/// A command: an index of a template, changed bytes, and sometimes another opcode.
type Mutant = (prop::sample::Index, Vec<(usize, u8)>, Option<u16>);

fn mutant() -> impl Strategy<Value = Mutant> {
    let changes = prop::collection::vec((0..56usize, any::<u8>()), 0..4);
    (any::<prop::sample::Index>(), changes, prop::option::weighted(0.1, any::<u16>()))
}

proptest! {
    #![proptest_config(vrnic_cases::config(64))]

    #[test]
    fn any_admin_commands(mutants in prop::collection::vec(mutant(), 1..60)) {
        let world = World::default();
        let guest = world.guest(1);
        let endpoint = Endpoint::new(&guest, Setup::default());
        let templates = templates(&guest, &endpoint);
        for (index, changes, opcode) in mutants {
            let (known, mut params) = *index.get(&templates);
            for (at, byte) in changes {
                params[at] = byte;
            }
            let completion = guest.raw_command(opcode.unwrap_or(known as u16), 0, params);
            let status = AdminStatus::from_raw(completion.status.get()).expect("known status");
            prop_assert_ne!(status, AdminStatus::Internal);
            if status != AdminStatus::Ok {
                prop_assert_eq!(completion.result, [0; 48]);
            }
            guest.adapter.poll(0);
        }
        prop_assert!(guest.status().contains(regs::Status::ENABLED));
        prop_assert!(!guest.status().contains(regs::Status::FATAL));
        prop_assert!(guest.on_object(Admin::AllocPd, 0).is_ok());
    }

    #[test]
    fn any_attributes(bytes in prop::collection::vec(any::<u8>(), 80), mask in any::<u32>()) {
        let world = World::default();
        let guest = world.guest(1);
        let endpoint = Endpoint::new(&guest, Setup::default());
        let mut attr = Attr::new_zeroed();
        attr.as_mut_bytes().copy_from_slice(&bytes);
        let before = endpoint.state();
        if guest.modify_qp(endpoint.qpn, AttrMask::from_bits_retain(mask), &attr).is_err() {
            prop_assert_eq!(endpoint.state(), before);
        }
    }

    /// Work requests of random bytes on both queues of A and B. A is hostile. C and D are another
    /// pair on the same adapters.
    #[test]
    fn any_work_requests(
        sends in prop::collection::vec(wqe(), 1..40),
        recvs in prop::collection::vec(prop::collection::vec(any::<u8>(), 512), 0..8),
        in_device in any::<bool>(),
    ) {
        let mut p = Pair::with(Setup { in_device, ..Setup::default() }, |_| {});
        let setup = Setup::default();
        let (mut c, mut d) = (Endpoint::new(&p.ga, setup), Endpoint::new(&p.gb, setup));
        Endpoint::connect_pair(&c, &d);
        for bytes in &recvs {
            p.b.post_raw_recv(bytes);
        }
        for mut bytes in sends {
            // Requests with valid keys and addresses get further.
            for (at, value) in [(24, p.b.key), (44, p.a.key), (16, p.b.buffer as u32)] {
                if bytes[at] & 3 != 0 {
                    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                    bytes[20..24].fill(0);
                }
            }
            bytes[28..32].copy_from_slice(&vrnic_abi::stamp(p.a.sq_pi).to_le_bytes());
            p.a.store_encoded(&bytes);
            p.a.ring();
            p.settle();
            p.world.advance(1_000_000);
            while p.sent().is_some() {}
            while p.received().is_some() {}
            if p.a.state() == State::Err {
                p.a.set_state(State::Reset);
                p.b.set_state(State::Reset);
                Endpoint::connect_pair(&p.a, &p.b);
            }
        }
        let untouched = d.bytes(0, 4096);
        prop_assert!(untouched.iter().all(|byte| *byte == 0), "memory of another QP changed");
        c.fill(0, b"still here");
        d.post_recv(1, &[d.sge(0, 16)]);
        c.post_send(&Wr::new(Opcode::Send, &[c.sge(0, 10)]));
        p.settle();
        prop_assert_eq!(status(&c.send_cq.poll().expect("completion")), Status::Success);
        prop_assert_eq!(d.bytes(0, 10), b"still here");
    }

    /// Random words in all doorbells of a hostile guest.
    #[test]
    fn any_doorbells(words in prop::collection::vec((0..64u32, 0..4u32, doorbell()), 1..60)) {
        let mut p = Pair::new();
        for n in 0..4 {
            p.a.store_send(&Wr::new(Opcode::Write, &[]).id(n));
        }
        for (slot, word, value) in words {
            for uar in [0, p.a.uar] {
                p.ga.slot32(uar, 16 + slot % 4, word * 4).store(value, Ordering::Release);
                p.ga.ring(uar, slot);
                p.ga.ring(uar, 16 + slot % 4);
            }
            p.settle();
            p.world.advance(1_000_000);
        }
        prop_assert!(!p.ga.status().contains(regs::Status::FATAL));
        prop_assert!(p.ga.on_object(Admin::DestroyQp, p.a.qpn).is_ok());
        prop_assert_eq!(p.b.state(), State::Rts);
    }

    #[test]
    fn any_register_writes(writes in prop::collection::vec((0..0x30u32, doorbell()), 1..40)) {
        let world = World::default();
        let guest = world.guest(1);
        for (register, value) in writes {
            guest.set_register(register * 4, value);
            guest.adapter.poll(0);
        }
        guest.set_register(regs::CONTROL, regs::Control::RESET.bits());
        guest.bring_up();
        prop_assert!(guest.on_object(Admin::AllocPd, 0).is_ok());
    }
}

fn doorbell() -> impl Strategy<Value = u32> {
    prop_oneof![0..20u32, any::<u32>(), Just(u32::MAX), Just(0x4000_0000)]
}

/// Returns 512 random bytes that often begin like a work request.
fn wqe() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 512);
    (bytes, prop::option::weighted(0.9, (1..8u8, 0..16u8, 0..18u8, 0..3u8)), 0..0x10_0000u32)
        .prop_map(|(mut bytes, head, len)| {
            if let Some((opcode, flags, count, high)) = head {
                bytes[8..12].copy_from_slice(&[opcode, flags, count, high / 2]);
                bytes[40..44].copy_from_slice(&len.to_le_bytes());
                bytes[52..56].copy_from_slice(&8u32.to_le_bytes());
            }
            bytes
        })
}

//! Admin commands: every status, ownership, limits, life and death of objects.

use std::mem::offset_of;

use vrnic_abi::admin::{
    CreateCq, CreateEq, CreateQp, MrFlags, NO_QUEUE, Opcode, Pages, QueryParams, RegMr, SetGid,
    Status, command,
};
use vrnic_abi::qp::State;
use vrnic_abi::{pci, regs, stamp, uar};
use zerocopy::IntoBytes;

use crate::common::driver::Guest;
use crate::common::host::{BASE, Bar, RAM_LEN};
use crate::common::pair::{ALL, Endpoint, Pair, Setup, World, Wr, qp_params, status};

fn guest() -> Guest {
    World::default().guest(1)
}

fn context(guest: &Guest) -> u32 {
    guest.command::<command::AllocContext>(&()).expect("context").get()
}

#[test]
fn unknown_opcodes_and_flags() {
    let guest = guest();
    for opcode in [0, 1000, 0xffff] {
        let completion = guest.raw_command(opcode, 0, [0; 56]);
        assert_eq!(completion.status.get(), Status::BadOpcode as u16);
        assert_eq!(completion.result, [0; 48]);
    }
    let completion = guest.raw_command(Opcode::AllocContext as u16, 1, [0; 56]);
    assert_eq!(completion.status.get(), Status::BadParam as u16);
    let stats = guest.stats();
    assert_eq!((stats.completed_cmds.get(), stats.cmds_err.get()), (5, 4));
}

/// Every byte that no command of this kind defines is refused, and the answer says where it is.
#[test]
fn reserved_bytes() {
    let guest = guest();
    let reserved: [(Opcode, std::ops::Range<usize>); 36] = [
        (Opcode::QueryDevice, 12..56),
        (Opcode::QueryStats, 12..56),
        (Opcode::SetGid, 5..8),
        (Opcode::SetGid, 30..56),
        (Opcode::CreateEq, 19..56),
        (Opcode::DestroyEq, 4..56),
        (Opcode::AllocContext, 0..56),
        (Opcode::FreeContext, 4..56),
        (Opcode::AllocUar, 4..56),
        (Opcode::FreeUar, 4..56),
        (Opcode::AllocPd, 4..56),
        (Opcode::FreePd, 4..56),
        (Opcode::RegMr, 44..56),
        (Opcode::DeregMr, 4..56),
        (Opcode::CreateCq, 25..56),
        (Opcode::DestroyCq, 4..56),
        (Opcode::CreateQp, 43..44),
        (Opcode::CreateQp, 52..56),
        (Opcode::CreateSrq, 35..56),
        (Opcode::DestroySrq, 4..56),
        (Opcode::ModifySrq, 8..56),
        (Opcode::QuerySrq, 4..56),
        (Opcode::AllocXrcd, 0..56),
        (Opcode::FreeXrcd, 4..56),
        (Opcode::ModifyQp, 16..56),
        (Opcode::QueryQp, 12..56),
        (Opcode::ReregMr, 48..56),
        (Opcode::AllocMr, 8..56),
        (Opcode::AllocMw, 5..56),
        (Opcode::DeallocMw, 4..56),
        (Opcode::ModifyCq, 8..56),
        (Opcode::ResizeCq, 21..56),
        (Opcode::AttachMcast, 20..56),
        (Opcode::DetachMcast, 20..56),
        (Opcode::SetPort, 2..56),
        (Opcode::Inspect, 17..56),
    ];
    for (opcode, range) in reserved {
        for at in range {
            let mut params = [0; 56];
            params[at] = 1;
            let completion = guest.raw_command(opcode as u16, 0, params);
            let got = (completion.status.get(), completion.detail.get());
            assert_eq!(got, (Status::BadParam as u16, at as u32), "{opcode:?}, byte {at}");
        }
    }
}

#[test]
fn capabilities_are_the_true_limits() {
    let guest = guest();
    let caps = guest.caps();
    let contexts = (0..).map_while(|_| guest.command::<command::AllocContext>(&()).ok());
    assert_eq!(contexts.count() as u32, caps.max_contexts.get());
    let eqs = (0..).map_while(|_| {
        let params = CreateEq::new(Pages::new(BASE, 12, 0), 1, 4);
        guest.command::<command::CreateEq>(&params).ok()
    });
    assert_eq!(eqs.count() as u32, caps.max_eq.get());
    let pds = (0..).map_while(|_| guest.on_object(Opcode::AllocPd, 0).ok()).count();
    assert_eq!(pds as u32, caps.max_pd.get());
    let none = guest.on_object(Opcode::AllocPd, 0);
    assert_eq!(none, Err((Status::NoResource, 0)));
}

#[test]
fn short_query_buffers_get_the_beginning() {
    let guest = guest();
    let at = guest.alloc(4096);
    guest.write(at, &[0xaa; 64]);
    guest.command::<command::QueryDevice>(&QueryParams::new(at, 16)).expect("QUERY_DEVICE");
    assert_ne!(guest.read(at, 16), [0xaa; 16]);
    assert_eq!(guest.read(at + 16, 48), [0xaa; 48]);
    for (at, status) in [(at + 4, Status::BadParam), (0, Status::BadAddress)] {
        let params = QueryParams::new(at, 16);
        assert_eq!(guest.command::<command::QueryDevice>(&params), Err((status, 0)));
        assert_eq!(guest.command::<command::QueryStats>(&params), Err((status, 0)));
    }
}

#[test]
fn absent_objects() {
    let guest = guest();
    for opcode in [
        Opcode::DestroyEq,
        Opcode::FreeContext,
        Opcode::AllocUar,
        Opcode::FreeUar,
        Opcode::AllocPd,
        Opcode::FreePd,
        Opcode::DeregMr,
        Opcode::DestroyCq,
        Opcode::DestroyQp,
    ] {
        for id in [77, u32::MAX] {
            assert_eq!(guest.on_object(opcode, id), Err((Status::NotFound, 0)), "{opcode:?}");
        }
    }
    assert_eq!(guest.query_qp(99).map(|_| ()), Err((Status::NotFound, 0)));
    assert_eq!(guest.on_object(Opcode::FreeUar, 0), Err((Status::Permission, 0)));
    assert_eq!(guest.on_object(Opcode::FreeContext, 0), Err((Status::Busy, 0)));
}

#[test]
fn objects_in_use_stay() {
    let guest = guest();
    let endpoint = Endpoint::new(&guest, Setup { in_device: true, ..Setup::default() });
    let busy = Err((Status::Busy, 0));
    let ends = [
        (Opcode::DestroyQp, endpoint.qpn),
        (Opcode::DestroyCq, endpoint.send_cq.cqn),
        (Opcode::DestroyCq, endpoint.recv_cq.cqn),
        (Opcode::DestroyEq, endpoint.eqn),
        (Opcode::DeregMr, endpoint.key),
        (Opcode::FreePd, endpoint.pdn),
        (Opcode::FreeUar, endpoint.uar),
        (Opcode::FreeContext, endpoint.context),
    ];
    // In the right order each can go, and what it used stays until then.
    for (at, (opcode, id)) in ends.iter().enumerate() {
        for (later, id) in &ends[at + 1..] {
            if !matches!(later, Opcode::DeregMr) && (*later, at) != (Opcode::DestroyEq, 3) {
                let freed_by_now = match later {
                    Opcode::DestroyCq => at >= 1,
                    Opcode::DestroyEq => at >= 3,
                    Opcode::FreePd => at >= 5,
                    Opcode::FreeUar => at >= 3,
                    _ => false,
                };
                if !freed_by_now {
                    assert_eq!(guest.on_object(*later, *id), busy, "{later:?} before {opcode:?}");
                }
            }
        }
        assert_eq!(guest.on_object(*opcode, *id), Ok(0), "{opcode:?}");
        assert_eq!(guest.on_object(*opcode, *id), Err((Status::NotFound, 0)));
    }
}

#[test]
fn objects_of_different_contexts_do_not_mix() {
    let guest = guest();
    let (a, b) = (Endpoint::new(&guest, Setup::default()), Endpoint::new(&guest, Setup::default()));
    let good = CreateQp {
        pdn: a.pdn.into(),
        send_cqn: a.send_cq.cqn.into(),
        recv_cqn: a.recv_cq.cqn.into(),
        uar: a.uar.into(),
        ..qp_params(&guest, false)
    };
    let permission = Err((Status::Permission, 0));
    for bad in [
        CreateQp { pdn: b.pdn.into(), ..good },
        CreateQp { send_cqn: b.send_cq.cqn.into(), ..good },
        CreateQp { recv_cqn: b.recv_cq.cqn.into(), ..good },
        CreateQp { uar: b.uar.into(), ..good },
        CreateQp { uar: 0.into(), ..good },
    ] {
        assert_eq!(guest.create_qp(&bad).map(|_| ()), permission);
    }
    assert!(guest.create_qp(&good).is_ok());
    // All of memory is for the kernel alone.
    let all = RegMr::all_memory(a.pdn, ALL);
    assert_eq!(guest.command::<command::RegMr>(&all).map(|_| ()), permission);
}

#[test]
fn a_doorbell_in_another_uar_has_no_effect() {
    let mut p = Pair::new();
    let other = context(&p.ga);
    let other = p.ga.on_object(Opcode::AllocUar, other).expect("UAR");
    let (own, slot) = (p.a.uar, p.a.slot);
    p.a.store_send(&p.ga, &Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
    p.a.uar = other;
    p.a.ring(&p.ga);
    p.settle();
    assert!(p.sent().is_none());
    assert_eq!(p.ga.stats().bad_doorbells.get(), 1);
    p.a.uar = own;
    p.a.ring(&p.ga);
    p.settle();
    assert!(p.sent().is_some());
    // The slot of a QP that has gone.
    assert!(p.ga.on_object(Opcode::DestroyQp, p.a.qpn).is_ok());
    for cq in [p.a.send_cq.cqn, p.a.recv_cq.cqn] {
        assert!(p.ga.on_object(Opcode::DestroyCq, cq).is_ok());
    }
    p.ga.ring(own, slot);
    p.settle();
    assert_eq!(p.ga.stats().bad_doorbells.get(), 2);
}

#[test]
fn queue_parameters_out_of_range() {
    let guest = guest();
    let e = Endpoint::new(&guest, Setup::default());
    let pages = Pages::new(guest.alloc(4096), 12, 0);
    let eq = |vector, log| {
        guest.command::<command::CreateEq>(&CreateEq::new(pages, vector, log)).map(|_| ())
    };
    let bad = |offset: usize| Err((Status::BadParam, offset as u32));
    assert_eq!(eq(0, 4), bad(offset_of!(CreateEq, vector)));
    assert_eq!(eq(pci::MSIX_VECTORS, 4), bad(offset_of!(CreateEq, vector)));
    assert_eq!(eq(1, 3), bad(offset_of!(CreateEq, log_size)));
    assert_eq!(eq(1, 17), bad(offset_of!(CreateEq, log_size)));
    let cq = |log, pages| {
        guest.command::<command::CreateCq>(&CreateCq::new(e.uar, e.eqn, log, pages)).map(|_| ())
    };
    assert_eq!(cq(21, pages), bad(offset_of!(CreateCq, log_size)));
    assert_eq!(cq(255, pages), bad(offset_of!(CreateCq, log_size)));
    for malformed in [
        Pages::new(pages.table.get(), 11, 0),
        Pages::new(pages.table.get(), 31, 0),
        Pages::new(pages.table.get(), 12, 3),
        Pages::new(pages.table.get() + 64, 12, 0),
    ] {
        assert_eq!(cq(4, malformed), bad(0));
    }
    assert_eq!(cq(4, Pages::new(8, 12, 1)), Err((Status::BadAddress, 0)));
    assert_eq!(cq(4, Pages::new(8, 12, 2)), Err((Status::BadAddress, 0)));
    let good = CreateQp {
        pdn: e.pdn.into(),
        send_cqn: e.send_cq.cqn.into(),
        recv_cqn: e.recv_cq.cqn.into(),
        uar: e.uar.into(),
        ..qp_params(&guest, false)
    };
    let qp = |params: CreateQp| guest.create_qp(&params).map(|_| ());
    for log in [16, 0xfe] {
        let offset = offset_of!(CreateQp, sq_log_size);
        assert_eq!(qp(CreateQp { sq_log_size: log, ..good }), bad(offset));
        let offset = offset_of!(CreateQp, rq_log_size);
        assert_eq!(qp(CreateQp { rq_log_size: log, ..good }), bad(offset));
    }
    for log in [5, 10] {
        let offset = offset_of!(CreateQp, sq_log_stride);
        assert_eq!(qp(CreateQp { sq_log_stride: log, ..good }), bad(offset));
    }
    for log in [4, 10] {
        let offset = offset_of!(CreateQp, rq_log_stride);
        assert_eq!(qp(CreateQp { rq_log_stride: log, ..good }), bad(offset));
    }
    assert_eq!(qp(CreateQp { flags: 8, ..good }), bad(offset_of!(CreateQp, flags)));
    assert_eq!(qp(CreateQp { qp_type: 5, ..good }), Err((Status::Unsupported, 0)));
    assert_eq!(qp(CreateQp { flags: 1, ..good }), bad(offset_of!(CreateQp, sq_table)));
    assert_eq!(qp(CreateQp { pdn: 999.into(), ..good }), Err((Status::NotFound, 0)));
    assert_eq!(qp(CreateQp { uar: 999.into(), ..good }), Err((Status::NotFound, 0)));
    assert_eq!(qp(CreateQp { send_cqn: 999.into(), ..good }), Err((Status::NotFound, 0)));
    let none = CreateQp { sq_log_size: NO_QUEUE, rq_log_size: NO_QUEUE, ..good };
    assert_eq!(qp(none), Ok(()));
}

#[test]
fn region_parameters_out_of_range() {
    let guest = guest();
    let pdn = guest.on_object(Opcode::AllocPd, 0).expect("PD");
    let at = guest.alloc(1 << 16);
    let reg = |params: RegMr| guest.command::<command::RegMr>(&params).map(|key| key.get());
    let good = RegMr::new(pdn, 0, at, 4096, Pages::new(at, 12, 0));
    let bad = |offset: usize| Err((Status::BadParam, offset as u32));
    assert!(reg(good).is_ok());
    for access in [2, 8, 10] {
        let offset = offset_of!(RegMr, access);
        assert_eq!(reg(RegMr { access: access.into(), ..good }), bad(offset));
    }
    // Hints are welcome.
    assert!(reg(RegMr { access: (1 << 20 | 1).into(), ..good }).is_ok());
    assert_eq!(reg(RegMr { flags: 4.into(), ..good }), bad(offset_of!(RegMr, flags)));
    assert_eq!(reg(RegMr { pdn: 999.into(), ..good }), Err((Status::NotFound, 0)));
    for length in [u64::MAX, (1 << 40) + 1] {
        let offset = offset_of!(RegMr, length);
        assert_eq!(reg(RegMr { length: length.into(), ..good }), bad(offset));
    }
    let wraps = RegMr { iova: (u64::MAX - 10).into(), ..good };
    assert_eq!(reg(wraps), bad(offset_of!(RegMr, length)));
    let unaligned = guest.alloc(4096);
    guest.write(unaligned, &(at + 8).to_le_bytes());
    let list = |table| RegMr { pages: Pages::new(table, 12, 1), ..good };
    assert_eq!(reg(list(unaligned)), bad(0));
    assert_eq!(reg(list(BASE + RAM_LEN)), Err((Status::BadAddress, 0)));
    let all = RegMr { flags: MrFlags::ALL_MEMORY.bits().into(), ..good };
    assert_eq!(reg(all), bad(offset_of!(RegMr, pages)));
}

#[test]
fn keys_change_with_each_use_of_an_index() {
    let guest = guest();
    let pdn = guest.on_object(Opcode::AllocPd, 0).expect("PD");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let key = guest.reg_flat(pdn, 0, BASE, 4096).expect("MR");
        assert!(seen.insert(key), "key {key:#x} was given before");
        assert!(guest.on_object(Opcode::DeregMr, key ^ 1).is_err());
        assert!(guest.on_object(Opcode::DeregMr, key).is_ok());
        assert_eq!(guest.on_object(Opcode::DeregMr, key), Err((Status::NotFound, 0)));
    }
}

#[test]
fn page_tables_of_all_levels_reach_the_same_memory() {
    let mut p = Pair::new();
    let (len, base) = (3 << 20, p.a.buffer);
    // Pages in reverse order, from a list and from chunks.
    let pages: Vec<u64> = (0..len / 4096).rev().map(|page| base + page * 4096).collect();
    let list = p.ga.alloc(pages.len() as u64 * 8);
    p.ga.write(list, pages.as_bytes());
    let chunks = p.ga.alloc(4096);
    for (at, part) in pages.chunks(512).enumerate() {
        let chunk = p.ga.alloc(4096);
        p.ga.write(chunk, part.as_bytes());
        p.ga.write(chunks + at as u64 * 8, &chunk.to_le_bytes());
    }
    for page in 0..len / 4096 {
        p.a.fill(&p.ga, page * 4096, &vec![page as u8; 4096]);
    }
    for (table, levels) in [(list, 1), (chunks, 2)] {
        let iova = 0x7000_0123;
        let length = len - 0x123;
        let params = RegMr::new(p.a.pdn, ALL, iova, length, Pages::new(table, 12, levels));
        let key = p.ga.command::<command::RegMr>(&params).expect("REG_MR").get();
        // The device has its own copy.
        p.ga.write(table, &[0xff; 8]);
        let sge = vrnic_abi::sq::Sge {
            addr: iova.into(),
            length: (length as u32).into(),
            lkey: key.into(),
        };
        let wr = Wr::new(vrnic_abi::sq::Opcode::Write, &[sge]).to(p.b.buffer, p.b.key);
        let cqe = p.complete(&wr);
        assert_eq!(status(&cqe), vrnic_abi::cq::Status::Success);
        let got = p.b.bytes(&p.gb, 0, length as usize);
        for (at, byte) in got.iter().enumerate() {
            let page = len / 4096 - 1 - (at as u64 + 0x123) / 4096;
            assert_eq!(*byte, page as u8, "byte {at} with {levels} levels");
        }
        p.b.fill(&p.gb, 0, &vec![0; length as usize]);
    }
}

#[test]
fn deregistered_memory_is_out_of_reach() {
    let mut p = Pair::new();
    let wr = Wr::new(vrnic_abi::sq::Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key);
    assert_eq!(status(&p.complete(&wr)), vrnic_abi::cq::Status::Success);
    assert!(p.gb.on_object(Opcode::DeregMr, p.b.key).is_ok());
    assert_eq!(status(&p.complete(&wr)), vrnic_abi::cq::Status::RemAccessErr);
}

#[test]
fn all_memory_is_addressed_by_guest_address() {
    let world = World::default();
    let guest = world.guest(1);
    let mut e = Endpoint::new(&guest, Setup { kernel: true, ..Setup::default() });
    e.connect(&guest, guest.adapter.mac(), e.qpn, |_| {});
    let all = RegMr::all_memory(e.pdn, ALL);
    let key = guest.command::<command::RegMr>(&all).expect("REG_MR").get();
    let (from, to) = (guest.alloc(4096), guest.alloc(4096));
    guest.write(from, b"somewhere");
    let sge = vrnic_abi::sq::Sge { addr: from.into(), length: 9.into(), lkey: key.into() };
    e.post_send(&guest, &Wr::new(vrnic_abi::sq::Opcode::Write, &[sge]).to(to, key));
    world.settle(&[&guest]);
    assert_eq!(guest.read(to, 9), b"somewhere");
    // Beyond memory it is like any memory that is not there.
    let sge = vrnic_abi::sq::Sge { addr: (u64::MAX - 9).into(), ..sge };
    e.post_send(&guest, &Wr::new(vrnic_abi::sq::Opcode::Write, &[sge]).to(to, key));
    world.settle(&[&guest]);
    assert!(e.send_cq.poll(&guest).is_some());
    let cqe = e.send_cq.poll(&guest).expect("completion");
    assert_eq!(status(&cqe), vrnic_abi::cq::Status::LocProtErr);
}

#[test]
fn device_memory_for_send_queues() {
    let guest = guest();
    let e = Endpoint::new(&guest, Setup { in_device: true, ..Setup::default() });
    let create = || {
        let params = CreateQp {
            pdn: e.pdn.into(),
            send_cqn: e.send_cq.cqn.into(),
            recv_cqn: e.recv_cq.cqn.into(),
            uar: e.uar.into(),
            sq_log_size: 15,
            sq_log_stride: 9,
            rq_log_size: NO_QUEUE,
            ..qp_params(&guest, true)
        };
        guest.create_qp(&params)
    };
    let mut offsets = Vec::new();
    let refused = loop {
        match create() {
            Ok((_, _, offset)) => offsets.push(offset),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, (Status::NoResource, 0));
    assert_eq!(offsets.len() as u64, uar::SQ_MEMORY_LEN / (1 << 24) - 1);
    assert!(offsets.iter().all(|offset| {
        *offset >= uar::SQ_MEMORY_OFFSET && offset % u64::from(uar::SQ_MEMORY_UNIT) == 0
    }));
}

#[test]
fn the_gid_table() {
    let guest = guest();
    let set = |params: &SetGid| guest.command::<command::SetGid>(params);
    let max = guest.caps().max_gid.get() as u16;
    assert_eq!(set(&SetGid::set(max - 1, [7; 16], [1; 6], 0xffff)), Ok(()));
    assert_eq!(set(&SetGid::set(max, [7; 16], [1; 6], 0xffff)), Err((Status::BadParam, 0)));
    assert_eq!(set(&SetGid { valid: 2, ..SetGid::clear(0) }), Err((Status::BadParam, 4)));
    assert_eq!(set(&SetGid::clear(max - 1)), Ok(()));
}

#[test]
fn bad_rings_are_fatal_until_reset() {
    let world = World::default();
    let mut guest = world.guest(1);
    let cases: [(u32, u32, regs::FatalCode); 6] = [
        (regs::ADMIN_LOG_SIZE, 1, regs::FatalCode::BadRings),
        (regs::ADMIN_LOG_SIZE, 11, regs::FatalCode::BadRings),
        (regs::ASYNC_EQ_LOG_SIZE, 3, regs::FatalCode::BadRings),
        (regs::ADMIN_SQ_LO, 0x123, regs::FatalCode::BadRings),
        (regs::ADMIN_CQ_HI, 0xffff_ffff, regs::FatalCode::RingMemory),
        (regs::ASYNC_EQ_LO, 0x1000, regs::FatalCode::RingMemory),
    ];
    for (register, value, code) in cases {
        guest.set(regs::CONTROL, regs::Control::RESET.bits());
        guest.set_address(regs::ADMIN_SQ_LO, BASE);
        guest.set_address(regs::ADMIN_CQ_LO, BASE);
        guest.set_address(regs::ASYNC_EQ_LO, BASE);
        guest.set(regs::ADMIN_LOG_SIZE, 4);
        guest.set(regs::ASYNC_EQ_LOG_SIZE, 4);
        guest.set(register, value);
        guest.set(regs::CONTROL, regs::Control::ENABLE.bits());
        let status = guest.status();
        assert!(status.contains(regs::Status::FATAL) && !status.contains(regs::Status::ENABLED));
        assert_eq!(guest.adapter.read_register(regs::FATAL_CODE), code as u32, "{register:#x}");
    }
    guest.set(regs::CONTROL, regs::Control::RESET.bits());
    assert_eq!(guest.status(), regs::Status::LINK_UP);
    guest.bring_up();
    assert!(guest.on_object(Opcode::AllocPd, 0).is_ok());
}

#[test]
fn an_admin_index_beyond_the_ring_is_fatal() {
    let guest = guest();
    guest.set(regs::ADMIN_SQ_PI, 17);
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
    p.b.fill(&p.gb, 0, &[7; 64]);
    p.gb.set(regs::ADMIN_SQ_PI, 999);
    assert!(p.gb.status().contains(regs::Status::FATAL));
    // What the peer wants of it.
    let wr = write(&p);
    p.a.post_send(&p.ga, &wr);
    // What was posted to it.
    let wr = Wr::new(vrnic_abi::sq::Opcode::Write, &[p.b.sge(0, 64)]).to(p.a.buffer, p.a.key);
    p.a.fill(&p.ga, 0, &[9; 64]);
    p.b.post_send(&p.gb, &wr);
    for _ in 0..20 {
        p.settle();
        p.world.advance(4096 << 14);
    }
    assert_eq!(p.a.state(&p.ga), State::Err);
    assert_eq!(p.a.bytes(&p.ga, 0, 64), [9; 64]);
    assert_eq!(p.b.bytes(&p.gb, 0, 64), [7; 64]);
}

#[test]
fn many_commands_in_one_go() {
    let world = World::default();
    let mut guest = world.guest(1);
    guest.set(regs::CONTROL, regs::Control::RESET.bits());
    guest.bring_up();
    let (sq, cq) = guest.admin_rings();
    for n in 0..16u32 {
        let command = vrnic_abi::admin::Submission {
            opcode: (Opcode::AllocPd as u16).into(),
            flags: 0.into(),
            id: (n * 3).into(),
            params: [0; 56],
        };
        guest.write(sq + u64::from(n) * 64, command.as_bytes());
    }
    guest.set(regs::ADMIN_SQ_PI, 16);
    let mut pds = std::collections::HashSet::new();
    for n in 0..16 {
        let completion: vrnic_abi::admin::Completion = guest.fetch(cq + n * 64);
        assert_eq!(completion.stamp.get(), stamp(n as u32));
        assert_eq!(completion.id.get(), n as u32 * 3);
        assert!(pds.insert(completion.result));
    }
    assert!(guest.host.interrupts(pci::VECTOR_ASYNC) > 0);
}

#[test]
fn a_reset_from_any_state_ends_all() {
    for fatal in [false, true] {
        let mut p = Pair::new();
        for n in 0..4 {
            p.a.post_send(&p.ga, &Wr::new(vrnic_abi::sq::Opcode::Send, &[]).id(n));
        }
        p.ga.adapter.poll(0);
        if fatal {
            p.ga.set(regs::ADMIN_SQ_PI, 999);
        }
        p.ga.set(regs::CONTROL, regs::Control::RESET.bits());
        assert_eq!(p.ga.status(), regs::Status::LINK_UP);
        let at = crate::common::driver::slot_offset(p.a.uar, p.a.slot);
        assert_eq!(p.ga.host.bar_load64(at), 0, "doorbell memory is zeroed");
        p.ga.host.restrict(BASE, RAM_LEN, Bar::Unmapped);
        p.world.advance(1 << 40);
        p.settle();
        p.ga.host.unrestrict();
        p.ga.bring_up();
        assert_eq!(p.ga.stats().completed_cmds.get(), 1);
        assert_eq!(p.ga.query_qp(p.a.qpn).map(|_| ()), Err((Status::NotFound, 0)));
        // The peer finds out when it wants something.
        p.b.post_send(&p.gb, &Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
        for _ in 0..5 {
            p.settle();
            p.world.advance(4096 << 14);
        }
        assert_eq!(p.b.state(&p.gb), State::Err);
        // A new connection works.
        p.a = Endpoint::new(&p.ga, Setup::default());
        p.b = Endpoint::new(&p.gb, Setup::default());
        p.a.connect(&p.ga, p.gb.adapter.mac(), p.b.qpn, |_| {});
        p.b.connect(&p.gb, p.ga.adapter.mac(), p.a.qpn, |_| {});
        let cqe = p.complete(&Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
        assert_eq!(status(&cqe), vrnic_abi::cq::Status::Success);
    }
}

#[test]
fn registers_that_are_not_there() {
    let guest = guest();
    for offset in (0x70..0x2000).step_by(4) {
        assert_eq!(guest.adapter.read_register(offset), 0);
    }
    assert_eq!(guest.adapter.read_register(regs::MAGIC), regs::MAGIC_VALUE);
    assert_eq!(guest.adapter.read_register(regs::MAC_LO), u32::from_le_bytes([2, 0, 0, 0]));
    assert_eq!(guest.adapter.read_register(regs::MAC_HI), 0x100);
    for offset in [0x008, 0x070, 0xffc, 0x3000, u32::MAX] {
        assert!(!guest.adapter.write_register(offset, 1));
    }
    let wakes = guest.host.wakes();
    assert!(!guest.adapter.write_register(regs::KICK + 8, 0));
    assert_eq!((guest.host.wakes(), guest.stats().kicks.get()), (wakes + 1, 1));
}

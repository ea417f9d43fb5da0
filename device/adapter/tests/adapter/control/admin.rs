//! Admin commands: each status, owners of objects, limits, creation and destruction of objects.
//!
//! Shows: resources

use std::mem::offset_of;

use vrnic_abi::admin::{
    CreateCq, CreateEq, CreateQp, NO_QUEUE, Opcode, Pages, QueryParams, RegMr, SetGid, Status,
    command,
};
use vrnic_abi::{pci, regs, uar};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::memory::BASE;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::world::{Pair, guest};

fn context(guest: &Guest) -> u32 {
    guest.command::<command::AllocContext>(&()).expect("context").get()
}

#[test]
fn unknown_opcodes_and_flags() {
    let guest = guest();
    let before = guest.stats().completed_cmds.get();
    for opcode in [0, 1000, 0xffff] {
        let completion = guest.raw_command(opcode, 0, [0; 56]);
        assert_eq!(completion.status.get(), Status::BadOpcode as u16);
        assert_eq!(completion.result, [0; 48]);
    }
    let completion = guest.raw_command(Opcode::AllocContext as u16, 1, [0; 56]);
    assert_eq!(completion.status.get(), Status::BadParam as u16);
    let stats = guest.stats();
    assert_eq!((stats.completed_cmds.get() - before, stats.cmds_err.get()), (5, 4));
}

/// A command in which a reserved byte is not 0 is refused, and the answer names its offset.
#[test]
fn reserved_bytes() {
    let guest = guest();
    let reserved: [(Opcode, std::ops::Range<usize>); 41] = [
        (Opcode::QueryDevice, 12..56),
        (Opcode::QueryStats, 12..56),
        (Opcode::SwitchCounter, 8..56),
        (Opcode::QueryOptional, 12..56),
        (Opcode::SetGid, 5..8),
        (Opcode::SetGid, 30..56),
        (Opcode::MoveConnection, 16..56),
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
        (Opcode::RevokeMr, 4..56),
        (Opcode::CreateCq, 26..28),
        (Opcode::CreateCq, 32..56),
        (Opcode::DestroyCq, 4..56),
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
        (Opcode::ResizeSrq, 21..56),
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

/// Shows: resources
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
    assert_eq!(none, Err(Refused(Status::NoResource, 0)));
}

#[test]
fn short_query_buffers_get_the_beginning() {
    let guest = guest();
    let at = guest.ram().alloc(4096);
    guest.ram().write(at, &[0xaa; 64]);
    guest.command::<command::QueryDevice>(&QueryParams::new(at, 16)).expect("QUERY_DEVICE");
    assert_ne!(guest.ram().read(at, 16), [0xaa; 16]);
    assert_eq!(guest.ram().read(at + 16, 48), [0xaa; 48]);
    for (at, status) in [(at + 4, Status::BadParam), (0, Status::BadAddress)] {
        let params = QueryParams::new(at, 16);
        assert_eq!(guest.command::<command::QueryDevice>(&params), Err(Refused(status, 0)));
        assert_eq!(guest.command::<command::QueryStats>(&params), Err(Refused(status, 0)));
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
        Opcode::RevokeMr,
        Opcode::DestroyCq,
        Opcode::DestroyQp,
    ] {
        for id in [77, u32::MAX] {
            assert_eq!(
                guest.on_object(opcode, id),
                Err(Refused(Status::NotFound, 0)),
                "{opcode:?}"
            );
        }
    }
    assert_eq!(guest.query_qp(99).map(|_| ()), Err(Refused(Status::NotFound, 0)));
    assert_eq!(guest.on_object(Opcode::FreeUar, 0), Err(Refused(Status::Permission, 0)));
    assert_eq!(guest.on_object(Opcode::FreeContext, 0), Err(Refused(Status::Busy, 0)));
}

#[test]
fn objects_in_use_stay() {
    let guest = guest();
    let endpoint = Endpoint::new(&guest, Setup { in_device: true, ..Setup::default() });
    let busy = Err(Refused(Status::Busy, 0));
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
        assert_eq!(guest.on_object(*opcode, *id), Err(Refused(Status::NotFound, 0)));
    }
}

#[test]
fn objects_of_different_contexts_do_not_mix() {
    let guest = guest();
    let (a, b) = (Endpoint::new(&guest, Setup::default()), Endpoint::new(&guest, Setup::default()));
    let good = a.params();
    let permission = Err(Refused(Status::Permission, 0));
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
    // Only the kernel may register all of memory.
    let all = RegMr::all_memory(a.pdn, ALL);
    assert_eq!(guest.command::<command::RegMr>(&all).map(|_| ()), permission);
}

#[test]
fn a_doorbell_in_another_uar_has_no_effect() {
    let mut p = Pair::new();
    let other = context(&p.ga);
    let other = p.ga.on_object(Opcode::AllocUar, other).expect("UAR");
    let (own, slot) = (p.a.uar, p.a.slot);
    p.a.store_send(&Wr::new(vrnic_abi::sq::Opcode::Write, &[]));
    p.a.uar = other;
    p.a.ring();
    p.settle();
    assert!(p.sent().is_none());
    assert_eq!(p.ga.stats().bad_doorbells.get(), 1);
    p.a.uar = own;
    p.a.ring();
    p.settle();
    assert!(p.sent().is_some());
    // The slot of a QP that was destroyed.
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
    let pages = Pages::new(guest.ram().alloc(4096), 12, 0);
    let eq = |vector, log| {
        guest.command::<command::CreateEq>(&CreateEq::new(pages, vector, log)).map(|_| ())
    };
    let bad = |offset: usize| Err(Refused(Status::BadParam, offset as u32));
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
        Pages::new(pages.table, 11, 0),
        Pages::new(pages.table, 31, 0),
        Pages::new(pages.table, 12, 3),
        Pages::new(pages.table.get() + 64, 12, 0),
    ] {
        assert_eq!(cq(4, malformed), bad(0));
    }
    assert_eq!(cq(4, Pages::new(8, 12, 1)), Err(Refused(Status::BadAddress, 0)));
    assert_eq!(cq(4, Pages::new(8, 12, 2)), Err(Refused(Status::BadAddress, 0)));
    let good = e.params();
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
    assert_eq!(qp(CreateQp { qp_type: 5, ..good }), Err(Refused(Status::Unsupported, 0)));
    assert_eq!(qp(CreateQp { flags: 1, ..good }), bad(offset_of!(CreateQp, sq_table)));
    assert_eq!(qp(CreateQp { pdn: 999.into(), ..good }), Err(Refused(Status::NotFound, 0)));
    assert_eq!(qp(CreateQp { uar: 999.into(), ..good }), Err(Refused(Status::NotFound, 0)));
    assert_eq!(qp(CreateQp { send_cqn: 999.into(), ..good }), Err(Refused(Status::NotFound, 0)));
    let none = CreateQp { sq_log_size: NO_QUEUE, rq_log_size: NO_QUEUE, ..good };
    assert_eq!(qp(none), Ok(()));
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
            ..Setup { in_device: true, ..Setup::default() }.qp(&guest)
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
    assert_eq!(refused, Refused(Status::NoResource, 0));
    assert_eq!(offsets.len() as u64, uar::SQ_MEMORY_LEN / (1 << 24) - 1);
    assert!(offsets.iter().all(|offset| {
        *offset >= uar::SQ_MEMORY_OFFSET && offset % u64::from(uar::SQ_MEMORY_UNIT) == 0
    }));
}

/// Shows: network: the table of GIDs
#[test]
fn the_gid_table() {
    let guest = guest();
    let set = |params: &SetGid| guest.command::<command::SetGid>(params);
    let max = guest.caps().max_gid.get() as u16;
    assert_eq!(set(&SetGid::set(max - 1, [7; 16], [2; 6], 0xffff)), Ok(()));
    assert_eq!(set(&SetGid::set(max, [7; 16], [2; 6], 0xffff)), Err(Refused(Status::BadParam, 0)));
    // No station has the address of a group, or none.
    for mac in [[1; 6], [0; 6]] {
        assert_eq!(set(&SetGid::set(0, [7; 16], mac, 0xffff)), Err(Refused(Status::BadParam, 24)));
    }
    assert_eq!(set(&SetGid { valid: 2, ..SetGid::clear(0) }), Err(Refused(Status::BadParam, 4)));
    assert_eq!(set(&SetGid::clear(max - 1)), Ok(()));
}

#[test]
fn many_commands_in_one_go() {
    let guest = guest();
    let mut pds = std::collections::HashSet::new();
    guest.with_admin(|queue| {
        let ids = [(); 64].map(|()| queue.post(Opcode::AllocPd as u16, 0, [0; 56]));
        guest.set_register(regs::ADMIN_SQ_PI, queue.producer());
        for id in ids {
            let completion = queue.poll().expect("completion");
            assert_eq!((completion.id.get(), completion.status.get()), (id, 0));
            assert!(pds.insert(completion.result));
        }
    });
    assert!(guest.host.interrupts(pci::VECTOR_ASYNC) > 0);
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

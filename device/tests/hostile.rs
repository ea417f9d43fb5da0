//! A hostile or mistaken guest gets a status or a logged line. Nothing panics, and no other
//! function notices.

mod common;

use std::sync::atomic::Ordering;

use common::{connected_pair, pair, pattern, start, still_works};
use vrnic_abi::admin::{
    self, CreateCq, CreateQp, Opcode as Admin, Pages, QueryParams, RegMr, Status as AdminStatus,
    command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, AttrMask, State};
use vrnic_abi::regs::{self, FatalCode};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::CompletionQueue;
use vrnic_testdriver::endpoint::{Endpoint, EndpointSetup};
use vrnic_testdriver::guest::Guest;
use vrnic_testdriver::qp::{QpSetup, QueuePair, Send, connected, sge};
use vrnic_testdriver::wait;
use zerocopy::little_endian::U16;

/// An address that no guest of these tests has.
const NOWHERE: u64 = 0xdead_0000_0000;

/// The device's own status of a refused command.
fn status<T>(result: anyhow::Result<T>) -> AdminStatus {
    let error = result.err().expect("the command was accepted");
    let refused = error.downcast_ref::<Refused>().unwrap_or_else(|| panic!("{error:#}"));
    refused.status
}

#[test]
fn malformed_commands_get_a_status() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let guest = &guests[0];
    let raw = |opcode: u16, params: &[u8; 56]| {
        let completion = guest.command_raw(opcode, params).expect("a completion");
        AdminStatus::from_raw(completion.status.get()).expect("a status")
    };
    for opcode in (0..64).chain([0x7fff, 0xffff]) {
        let (zeroes, ones) = (raw(opcode, &[0; 56]), raw(opcode, &[0xff; 56]));
        assert_ne!(ones, AdminStatus::Ok, "opcode {opcode}, all ones");
        let unknown = Admin::from_raw(opcode).is_none();
        assert_eq!(zeroes == AdminStatus::BadOpcode, unknown, "opcode {opcode}");
    }
    let query = |params| status(guest.command::<command::QueryDevice>(&params));
    let buffer = guest.ram.alloc(4096).expect("memory");
    assert_eq!(query(QueryParams::new(NOWHERE, 136)), AdminStatus::BadAddress);
    assert_eq!(query(QueryParams::new(buffer + 4, 136)), AdminStatus::BadParam);
    assert_eq!(query(QueryParams::new(u64::MAX - 7, 136)), AdminStatus::BadAddress);
    let reg = |params: RegMr| status(guest.reg_mr(&params));
    let pd = guest.alloc_pd(0).expect("PD");
    let flat = |addr, shift, levels| Pages::new(addr, shift, levels);
    assert_eq!(reg(RegMr::new(pd, 1, buffer, 4096, flat(buffer, 11, 0))), AdminStatus::BadParam);
    assert_eq!(reg(RegMr::new(pd, 1, buffer, 4096, flat(buffer, 12, 3))), AdminStatus::BadParam);
    assert_eq!(reg(RegMr::new(pd, 1, buffer, 4096, flat(NOWHERE, 12, 1))), AdminStatus::BadAddress);
    assert_ne!(reg(RegMr::new(pd, 1, u64::MAX - 5, 4096, flat(buffer, 12, 0))), AdminStatus::Ok);
    assert_eq!(
        reg(RegMr::new(pd ^ 0x55, 1, buffer, 64, flat(buffer, 12, 0))),
        AdminStatus::NotFound
    );
    // An absurd length with a page list must not take memory by its number.
    let huge = RegMr::new(pd, 1, 0, 1 << 62, flat(buffer, 12, 1));
    assert_ne!(reg(huge), AdminStatus::Ok);
    still_alive(&mut daemon, guest);
}

fn still_alive(daemon: &mut vrnic_testdriver::daemon::Daemon, guest: &Guest) {
    assert!(guest.caps().expect("QUERY_DEVICE").max_qp.get() > 0);
    daemon.check().expect("healthy");
}

#[test]
fn objects_of_other_contexts_and_destroyed_ones_are_refused() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [a, _b] = connected_pair(&guests);
    let guest = &guests[0];
    let other = guest.alloc_context().expect("context");
    let other_uar = guest.alloc_uar(other).expect("UAR");
    let other_pd = guest.alloc_pd(other).expect("PD");
    let mixed = |pdn, cqn, uar| {
        let setup = QpSetup {
            pdn,
            send_cqn: cqn,
            recv_cqn: cqn,
            uar,
            log_size: 4,
            log_stride: 6,
            in_device: false,
        };
        status(QueuePair::create(guest, &setup))
    };
    assert_eq!(mixed(other_pd, a.send_cq.cqn, a.uar), AdminStatus::Permission);
    assert_eq!(mixed(a.pdn, a.send_cq.cqn, other_uar), AdminStatus::Permission);
    assert_eq!(mixed(a.pdn, a.send_cq.cqn ^ 0x3f00, a.uar), AdminStatus::NotFound);
    // A region of all memory is the kernel's alone.
    assert_eq!(status(guest.reg_mr(&RegMr::all_memory(a.pdn, 1))), AdminStatus::Permission);
    // In use, then gone.
    assert_eq!(status(guest.destroy(Admin::DestroyCq, a.send_cq.cqn)), AdminStatus::Busy);
    assert_eq!(status(guest.destroy(Admin::FreePd, a.pdn)), AdminStatus::Busy);
    assert_eq!(status(guest.destroy(Admin::FreeContext, a.context)), AdminStatus::Busy);
    guest.destroy(Admin::DestroyQp, a.qp.qpn).expect("destroy");
    assert_eq!(status(guest.destroy(Admin::DestroyQp, a.qp.qpn)), AdminStatus::NotFound);
    assert_eq!(status(guest.query_qp(a.qp.qpn)), AdminStatus::NotFound);
    let attr = connected([0; 6], 0);
    let modify = guest.modify_qp(a.qp.qpn, AttrMask::STATE, &attr);
    assert_eq!(status(modify), AdminStatus::NotFound);
    guest.destroy(Admin::DeregMr, a.key).expect("deregister");
    assert_eq!(status(guest.destroy(Admin::DeregMr, a.key)), AdminStatus::NotFound);
    still_alive(&mut daemon, guest);
}

#[test]
fn doorbells_of_nobody_count_and_do_nothing() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = connected_pair(&guests);
    let guest = &guests[0];
    let before = guest.stats().expect("QUERY_STATS").bad_doorbells.get();
    // A slot far from any in use, in a UAR of this guest.
    guest.ring(a.uar, 900).expect("ring");
    wait::until("count of bad doorbells", || {
        Ok((guest.stats()?.bad_doorbells.get() > before).then_some(()))
    })
    .expect("counted");
    // UARs that nobody has, and every bit of one's own.
    guest.ring(999, 16).expect("ring");
    for slot in (16..1024).step_by(16) {
        guest.ring(a.uar, slot).expect("ring");
    }
    // The slot of a destroyed QP.
    let setup = EndpointSetup::default();
    let gone = Endpoint::new(guest, &setup).expect("endpoint");
    guest.destroy(Admin::DestroyQp, gone.qp.qpn).expect("destroy");
    gone.qp.ring_at(guest, 5).expect("ring");
    // A QP's index rung through the page of another context.
    let word = Guest::slot_offset(gone.uar, a.qp.slot);
    guest.bar().word32(word).expect("word").store(1, Ordering::Release).expect("writable");
    guest.ring(gone.uar, a.qp.slot).expect("ring");
    assert!(a.send_cq.poll(guest).expect("poll").is_none());
    still_works(&mut a, &b);
    daemon.check().expect("healthy");
}

#[test]
fn a_producer_index_beyond_the_ring_fails_the_qp() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [a, _b] = connected_pair(&guests);
    let [mut c, d] = connected_pair(&guests);
    a.qp.ring_at(a.guest, 1 << 20).expect("ring");
    let event = a.guest.events.lock().wait(a.guest).expect("event");
    assert_eq!(event, (Kind::QpFatal, a.qp.qpn));
    assert_eq!(a.qp.state(a.guest).expect("state"), State::Err);
    still_works(&mut c, &d);
    daemon.check().expect("healthy");
}

/// Each bad work request gets its completion status, and its QP ends in the error state.
#[test]
fn bad_work_requests_complete_with_their_status() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    type Make = fn(&Endpoint<'_>, &Endpoint<'_>) -> Send;
    let cases: [(&str, Make, Status); 12] = [
        ("opcode", |a, b| good(a, b).edit(|head| head.opcode = 99), Status::LocQpOpErr),
        ("count", |a, b| good(a, b).edit(|head| head.count = U16::new(17)), Status::LocQpOpErr),
        (
            "inline length",
            |a, b| {
                good(a, b).edit(|head| {
                    head.flags |= Flags::INLINE.bits();
                    head.count = U16::new(u16::MAX);
                })
            },
            Status::LocQpOpErr,
        ),
        (
            "message length",
            |a, b| write(b).sges(&[a.sge(0, u32::MAX), a.sge(0, u32::MAX)]),
            Status::LocLenErr,
        ),
        ("lkey", |a, b| write(b).sges(&[sge(a.buffer, 8, a.key ^ 0x100)]), Status::LocProtErr),
        ("instance", |a, b| write(b).sges(&[sge(a.buffer, 8, a.key ^ 1)]), Status::LocProtErr),
        ("range", |a, b| write(b).sges(&[a.sge((1 << 20) - 4, 8)]), Status::LocProtErr),
        ("wrap", |a, b| write(b).sges(&[sge(u64::MAX - 3, 8, a.key)]), Status::LocProtErr),
        ("rkey", |a, b| good(a, b).remote(b.buffer, b.key ^ 0x200), Status::RemAccessErr),
        (
            "remote range",
            |a, b| good(a, b).remote(b.buffer + (1 << 20), b.key),
            Status::RemAccessErr,
        ),
        ("remote wrap", |a, b| good(a, b).remote(u64::MAX - 1, b.key), Status::RemAccessErr),
        (
            "atomic alignment",
            |a, b| {
                let add = Send::new(Opcode::FetchAdd, 1).operands(1, 0);
                add.sges(&[a.sge(0, 8)]).remote(b.buffer + 4, b.key)
            },
            Status::RemInvReqErr,
        ),
    ];
    let [mut c, d] = connected_pair(&guests);
    for (name, make, expected) in cases {
        let [mut a, b] = connected_pair(&guests);
        let wr = make(&a, &b);
        a.run_expecting(&wr, 1, expected).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(a.qp.state(a.guest).expect("state"), State::Err, "{name}");
        // What comes after is flushed.
        let after = good(&a, &b).edit(|head| head.wr_id = 2.into());
        a.run_expecting(&after, 2, Status::WrFlushErr).unwrap_or_else(|e| panic!("{name}: {e:#}"));
        still_works(&mut c, &d);
    }
    daemon.check().expect("healthy");
}

fn write(to: &Endpoint<'_>) -> Send {
    Send::new(Opcode::Write, 1).remote(to.buffer, to.key)
}

fn good(from: &Endpoint<'_>, to: &Endpoint<'_>) -> Send {
    write(to).sges(&[from.sge(0, 8)])
}

#[test]
fn a_queue_that_overflows_fails_its_qps_alone() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let setup = EndpointSetup { log_cqes: 2, ..EndpointSetup::default() };
    let [mut a, b] = guests.each_ref().map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
    Endpoint::connect(&a, &b).expect("connect");
    let [mut c, d] = connected_pair(&guests);
    for _ in 0..8 {
        let wr = good(&a, &b);
        a.qp.post_send(a.guest, &wr).expect("post");
    }
    let (kind, id) = a.guest.events.lock().wait(a.guest).expect("event");
    assert_eq!((kind, id), (Kind::CqError, a.send_cq.cqn));
    wait::until("error state", || Ok((a.qp.state(a.guest)? == State::Err).then_some(())))
        .expect("error");
    // The four entries that fit are whole.
    for _ in 0..4 {
        a.send_cq.expect(a.guest, 1, Status::Success).expect("completion");
    }
    assert!(a.send_cq.poll(a.guest).expect("poll").is_none());
    still_works(&mut c, &d);
    daemon.check().expect("healthy");
}

#[test]
fn memory_that_is_not_there_fails_the_operation() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = connected_pair(&guests);
    let [mut c, d] = connected_pair(&guests);
    let [mut e, f] = connected_pair(&guests);
    // A region may name memory that the VMM has not mapped; using it is what fails.
    let access = (Access::LOCAL_WRITE | Access::REMOTE_WRITE).bits();
    let local = a.guest.reg_flat(a.pdn, access, NOWHERE, 4096).expect("region");
    let wr = write(&b).sges(&[sge(NOWHERE, 64, local)]);
    let cqe = a.run(&wr).expect("completion");
    assert!(
        [Status::LocProtErr as u8, Status::LocAccessErr as u8].contains(&cqe.status),
        "{cqe:?}"
    );
    let remote = d.guest.reg_flat(d.pdn, access, NOWHERE, 4096).expect("region");
    let wr = Send::new(Opcode::Write, 1).sges(&[c.sge(0, 64)]).remote(NOWHERE, remote);
    let cqe = c.run(&wr).expect("completion");
    assert!([Status::RemOpErr as u8, Status::RemAccessErr as u8].contains(&cqe.status), "{cqe:?}");
    still_works(&mut e, &f);
    daemon.check().expect("healthy");
}

#[test]
fn rings_in_memory_that_is_not_there_are_refused_or_fatal() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let guest = &guests[0];
    let [a, b] = connected_pair(&guests);
    // Memory may come and go: a CQ whose memory is not there fails when it is used.
    let pages = Pages::new(NOWHERE, 12, 0);
    let (cqn, _) = guest.create_cq(&CreateCq::new(a.uar, a.eqn, 4, pages)).expect("CQ");
    let setup = QpSetup {
        pdn: a.pdn,
        send_cqn: cqn,
        recv_cqn: cqn,
        uar: a.uar,
        log_size: 4,
        log_stride: 6,
        in_device: false,
    };
    let mut lost = QueuePair::create(guest, &setup).expect("QP");
    lost.connect(guest, guests[1].mac, b.qp.qpn, |_| {}).expect("connect");
    b.qp.connect(b.guest, guest.mac, lost.qpn, |_| {}).expect_err("the peer is connected already");
    lost.post_send(guest, &good(&a, &b)).expect("post");
    let event = guest.events.lock().wait(guest).expect("event");
    assert_eq!(event, (Kind::CqError, cqn));
    let lists = guest.create_cq(&CreateCq::new(a.uar, a.eqn, 4, Pages::new(NOWHERE, 12, 1)));
    assert_eq!(status(lists), AdminStatus::BadAddress);
    let qp = CreateQp {
        qp_type: vrnic_abi::qp::Type::Rc as u8,
        sq_log_size: 40,
        sq_page_shift: 12,
        rq_log_size: admin::NO_QUEUE,
        pdn: a.pdn.into(),
        send_cqn: a.send_cq.cqn.into(),
        recv_cqn: a.recv_cq.cqn.into(),
        uar: a.uar.into(),
        ..CreateQp::default()
    };
    assert_eq!(status(guest.create_qp(&qp)), AdminStatus::BadParam);
    // The admin rings themselves.
    guest.reset().expect("reset");
    guest.write_address(regs::ADMIN_SQ_LO, NOWHERE).expect("register");
    guest.write_address(regs::ADMIN_CQ_LO, NOWHERE).expect("register");
    guest.set_register(regs::ADMIN_LOG_SIZE, 6).expect("register");
    guest.write_address(regs::ASYNC_EQ_LO, NOWHERE).expect("register");
    guest.set_register(regs::ASYNC_EQ_LOG_SIZE, 6).expect("register");
    guest.set_register(regs::CONTROL, regs::Control::ENABLE.bits()).expect("register");
    guest.wait_status("FATAL", |status| status.contains(regs::Status::FATAL)).expect("fatal");
    let code = guest.register(regs::FATAL_CODE).expect("code");
    assert!([FatalCode::RingMemory as u32, FatalCode::BadRings as u32].contains(&code), "{code}");
    // A reset mends it.
    guest.bring_up().expect("bring-up");
    still_alive(&mut daemon, guest);
}

#[test]
fn an_admin_index_beyond_the_ring_is_fatal_until_a_reset() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut c, d] = {
        let setup = EndpointSetup::default();
        let ends = [0, 1].map(|_| Endpoint::new(&guests[1], &setup).expect("endpoint"));
        Endpoint::connect(&ends[0], &ends[1]).expect("connect");
        ends
    };
    let guest = &guests[0];
    guest.set_register(regs::ADMIN_SQ_PI, 5000).expect("register");
    guest.wait_status("FATAL", |status| status.contains(regs::Status::FATAL)).expect("fatal");
    assert_eq!(guest.register(regs::FATAL_CODE).expect("code"), FatalCode::AdminIndex as u32);
    still_works(&mut c, &d);
    guest.bring_up().expect("bring-up");
    still_alive(&mut daemon, guest);
}

#[test]
fn garbage_in_the_admin_ring_is_answered() {
    let mut daemon = start(1);
    let guest = daemon.ready_guest(0).expect("bring-up");
    let seeds = 0..200usize;
    for seed in seeds {
        let bytes = pattern(64, seed);
        guest
            .with_admin(|queue| {
                queue.post_raw(&guest.ram, &bytes)?;
                guest.set_register(regs::ADMIN_SQ_PI, queue.producer())?;
                wait::until("completion", || queue.poll(&guest.ram))
            })
            .expect("a completion");
    }
    still_alive(&mut daemon, &guest);
}

#[test]
fn many_commands_may_be_outstanding() {
    let daemon = start(1);
    let guest = daemon.ready_guest(0).expect("bring-up");
    let params = [0; admin::PARAMS_LEN];
    guest
        .with_admin(|queue| {
            for _ in 0..64 {
                queue.post(&guest.ram, Admin::AllocPd as u16, &params)?;
            }
            guest.set_register(regs::ADMIN_SQ_PI, queue.producer())?;
            let mut ids = std::collections::HashSet::new();
            for _ in 0..64 {
                let completion = wait::until("completion", || queue.poll(&guest.ram))?;
                anyhow::ensure!(completion.status.get() == 0, "refused");
                ids.insert(completion.id.get());
            }
            anyhow::ensure!(ids.len() == 64, "a command was answered twice");
            Ok(())
        })
        .expect("64 PDs");
    guest.wait_interrupt(0).expect("interrupt");
}

#[test]
fn registers_take_whole_words_alone() {
    let mut daemon = start(1);
    let guest = daemon.ready_guest(0).expect("bring-up");
    for (offset, len) in [(0u64, 8usize), (1, 4), (2, 2), (0x1000, 8), (0x1ffd, 3), (12, 1)] {
        guest.with_client(|client| {
            client.region_write(0, offset, &vec![1; len]).expect("write");
            let mut bytes = vec![0; len];
            client.region_read(0, offset, &mut bytes).expect("read");
            assert!(bytes.iter().all(|byte| *byte == 0xff), "{offset:#x}");
        });
    }
    // Registers that do not exist.
    for offset in [0x100, 0xffc] {
        guest.set_register(offset, 7).expect("write");
        assert_eq!(guest.register(offset).expect("read"), 0);
    }
    still_alive(&mut daemon, &guest);
}

/// Memory of all ones where a work request should be, in both kinds of queue.
#[test]
fn garbage_in_a_send_queue_harms_nobody() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut c, d] = connected_pair(&guests);
    for in_device in [false, true] {
        for seed in 0..20usize {
            let setup = EndpointSetup { in_device, ..EndpointSetup::default() };
            let [mut a, b] =
                guests.each_ref().map(|guest| Endpoint::new(guest, &setup).expect("endpoint"));
            Endpoint::connect(&a, &b).expect("connect");
            let bytes = pattern(400, seed);
            let head = vrnic_abi::sq::SqWqe {
                opcode: 1 + (seed % 7) as u8,
                flags: bytes[1],
                count: U16::new(u16::from(bytes[2]) << (seed % 9)),
                ..Default::default()
            };
            let wr = Send::new(Opcode::Send, 0).inline(&bytes).edit(|place| *place = head);
            a.qp.post_send(a.guest, &wr).expect("post");
            a.qp.set_state(a.guest, State::Err).expect("to error");
        }
    }
    still_works(&mut c, &d);
    daemon.check().expect("healthy");
}

#[test]
fn one_queue_for_both_sides_of_many_qps_survives_their_end() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [a, _b] = connected_pair(&guests);
    let shared = CompletionQueue::create(a.guest, a.uar, a.eqn, 4).expect("CQ");
    let setup = QpSetup {
        pdn: a.pdn,
        send_cqn: shared.cqn,
        recv_cqn: shared.cqn,
        uar: a.uar,
        log_size: 2,
        log_stride: 6,
        in_device: true,
    };
    let qps: Vec<_> = (0..50).map(|_| QueuePair::create(a.guest, &setup).expect("QP")).collect();
    assert_eq!(status(a.guest.destroy(Admin::DestroyCq, shared.cqn)), AdminStatus::Busy);
    for qp in &qps {
        a.guest.destroy(Admin::DestroyQp, qp.qpn).expect("destroy");
    }
    a.guest.destroy(Admin::DestroyCq, shared.cqn).expect("destroy");
    still_alive(&mut daemon, a.guest);
}

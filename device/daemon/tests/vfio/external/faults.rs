//! A VMM that lies, is silent or disconnects, and memory that goes away.
//!
//! Shows: direct

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::{self, Control, FatalCode};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::padded;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::relay::{Relay, Request};
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use super::device::{ALL_WAYS, Device, FAR, LEN, Manner, Rig, WAYS, far};
use crate::common::switch::Folder;
use crate::common::{connected, pattern, start_with, still_works};

/// Longest time in which the daemon notices that the VMM does not answer: its own limit is 2 s, and
/// a busy machine may let it wait.
const SILENCE: Duration = Duration::from_secs(15);

/// An access that the VMM refuses fails its message and ends a connection of iWARP.
#[test]
fn a_refused_access_ends_a_connection_of_iwarp() {
    for nth in 0..4 {
        let mut rig = Rig::of("iwarp", WAYS[1]);
        let (mut a, mut b, key) = rig.ends();
        b.fill(0, &[7; 4096]);
        rig.device.be(Manner::Refuses);
        let (own, local) = (far(0, 4096, key), b.sge(0, 4096));
        match nth {
            0 => {
                let write = Wr::new(Opcode::Write, &[own]).to(b.buffer, b.key);
                a.run_expecting(&write, Status::LocProtErr);
            }
            1 => {
                let read = Wr::new(Opcode::Read, &[own]).to(b.buffer, b.key);
                a.run_expecting(&read, Status::LocProtErr);
            }
            _ => {
                // The READ shows the failure of a WRITE, which completes when it has been sent.
                if nth == 2 {
                    b.run(&Wr::new(Opcode::Write, &[local]).to(FAR, key));
                }
                let cqe = b.run(&Wr::new(Opcode::Read, &[local]).to(FAR, key));
                assert_ne!(cqe.status, Status::Success as u8, "{nth}");
            }
        }
        assert_eq!(b.bytes(0, 4096), [7; 4096], "{nth}: nothing arrives");
        rig.daemon.check();
    }
}

/// The VMM cannot read and write at once, so nothing of an atomic operation is executed.
#[test]
fn atomic_operations_are_refused() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let (mut a, b, key) = rig.ends();
        b.fill(0, &5u64.to_le_bytes());
        let add = Wr::new(Opcode::FetchAdd, &[far(0, 8, key)]).atomic(2, 0).to(b.buffer, b.key);
        a.run_expecting(&add, Status::LocProtErr);
        assert_eq!(b.bytes(0, 8), 5u64.to_le_bytes(), "{way:?}: its result has no place");
        let (_a, mut b, key) = rig.ends();
        let add = Wr::new(Opcode::FetchAdd, &[b.sge(0, 8)]).atomic(2, 0).to(FAR, key);
        let cqe = b.run(&add);
        assert!(
            [Status::RemOpErr as u8, Status::RemAccessErr as u8].contains(&cqe.status),
            "{way:?}: {cqe:?}"
        );
        assert_eq!(rig.device.largest.load(Ordering::SeqCst), 0, "{way:?}: no message");
        rig.daemon.check();
    }
}

/// An answer that is not right, or none, ends only that work request.
#[test]
fn a_vmm_that_lies_fails_that_work_request_alone() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let manners = [
            Manner::Refuses,
            Manner::Short,
            Manner::Long,
            Manner::WrongId,
            Manner::WrongAddress,
            Manner::Silent,
        ];
        for manner in manners {
            // The memory of the requester itself, and that of its peer.
            for own in [true, false] {
                let (mut a, mut b, key) = rig.ends();
                b.fill(0, &[7; 512]);
                rig.device.be(manner);
                let begun = Instant::now();
                let status = if own {
                    let write = Wr::new(Opcode::Write, &[far(0, 512, key)]).to(b.buffer, b.key);
                    a.run(&write).status
                } else {
                    let write = Wr::new(Opcode::Write, &[b.sge(0, 512)]).to(FAR, key);
                    b.run(&write).status
                };
                let expected = if own { Status::LocProtErr } else { Status::RemOpErr };
                assert_eq!(status, expected as u8, "{way:?}: {manner:?}, own memory: {own}");
                assert!(begun.elapsed() < SILENCE, "{way:?}: {manner:?}");
                assert_eq!(b.bytes(0, 512), [7; 512], "nothing of a lie arrives");
                rig.device.be(Manner::Honest);
                if let Some(request) = rig.device.open.lock().take() {
                    rig.relay.send(&request.reply(&[0xee; 512])).expect("a late reply");
                }
                let (mut a, b, key) = rig.ends();
                rig.device.fill(0, b"next");
                let write = Wr::new(Opcode::Write, &[far(0, 4, key)]).to(b.buffer, b.key);
                a.run_expecting(&write, Status::Success);
                assert_eq!(b.bytes(0, 4), b"next");
                still_works(&mut a, &b);
            }
        }
        rig.daemon.wait_for_log("a reply of the VMM was ignored");
        rig.daemon.check();
    }
}

#[test]
fn a_second_reply_is_ignored() {
    let mut rig = Rig::new(&[]);
    let (mut a, b, key) = rig.ends();
    rig.device.be(Manner::Twice);
    for round in 0..20 {
        rig.device.fill(0, &pattern(900, round));
        let write = Wr::new(Opcode::Write, &[far(0, 900, key)]).to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
        assert!(b.bytes(0, 900) == pattern(900, round));
    }
    rig.daemon.check();
}

/// Other work goes on while a request waits for the VMM.
#[test]
fn a_silent_vmm_delays_nothing_else() {
    let mut rig = Rig::new(&[]);
    let (mut a, b, key) = rig.ends();
    let [mut c, d] = connected(&rig.guests, Setup::default());
    rig.device.be(Manner::Silent);
    a.post_send(&Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key));
    wait::until("a request", || rig.device.open.lock().clone());
    let begun = Instant::now();
    (0..100).for_each(|_| still_works(&mut c, &d));
    // Commands and registers of the function are executed meanwhile.
    assert!(rig.guests[0].caps().max_qp.get() > 0);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let request = rig.device.open.lock().take().expect("a request");
    rig.relay.send(&rig.device.execute(&request)).expect("a reply");
    a.send_cq.expect(1, Status::Success);
    rig.daemon.check();
}

#[test]
fn what_is_unmapped_under_a_key_is_not_sent() {
    let mut rig = Rig::new(&[]);
    let (mut a, b, key) = rig.ends();
    b.fill(0, &[7; 8]);
    rig.device.be(Manner::Silent);
    a.post_send(&Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key));
    let request = wait::until("a request", || rig.device.open.lock().clone());
    rig.guests[0].with_client(|client| client.dma_unmap(FAR, LEN as u64)).expect("DMA_UNMAP");
    rig.relay.send(&rig.device.execute(&request)).expect("a reply");
    let cqe = wait::until("completion", || a.send_cq.poll());
    assert_eq!(cqe.status, Status::LocProtErr as u8);
    assert_eq!(b.bytes(0, 8), [7; 8]);
    rig.daemon.check();
}

/// When a region has been removed, nothing is written by its key any more.
#[test]
fn a_removed_region_is_no_longer_written() {
    let mut rig = Rig::new(&[]);
    let (a, mut b, key) = rig.ends();
    rig.device.be(Manner::Silent);
    b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(FAR, key));
    let request = wait::until("a request", || rig.device.open.lock().clone());
    let (relay, device) = (&rig.relay, &rig.device);
    std::thread::scope(|scope| {
        let answered = scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            let reply = device.execute(&request);
            let answered = Instant::now();
            relay.send(&reply).expect("a reply");
            answered
        });
        a.guest.on_object(Admin::DeregMr, key).expect("DEREG_MR");
        let removed = Instant::now();
        assert!(removed >= answered.join().expect("a thread"), "the write was still on its way");
    });
    let cqe = wait::until("completion", || b.send_cq.poll());
    assert_ne!(cqe.status, Status::Success as u8);
    rig.daemon.check();
}

/// The end of a region does not wait for what others write, and does not end it.
#[test]
fn a_removed_region_awaits_its_own_transfers_alone() {
    const PART: usize = 64 << 10;
    for way in WAYS {
        let mut rig = Rig::new(way);
        let (a, mut b, key) = rig.ends();
        let own = a.guest.reg_flat(a.pdn, ALL, FAR + PART as u64, PART as u64).expect("a region");
        rig.device.be(Manner::Silent);
        b.fill(0, &pattern(4096, 3));
        b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 4096)]).to(FAR, key));
        let request = wait::until("a request", || rig.device.open.lock().clone());
        let begun = Instant::now();
        a.guest.on_object(Admin::DeregMr, own).expect("DEREG_MR");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        rig.device.be(Manner::Honest);
        rig.relay.send(&rig.device.execute(&request)).expect("a reply");
        b.send_cq.expect(1, Status::Success);
        assert!(rig.device.bytes(0, 4096) == pattern(4096, 3), "{way:?}");
        rig.daemon.check();
    }
}

/// The driver gives memory back when a reset has ended, so nothing may be written after that.
#[test]
fn after_a_reset_by_the_register_nothing_is_written() {
    for (personality, way) in ALL_WAYS {
        let mut rig = Rig::of(personality, way);
        let setup = Setup { region: 1 << 20, ..Setup::default() };
        let (_a, mut b, key) = rig.ends_of(setup);
        b.fill(0, &[7; 64 << 10]);
        rig.device.be(Manner::Silent);
        b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 64 << 10)]).to(FAR, key));
        let request = wait::until("a request", || rig.device.open.lock().clone());
        // The packets behind the first one wait.
        std::thread::sleep(Duration::from_millis(50));
        rig.device.be(Manner::Honest);
        answered_before(&rig, &request, || rig.guests[0].reset());
        std::thread::sleep(Duration::from_millis(50));
        let writes = rig.device.writes.load(Ordering::SeqCst);
        assert_eq!(writes, 1, "{personality} {way:?}: only that one was sent");
        rig.daemon.check();
    }
}

/// Calls `quiet`, which must not return before a request has been answered, and answers it after
/// some time.
fn answered_before(rig: &Rig, request: &Request, quiet: impl FnOnce()) {
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            let reply = rig.device.execute(request);
            let answered = Instant::now();
            rig.relay.send(&reply).expect("a reply");
            answered
        });
        quiet();
        let now = Instant::now();
        assert!(now >= answer.join().expect("a thread"), "the write was still on its way");
    });
}

/// The driver hears of a failure when nothing is written any more.
#[test]
fn after_the_event_of_a_failure_nothing_is_written() {
    for way in WAYS {
        let folder = Folder::new();
        let control = folder.settings("@control");
        let mut rig = Rig::new(&[way, &["--control", &control]].concat());
        let (_a, mut b, key) = rig.ends();
        rig.device.be(Manner::Silent);
        b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(FAR, key));
        let request = wait::until("a request", || rig.device.open.lock().clone());
        answered_before(&rig, &request, || {
            add_rule(&control, "fail-device function=f0");
            let event = rig.guests[0].wait_event();
            assert_eq!(event, (Kind::DeviceFatal, FatalCode::Internal as u32));
        });
        rig.guests[0].bring_up();
        rig.daemon.check();
    }
}

/// The thread that runs the rules of all functions waits for none of them.
#[test]
fn a_failure_that_waits_delays_no_rules_of_others() {
    let folder = Folder::new();
    let control = folder.settings("@control");
    let mut rig = Rig::new(&["--control", &control]);
    let (a, mut b, key) = rig.ends();
    rig.device.be(Manner::Silent);
    b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(FAR, key));
    let request = wait::until("a request", || rig.device.open.lock().clone());
    begin_dereg(&a, key);
    add_rule(&control, "fail-device function=f0");
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    add_rule(&control, "port-down function=f1");
    assert_eq!(rig.guests[1].wait_event(), (Kind::PortDown, 1));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    rig.relay.send(&rig.device.execute(&request)).expect("a reply");
    // An event of the queue pair may come before.
    let failed = (Kind::DeviceFatal, FatalCode::Internal as u32);
    let is_failed = || rig.guests[0].drain_events().contains(&failed);
    wait::until("the failure", || is_failed().then_some(()));
    rig.daemon.check();
}

/// Posts a DEREG_MR, and does not wait for it.
fn begin_dereg(end: &Endpoint, key: u32) {
    let producer = end.guest.with_admin(|admin| {
        admin.post(Admin::DeregMr as u16, 0, padded(&key.to_le_bytes()));
        admin.producer()
    });
    end.guest.set_register(regs::ADMIN_SQ_PI, producer);
}

/// Adds a rule for faults to the daemon with this control socket.
fn add_rule(control: &str, rule: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.args(["--control", control, "fault", "add"]).args(rule.split(' '));
    assert!(command.status().expect("vrnic runs").success());
}

/// A VMM that does not answer a write may still execute it. Its guest must not learn that the
/// memory is free, neither by a reset nor by a command.
#[test]
fn a_vmm_that_does_not_answer_is_disconnected_before_the_adapter_is_quiet() {
    for by_command in [false, true] {
        let Rig { mut daemon, device, relay, guests: [first, second], .. } = Rig::new(&[]);
        let guests = [first, second];
        let [a, mut b] = connected(&guests, Setup::default());
        let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
        device.be(Manner::Silent);
        b.post_send(&Wr::new(Opcode::Write, &[b.sge(0, 8)]).to(FAR, key));
        wait::until("a request", || device.open.lock().clone());
        let begun = Instant::now();
        if by_command {
            begin_dereg(&a, key);
        } else {
            a.guest.set_register(regs::CONTROL, Control::RESET.bits());
        }
        daemon.wait_for_log("a VMM is disconnected because it does not answer");
        daemon.wait_for_log("VMM disconnected");
        assert!(a.guest.with_admin(|admin| admin.poll()).is_none(), "a completion");
        assert!(begun.elapsed() < SILENCE, "{:?}", begun.elapsed());
        let [_, second] = guests;
        drop((a, relay));
        let again = daemon.ready_guest(0);
        let [mut a, b] = connected(&[again, second], Setup::default());
        still_works(&mut a, &b);
        daemon.check();
    }
}

/// A VMM that ends while a request waits for it.
#[test]
fn a_vmm_that_disconnects_ends_its_own_work_alone() {
    let Rig { mut daemon, device, relay, guests: [first, second], .. } = Rig::new(&[]);
    let guests = [first, second];
    let [mut a, b] = connected(&guests, Setup::default());
    let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
    device.be(Manner::Silent);
    a.post_send(&Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key));
    wait::until("a request", || device.open.lock().clone());
    let [_, second] = guests;
    drop((a, relay));
    daemon.wait_for_log("VMM disconnected");
    let again = daemon.ready_guest(0);
    let [mut a, b] = connected(&[again, second], Setup::default());
    still_works(&mut a, &b);
    daemon.check();
}

/// Without the setting, the VMM gets no requests.
#[test]
fn without_the_setting_there_are_no_messages() {
    let mut daemon = start_with(2, &[]);
    let device = Device::new();
    let answering = Arc::clone(&device);
    let answer = Arc::new(move |request: &Request| answering.answer(request));
    let relay = Relay::start(&daemon.socket(0), answer).expect("a relay");
    let guests = [daemon.ready_guest_behind(0, &relay), daemon.ready_guest(1)];
    let [mut a, b] = connected(&guests, Setup::default());
    let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
    let write = Wr::new(Opcode::Write, &[far(0, 8, key)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::LocProtErr);
    assert_eq!(device.largest.load(Ordering::SeqCst), 0);
    daemon.check();
}

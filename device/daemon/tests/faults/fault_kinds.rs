//! Faults by rules that are not for packets, in a daemon whose functions copy messages, and the
//! proof that they have hit.
//!
//! Shows: faults

use std::time::{Duration, Instant};

use serde_json::Value;
use vrnic_abi::admin::{DeviceFeatures, EditFaults, Opcode as Admin, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::Status as DeviceStatus;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::world::World;

fn write([a, b]: &[Endpoint; 2]) -> Wr {
    Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key)
}

fn copying() -> World {
    World::with_fabric("copy")
}

#[test]
fn work_requests_of_one_function_wait_get_lost_or_fail() {
    let world = copying();
    let mut ends = world.connected(|attr| (attr.timeout, attr.retry_cnt) = (10, 7));
    let wr = write(&ends);
    world.rule("hold-request by=50ms function=f0 times=1");
    let start = Instant::now();
    ends[0].run_expecting(&wr, Status::Success);
    assert!(start.elapsed() >= Duration::from_millis(50));
    world.rule("drop-message function=f0 times=3");
    ends[0].run_expecting(&wr, Status::Success);
    assert_eq!((world.first("seen"), world.first("hit")), (4, 3));
    assert!(world.stats()[0].local_ack_timeout_err.get() >= 3);
    world.rule("pause-worker by=80ms function=f0 times=1");
    let start = Instant::now();
    ends[0].run_expecting(&wr, Status::Success);
    let (took, hit) = (start.elapsed(), world.first("hit"));
    assert!(took >= Duration::from_millis(80), "{took:?}, {hit}");
    world.rule("fail-request status=rnr-retry-exc-err function=f0");
    ends[0].run_expecting(&wr, Status::RnrRetryExcErr);
    assert_eq!((world.first("seen"), world.first("hit")), (1, 1));
    world.check();
}

#[test]
fn ports_and_devices_follow_their_rules_by_time() {
    let world = copying();
    let [first, second] = &world.guests;
    world.rule("port-down function=f0 lasts=30ms pause=30ms times=2");
    for kind in [Kind::PortDown, Kind::PortUp, Kind::PortDown, Kind::PortUp] {
        assert_eq!(first.wait_event(), (kind, 1));
    }
    world.rule("port-down function=f0");
    assert_eq!(first.wait_event(), (Kind::PortDown, 1));
    world.said("fault clear");
    assert_eq!(first.wait_event(), (Kind::PortUp, 1));
    world.rule("fail-device function=f0");
    first.wait_status("failure", |status| status.contains(DeviceStatus::FATAL));
    assert!(!second.status().contains(DeviceStatus::FATAL));
    first.bring_up();
    assert_eq!(world.first("hit"), 1);
    assert!(!first.status().contains(DeviceStatus::FATAL));
    world.check();
}

#[test]
fn a_command_is_late_or_fails() {
    let world = copying();
    let guest = &world.guests[0];
    world.rule("delay-command by=60ms command=alloc-context");
    let start = Instant::now();
    let context = guest.alloc_context().expect("a context");
    assert!(start.elapsed() >= Duration::from_millis(60));
    world.rule("fail-command status=busy command=free-context function=f0 times=1");
    guest.on_object(Admin::FreeContext, context).expect_err("busy");
    guest.on_object(Admin::FreeContext, context).expect("freed");
    world.check();
}

#[test]
fn a_hit_can_be_waited_for_and_tells_its_time() {
    let world = copying();
    let mut ends = world.connected(|_| {});
    let wr = write(&ends);
    world.rule("hold-request by=1ms function=f0 nth=2");
    let list =
        || -> Value { serde_json::from_str(&world.said("fault show --json")).expect("JSON") };
    let before = list();
    assert!(before["rules"][0]["last_hit"].is_null());
    let why = |args: &str| {
        let output = world.vrnic(args);
        assert!(!output.status.success(), "{args}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let late = why("fault wait 1 --timeout 1");
    assert!(late.contains("has hit 0 of 0 that it has seen in 1 s"), "{late}");
    assert!(why("fault wait 7").contains("there is no rule 7"));
    ends[0].run_expecting(&wr, Status::Success);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| world.said("fault wait 1 --timeout 30"));
        ends[0].run_expecting(&wr, Status::Success);
        assert_eq!(waiter.join().expect("no panic"), "rule 1 has hit 1 of 2 that it has seen\n");
    });
    let after = list();
    let time = |value: &Value| value.as_u64().expect("a time");
    let (armed, last) = (time(&after["rules"][0]["armed"]), time(&after["rules"][0]["last_hit"]));
    // Both are computed back from the time of the view, with microseconds.
    assert!(armed.abs_diff(time(&before["rules"][0]["armed"])) < 50_000);
    assert!(armed < last && last <= time(&after["now"]));
    assert!(world.said("fault list").contains(" s ago"));
    world.rule("drop-message function=f0 for=1us");
    wait::until("the end of the rule", || world.said("fault list").contains(" yes ").then_some(()));
    assert!(why("fault wait 1").contains("is over: it has hit 0 of 0"));
    world.check();
}

#[test]
fn rules_that_make_no_sense_are_refused_as_a_whole() {
    let world = copying();
    world.said("fault add lower-mtu bytes=1024");
    for (text, part) in [
        ("fail-request function=f0", "needs a status"),
        ("fail-request function=f7 status=rem-op-err", "no function 'f7'"),
        ("fail-request status=rem-op-err nth=2 every=2", "contradict"),
        ("drop-command qp=5", "not a field of drop-command"),
        ("pause-worker by=100s", "a time up to 4s"),
        ("lower-mtu bytes=512 function=f0", "rule 1 contradicts it"),
    ] {
        let output = world.vrnic(&format!("fault add {text}"));
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && why.contains(part), "{part}: {why}");
    }
    assert_eq!(world.said("fault list").lines().count(), 2, "only the first rule");
    world.check();
}

#[test]
fn rules_of_a_guest_concern_its_function_alone() {
    let world = copying();
    let (mac, socket) = ([0x52, 0x54, 0, 0, 0, 0x77], world.folder.path("g"));
    let function = format!("name=g,mac=52:54:00:00:00:77,socket={}", socket.display());
    world.said(&format!("function add {function},guest-faults=yes"));
    assert!(world.said("function list").contains("guest-faults"));
    let guest = Guest::connect(&socket, mac).expect("a VMM");
    guest.bring_up();
    assert!(guest.caps().has(DeviceFeatures::FAULTS));
    let rule = b"delay-command by=2s command=alloc-context times=1";
    let addr = guest.ram().alloc(4096);
    guest.ram().write(addr, rule);
    let (addr, len) = (addr.into(), (rule.len() as u32).into());
    let params = EditFaults { addr, len, ..EditFaults::default() };
    let other = &world.guests[0];
    assert!(!other.caps().has(DeviceFeatures::FAULTS));
    other.command::<command::EditFaults>(&params).expect_err("not permitted");
    let edited = guest.command::<command::EditFaults>(&params).expect("EDIT_FAULTS");
    assert_eq!((edited.number.get(), edited.reason.get()), (1, 0));
    let took = |guest: &Guest| {
        let start = Instant::now();
        guest.alloc_context().expect("a context");
        start.elapsed()
    };
    assert!(took(other) < Duration::from_secs(2));
    assert!(took(&guest) >= Duration::from_secs(2));
    let text = world.said("fault list");
    assert!(text.contains(" g:1 ") && text.contains("function=g"), "{text}");
    assert!(!world.vrnic("fault wait 1").status.success(), "there is no rule 1 of the operator");
    guest.reset();
    assert!(!world.said("fault list").contains("g:1"));
    world.check();
}

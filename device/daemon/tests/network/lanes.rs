//! Classes of service, rates and congestion control.
//!
//! Shows: network

use std::process::Command;
use std::time::{Duration, Instant};

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

use crate::common::switch::{Folder, port};

/// DSCP 26 and "not ECN-capable": the adapter sets the bit.
const ROCE: u8 = 26 << 2;
const LEN: u32 = 1 << 20;

/// Connects the guests of two functions by packets with the DSCP of RoCE.
fn connected(guests: &[Guest; 2]) -> [Endpoint; 2] {
    let [a, b] = guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    a.connect(guests[1].mac(), b.qpn, |attr| attr.av.traffic_class = ROCE);
    b.connect(guests[0].mac(), a.qpn, |attr| attr.av.traffic_class = ROCE);
    [a, b]
}

fn write(a: &mut Endpoint, b: &Endpoint) {
    let write = Wr::new(Opcode::Write, &[a.sge(0, LEN)]).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
}

/// Shows: network: marks, notifications and rates
#[test]
fn a_congested_port_marks_and_the_sender_slows_down() {
    let folder = Folder::new();
    let function = |name: &str| {
        format!("name={name},mac=52:54:00:00:01:0{name},socket=@{name}.sock,dcqcn=10G")
    };
    let (one, two) = (function("1"), function("2"));
    let mut daemon = folder.daemon(
        0,
        &[
            ("--function", &one),
            ("--function", &two),
            ("--fabric", "wire"),
            ("--monitor", "@m"),
            ("--lanes", "port=2,rate=400M,ecn=3:5k-50k-10"),
        ],
    );
    daemon.wait_for_log("ready for a VMM function=\"2\"");
    let guests = [1, 2].map(|number| {
        let socket = folder.path(&format!("{number}.sock"));
        let guest = Guest::connect(&socket, [0x52, 0x54, 0, 0, 1, number]).expect("a VMM");
        guest.bring_up();
        guest
    });
    let [mut a, b] = connected(&guests);
    let start = Instant::now();
    for _ in 0..4 {
        write(&mut a, &b);
    }
    // 4 MiB at 50 bytes in a microsecond; the first burst is 16 KiB.
    assert!(start.elapsed() > Duration::from_millis(82), "{:?}", start.elapsed());
    let [sender, receiver] = guests.each_ref().map(Guest::stats);
    assert!(receiver.np_ecn_marked_roce_packets.get() > 0);
    assert!(receiver.np_cnp_sent.get() > 0);
    assert!(sender.rp_cnp_handled.get() > 0);
    let lanes = port(&folder.path("m"), "2")["lanes"].clone();
    let lane = lanes.as_array().and_then(|lanes| lanes.iter().find(|lane| lane["class"] == 3));
    let lane = lane.expect("class 3").clone();
    assert!(lane["frames"].as_u64() >= Some(1024), "{lane}");
    assert!(lane["marks"].as_u64() > Some(0), "{lane}");
    assert_eq!(lane["drops"].as_u64(), Some(0), "{lane}");
    daemon.check();
}

/// Runs `vrnic`, and returns what it prints, or its error.
fn vrnic(folder: &Folder, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.arg("--control").arg(folder.path("c")).arg("--monitor").arg(folder.path("m"));
    let output = command.args(arguments).output().expect("vrnic runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn lanes_change_while_the_daemon_runs_and_contradictions_are_refused() {
    let folder = Folder::new();
    let mut daemon: Daemon =
        folder.daemon(2, &[("--fabric", "wire"), ("--control", "@c"), ("--monitor", "@m")]);
    let guests = [0, 1].map(|index| daemon.ready_guest(index));
    let [mut a, b] = connected(&guests);
    write(&mut a, &b);
    vrnic(&folder, &["lanes", "set", "port=f1,rate=2G,shares=0:40+3:50"]).expect("lanes");
    write(&mut a, &b);
    let list = vrnic(&folder, &["lanes", "list"]).expect("a list");
    assert_eq!(list, "port=f1,rate=2G,shares=0:40+3:50\n");
    let shown = vrnic(&folder, &["show", "lane"]).expect("a table");
    assert!(shown.contains("f1") && !shown.contains("f0"), "{shown}");
    let metrics = vrnic(&folder, &["metrics"]).expect("metrics");
    assert!(metrics.contains("vrnic_lane_frames_total{port=\"f1\",class=\"3\"}"), "{metrics}");
    for (settings, reason) in [
        ("port=f1,shares=0:60+3:60", "124 %"),
        ("port=nobody,rate=1G", "no function, port or uplink has this name"),
        ("port=f1,pfc=3:1k-2k", "xon must be below xoff"),
    ] {
        let refused = vrnic(&folder, &["lanes", "set", settings]).expect_err(settings);
        assert!(refused.contains(reason), "{refused}");
    }
    assert_eq!(vrnic(&folder, &["lanes", "list"]).expect("a list"), list, "nothing has changed");
    vrnic(&folder, &["lanes", "clear", "f1"]).expect("cleared");
    write(&mut a, &b);
    assert_eq!(vrnic(&folder, &["lanes", "list"]).expect("a list"), "");
    daemon.check();
}

#[test]
fn a_file_with_contradictory_lanes_is_refused_with_its_line() {
    let folder = Folder::new();
    let file = folder.path("vrnic.toml");
    let text = "control = '/tmp/c'\n\n[[lanes]]\nport = 'a'\nshares = '0:60+3:60'\n";
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnicd"));
    let output = command.arg("--config").arg(&file).output().expect("vrnicd runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(error.contains("line 3") && error.contains("124 %"), "{error}");
}

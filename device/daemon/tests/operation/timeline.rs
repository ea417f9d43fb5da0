//! `vrnic trace`: the timeline of a queue pair, as text and as a file for Perfetto.
//!
//! Shows: faults

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;

use crate::common::capture::{Capture, Packet};
use crate::common::world::World;

/// Runs `vrnic trace` with these arguments while a WRITE is made. Returns its output.
fn traced(world: &World, ends: &mut [Endpoint; 2], args: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.arg("--control").arg(world.folder.path("control")).arg("trace");
    command.args(args.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut trace = command.spawn().expect("vrnic runs");
    let mut says = BufReader::new(trace.stderr.take().expect("piped"));
    let mut line = String::new();
    says.read_line(&mut line).expect("a line");
    assert!(line.starts_with("tracing"), "{line}");
    let [a, b] = &*ends;
    let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key).id(4711);
    ends[0].run_expecting(&write, Status::Success);
    let mut text = String::new();
    trace.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    says.read_line(&mut line).expect("a line");
    assert!(trace.wait().expect("an end").success(), "{line}");
    assert!(line.contains(" steps; 0 were lost"), "{line}");
    text
}

#[test]
fn a_request_is_traced_from_its_fetch_to_its_completion() {
    for (fabric, way) in [
        ("copy", &[" copy ", " acknowledged "]),
        ("wire", &[" opcode=rc-write-only", "opcode=rc-acknowledge"]),
    ] {
        let world = World::with_fabric(fabric);
        let mut ends = world.connected(|_| {});
        let of = format!("{} --function f0 --for 1", ends[0].qpn);
        let text = traced(&world, &mut ends, &of);
        let mut lines = text.lines();
        let fetch = " fetch        bytes=8 index=0 opcode=write wr_id=4711";
        for step in [fetch, way[0], way[1], " completion ", "status=success wr_id=4711"] {
            let mut rest = lines.clone();
            assert!(rest.any(|line| line.contains(step)), "{step}: {text}");
            if step != " completion " {
                lines = rest;
            }
        }
        let mut times = text.lines().map(|line| line.split(' ').next().map(str::parse::<u64>));
        assert!(times.all(|time| matches!(time, Some(Ok(_)))), "{text}");
        world.check();
    }
}

#[test]
fn a_capture_names_the_work_requests_of_a_queue_pair_that_is_traced() {
    let synthetic = "synthesised by vrnicd: exchanged by memcpy";
    for (world, before, steps) in [
        (World::with_fabric("copy"), &[synthetic][..], ["copied", "copied"]),
        (World::with_fabric("wire"), &[], ["first packet sent", "answer received"]),
        (World::two(), &[], ["first packet sent", "answer received"]),
    ] {
        let mut ends = world.connected(|attr| attr.timeout = 20);
        let qp = ends[0].qpn;
        let write = |ends: &mut [Endpoint; 2]| {
            let [a, b] = &*ends;
            let write = Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key);
            ends[0].run_expecting(&write, Status::Success);
        };
        let capture = Capture::start(&world, "--function f0");
        traced(&world, &mut ends, &format!("{qp} --function f0 --for 1"));
        write(&mut ends);
        let packets = capture.end();
        let mut roce: Vec<_> = packets.iter().filter(|packet| packet.roce().is_some()).collect();
        // The adapter of a busy machine probes for a loss by sending its last packet again.
        let mut seen = HashSet::new();
        roce.retain(|packet| seen.insert(&packet.bytes));
        let [request, answer, other, last] = &roce[..] else { panic!("{packets:?}") };
        for (packet, step) in [(request, steps[0]), (answer, steps[1])] {
            let (note, rest) = packet.comments.split_last().expect("a comment");
            assert_eq!(rest, before, "{note}");
            let start = format!("QP {qp}, work request 0: {step} ");
            assert!(note.starts_with(&start) && note.ends_with(" µs after the fetch"), "{note}");
            assert!(note.contains(" µs after the last doorbell, "), "{note}");
        }
        let untraced = |packet: &Packet| packet.comments == before;
        assert!(untraced(other) && untraced(last), "{other:?} {last:?}");
        world.check();
    }
}

#[test]
fn a_file_for_perfetto_has_a_bar_for_each_request() {
    let world = World::with_fabric("copy");
    let mut ends = world.connected(|_| {});
    let file = world.folder.path("trace.json");
    let args = format!("{} --function f0 --for 1 --perfetto {}", ends[0].qpn, file.display());
    assert_eq!(traced(&world, &mut ends, &args), "");
    let text = std::fs::read_to_string(file).expect("a file");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let bars: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    let [bar] = &bars[..] else { panic!("{text}") };
    assert_eq!((&bar["name"], &bar["args"]["wr_id"]), (&"write".into(), &4711.into()));
    assert!(bar["dur"].as_f64().is_some_and(|took| took > 0.0), "{text}");
    assert!(events.iter().any(|event| event["name"] == "completion" && event["ph"] == "i"));
    world.check();
}

#[test]
fn what_cannot_be_traced_is_refused() {
    let world = World::with_fabric("copy");
    let ends = world.connected(|_| {});
    let qp = ends[0].qpn;
    for (args, why) in [
        (format!("trace {qp}"), "several functions"),
        (format!("trace {qp} --function f9"), "there is no function 'f9'"),
        ("trace 4242 --function f0".to_owned(), "there is no queue pair 4242"),
    ] {
        let output = world.vrnic(&args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(why), "{args}: {text}");
    }
    world.check();
}

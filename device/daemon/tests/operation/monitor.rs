//! The monitor, by the command `vrnic` and over HTTP.
//!
//! Shows: views

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::wr::Wr;

use crate::common::{connected, descriptors, limit_descriptors, pair, start_with};

fn vrnic(monitor: &Path, args: &[&str]) -> Output {
    let monitor = monitor.to_str().expect("text");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.args(["--monitor", monitor]).args(args).output().expect("vrnic runs")
}

/// Returns the output of a command, which must succeed.
fn said(monitor: &Path, args: &[&str]) -> String {
    let output = vrnic(monitor, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(monitor: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&said(monitor, &[args, &["--json"]].concat())).expect("JSON")
}

/// Starts a daemon with a monitor. The folder contains its socket.
fn monitored(functions: usize) -> (TempDir, PathBuf, Daemon) {
    let folder = tempfile::tempdir().expect("folder");
    let monitor = folder.path().join("monitor.sock");
    let daemon = start_with(functions, &["--monitor", monitor.to_str().expect("text")]);
    (folder, monitor, daemon)
}

/// Two connected QPs and some WRITEs: the monitor shows all of this, and nothing else.
#[test]
fn objects_and_counters_are_shown() {
    let (_folder, monitor, mut daemon) = monitored(2);
    let guests = pair(&daemon);
    let [mut a, b] = connected(&guests, Setup::default());
    for wr_id in 0..5 {
        let write = Wr::new(Opcode::Write, &[a.sge(0, 100)]).id(wr_id);
        let write = write.to(b.buffer, b.key);
        a.run_expecting(&write, Status::Success);
    }

    let functions = json(&monitor, &["show", "function"]);
    let [first, second] = [&functions[0], &functions[1]];
    assert_eq!(
        (&first["enabled"], &first["link"], &first["fatal"]),
        (&true.into(), &true.into(), &0.into())
    );
    assert_eq!((&first["objects"]["qps"], &first["objects"]["keys"]), (&1.into(), &1.into()));
    assert_eq!(first["counters"]["tx_write_req"], 5);
    assert_eq!(second["counters"]["tx_write_req"], 0);

    let name = first["name"].as_str().expect("a name");
    let qps = json(&monitor, &["show", "qp", "--function", name]);
    let qp = &qps[0]["qps"][0];
    assert_eq!(
        (&qp["qpn"], &qp["kind"], &qp["state"]),
        (&a.qpn.into(), &"rc".into(), &"rts".into())
    );
    assert_eq!(qp["peer"][1], b.qpn);
    assert_eq!((&qp["send"]["posted"], &qp["send"]["next"]), (&5.into(), &5.into()));
    let cqs = json(&monitor, &["show", "cq", "--function", name]);
    let produced = cqs[0]["cqs"].as_array().expect("CQs").iter().map(|cq| cq["produced"].as_u64());
    assert_eq!(produced.flatten().sum::<u64>(), 5, "{cqs}");
    let keys = json(&monitor, &["show", "mr", "--function", name]);
    assert_eq!(keys[0]["keys"][0]["key"], a.key);
    for kind in ["function", "qp", "cq", "eq", "srq", "mr", "counters"] {
        said(&monitor, &["show", kind]);
    }
    assert!(
        said(&monitor, &["metrics"])
            .contains(&format!("vrnic_tx_write_req_total{{function=\"{name}\"}} 5"))
    );
    let top = said(&monitor, &["top", "--interval", "0.1", "--looks", "2"]);
    assert_eq!(top.matches(" active ").count(), 4, "{top}");
    daemon.check();
}

/// A list with more objects than fit into an answer is returned in several answers.
#[test]
fn many_objects_come_page_by_page() {
    let (_folder, monitor, daemon) = monitored(1);
    let guest = daemon.ready_guest(0);
    let pdn = guest.on_object(Admin::AllocPd, 0).expect("PD");
    let memory = guest.ram().alloc(4096);
    let keys: Vec<u32> =
        (0..2500).map(|_| guest.reg_flat(pdn, 0, memory, 8).expect("REG_MR")).collect();
    let shown = json(&monitor, &["show", "mr"]);
    let shown = shown[0]["keys"].as_array().expect("keys").iter().map(|key| key["key"].as_u64());
    let shown: Vec<_> = shown.flatten().collect();
    assert_eq!(shown, keys.iter().map(|key| u64::from(*key)).collect::<Vec<_>>());
}

#[test]
fn faults_are_named() {
    let folder = tempfile::tempdir().expect("folder");
    let monitor = folder.path().join("monitor.sock");
    let refused = |args: &[&str]| {
        let output = vrnic(&monitor, args);
        assert!(!output.status.success(), "{args:?} was accepted");
        String::from_utf8(output.stderr).expect("text")
    };
    let error = refused(&["show", "qp"]);
    assert!(error.contains("monitor.sock") && error.contains("--monitor"), "{error}");
    let mut daemon = start_with(1, &["--monitor", monitor.to_str().expect("text")]);
    assert!(refused(&["show", "qp", "--function", "none"]).contains("'none'"));
    assert!(refused(&["top", "--interval", "0"]).contains("0.1"));
    let status = daemon.stop(rustix::process::Signal::TERM);
    assert!(status.success() && !monitor.exists(), "the monitor's socket is left");
}

/// Silent clients of the monitor use few descriptors, and only for a limited time. Other clients
/// are answered in the end.
///
/// Shows: hostile
#[test]
fn silent_watchers_are_limited() {
    let (_folder, monitor, mut daemon) = monitored(1);
    let before = descriptors(&daemon);
    let connect = |_| UnixStream::connect(&monitor).expect("connect");
    let silent: Vec<_> = (0..50).map(connect).collect();
    std::thread::sleep(Duration::from_millis(500));
    let with_silent = descriptors(&daemon);
    // 32 silent clients, and the descriptors that the daemon itself has opened since.
    assert!((before + 1..before + 50).contains(&with_silent), "{before} became {with_silent}");
    // A client behind the silent ones is answered when their time limit has ended.
    said(&monitor, &["show", "function"]);
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        // The daemon closes the connections. Some clients get an error message first.
        assert!(stream.read_to_end(&mut Vec::new()).is_ok(), "a silent watcher is not ended");
    }
    daemon.check();
}

/// A header without an end is refused, and does not delay other clients.
#[test]
fn endless_headers_are_refused() {
    let (_folder, monitor, mut daemon) = monitored(1);
    let mut stream = UnixStream::connect(&monitor).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    stream.write_all(b"GET /functions HTTP/1.1\r\n").expect("request");
    let line = b"X-More: of the same\r\n".repeat(100);
    // If a write fails, the daemon has closed the connection.
    let refused = (0..1000).any(|_| stream.write_all(&line).is_err());
    assert!(refused, "2 MB of header were taken");
    said(&monitor, &["show", "function"]);
    daemon.check();
}

#[test]
fn what_is_not_there_is_refused() {
    let (_folder, monitor, _daemon) = monitored(1);
    let status = |method: &str, path: &str| {
        let mut stream = UnixStream::connect(&monitor).expect("connect");
        write!(stream, "{method} {path} HTTP/1.0\r\n\r\n").expect("request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    for path in ["/ports", "/metrics", "/functions", "/resources"] {
        assert_eq!(status("GET", path), "200", "{path}");
    }
    assert_eq!(status("GET", "/functions/none/qps"), "404");
    assert_eq!(status("GET", "/"), "404");
    assert_eq!(status("POST", "/metrics"), "405");
}

/// After a daemon had no descriptor for a client, it answers the next one.
#[test]
fn running_out_of_descriptors_is_survived() {
    let (_folder, monitor, mut daemon) = monitored(1);
    said(&monitor, &["show", "function"]);
    // Numbers of descriptors are below the limit, so no descriptor is free with this limit.
    let before = limit_descriptors(&daemon, Some(3));
    let mut starved = UnixStream::connect(&monitor).expect("connect");
    starved.write_all(b"GET /functions HTTP/1.0\r\n\r\n").expect("request");
    std::thread::sleep(Duration::from_millis(500));
    limit_descriptors(&daemon, before);
    said(&monitor, &["show", "function"]);
    let mut answer = String::new();
    starved.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("200 OK"), "{answer}");
    daemon.check();
}

/// Returns the words of a text that are names of metrics or labels.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
}

/// The examples for Prometheus and Grafana name only metrics and labels that the daemon has.
///
/// Shows: views: the examples for Prometheus name metrics that there are
#[test]
fn the_examples_name_metrics_that_there_are() {
    let (_folder, monitor, daemon) = monitored(1);
    let _guest = daemon.ready_guest(0);
    let metrics = said(&monitor, &["metrics"]);
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    let names: HashSet<_> = samples.filter_map(|line| words(line).next()).collect();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let mut count = 0;
    for file in ["prometheus/rules.yml", "grafana/vrnic.json"] {
        let text = fs::read_to_string(packaging.join(file)).expect(file);
        for name in words(&text).filter(|word| word.starts_with("vrnic_")) {
            assert!(names.contains(name), "{file} has '{name}', and the daemon has not");
            count += 1;
        }
        let after = |mark: &'static str| text.split(mark).skip(1);
        let labels = after("by (").filter_map(|part| part.split(')').next());
        let legends = after("{{").filter_map(|part| part.split("}}").next());
        let labels = labels.chain(legends.filter(|legend| !legend.contains("$value")));
        for label in
            labels.flat_map(words).filter(|word| !["", "labels", "instance"].contains(word))
        {
            assert!(metrics.contains(&format!("{label}=\"")), "{file} has the label '{label}'");
        }
    }
    assert!(count > 30, "{count} names");
    let dashboard = fs::read(packaging.join("grafana/vrnic.json")).expect("a file");
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.iter().all(|panel| panel["targets"][0]["expr"].is_string()));
}

#[test]
fn prometheus_accepts_its_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus");
    for (command, file) in [("rules", "rules.yml"), ("config", "scrape.yml")] {
        let check =
            Command::new("promtool").args(["check", command]).arg(folder.join(file)).output();
        let Ok(output) = check else {
            eprintln!("skipped: there is no promtool");
            return;
        };
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

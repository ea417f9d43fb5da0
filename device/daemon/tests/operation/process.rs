//! The daemon as a process: its arguments, its sockets, its end.
//!
//! Shows: daemon

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use vrnic_testdriver::vmm::daemon::Daemon;

use crate::common::{start, start_with};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vrnicd")).args(args).output().expect("vrnicd runs")
}

/// Runs the daemon with arguments that cannot work. Returns the error.
fn refused(args: &[&str]) -> String {
    let output = run(args);
    assert!(!output.status.success(), "{args:?} was accepted");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn signals_end_it_and_remove_the_sockets() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut daemon = start(2);
        // One function with a VMM, and one without: neither prevents the end.
        let guest = daemon.guest(0);
        let status = daemon.stop(signal);
        assert!(status.success(), "{signal:?}: {status}");
        for path in [daemon.socket(0), daemon.net(0), daemon.socket(1), daemon.net(1)] {
            assert!(!path.exists(), "{} is left", path.display());
        }
        drop(guest);
    }
}

/// The limits of a shell apply to the daemon: it raises its soft limit to the hard limit, and logs
/// for how many functions this is enough.
#[test]
fn room_for_descriptors_is_made() {
    let start_under = |limits: &str, functions| {
        let folder = tempfile::tempdir().expect("folder");
        let script = folder.path().join("vrnicd");
        let text =
            format!("#!/bin/sh\nulimit {limits}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_vrnicd"));
        std::fs::write(&script, text).expect("script");
        std::fs::set_permissions(&script, Permissions::from_mode(0o700)).expect("mode");
        Daemon::start(&script, functions, &[]).expect("start")
    };
    let daemon = start_under("-Sn 256", 4);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("files");
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "soft and hard limit: {line}");
    assert!(!daemon.log().contains("limit of file descriptors"));

    let daemon = start_under("-n 256", 4);
    let log = daemon.log();
    assert!(log.contains("enough for only 1 functions") && log.contains("functions=4"), "{log}");
    let _served = daemon.ready_guest(0);
}

/// All three kinds of sockets are tested. The log names the process that connects.
///
/// Shows: daemon
#[test]
fn sockets_have_the_mode_and_group_asked_for() {
    let group = rustix::process::getegid().as_raw();
    for (mode, args) in [
        (0o660, vec![]),
        (0o600, vec!["--socket-mode", "0600"]),
        (0o666, vec!["--socket-mode", "0666", "--socket-group", &group.to_string()]),
    ] {
        let folder = tempfile::tempdir().expect("folder");
        let monitor = folder.path().join("monitor.sock");
        let monitor = monitor.to_str().expect("text");
        let daemon = start_with(1, &[&args[..], &["--monitor", monitor]].concat());
        for path in [daemon.socket(0), daemon.net(0), monitor.into()] {
            let meta = std::fs::metadata(&path).expect("socket");
            assert_eq!(meta.mode() & 0o7777, mode, "{}", path.display());
            assert_eq!(meta.gid(), group, "{}", path.display());
        }
        let _guest = daemon.ready_guest(0);
        let client = format!("client=process {}, user ", std::process::id());
        let log = daemon.log();
        for what in ["VMM connected", "link up"] {
            let named = |line: &str| line.contains(what) && line.contains(&client);
            assert!(log.lines().any(named), "{what}: {log}");
        }
    }
}

#[test]
fn a_live_socket_is_named_and_a_stale_one_replaced() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("live.sock");
    let live = UnixListener::bind(&path).expect("listen");
    let function = format!("name=a,mac=52:54:00:00:00:0a,socket={}", path.display());
    let error = refused(&["--function", &function]);
    assert!(error.contains("live.sock") && error.contains("listening"), "{error}");
    drop(live);
    assert!(path.exists(), "the file of the dead listener is left");
    let mut child = Command::new(env!("CARGO_BIN_EXE_vrnicd"))
        .args(["--function", &function])
        .spawn()
        .expect("vrnicd runs");
    vrnic_testdriver::wait::until("a server", || UnixStream::connect(&path).ok());
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn faults_of_the_arguments_are_named() {
    assert!(refused(&[]).contains("no function"));
    assert!(refused(&["--config", "/nonexistent.toml"]).contains("/nonexistent.toml"));
    let nowhere = "name=a,mac=52:54:00:00:00:0a,socket=/nonexistent/a.sock";
    let error = refused(&["--function", nowhere]);
    assert!(error.contains("/nonexistent/a.sock") && error.contains("folder"), "{error}");
    let function = "name=a,mac=52:54:00:00:00:0a,socket=a.sock";
    let error = refused(&["--function", function, "--pin", "1000"]);
    assert!(error.contains("processor 1000"), "{error}");
    assert!(!Path::new("a.sock").exists(), "a socket is left by a daemon that did not start");
    for (setting, value) in [("--socket-mode", "999"), ("--socket-group", "no-such-group")] {
        assert!(refused(&["--function", function, setting, value]).contains(value));
    }
    let log = ["--function", "name=a,mac=52:54:00:00:00:0a,socket=a", "--log", "a=b=c"];
    assert!(refused(&log).contains("a=b=c"));
}

#[test]
fn help_explains_every_setting() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    for part in [
        "--function",
        "--port",
        "--uplink",
        "--control",
        "--config",
        "--workers",
        "--spin",
        "--pin",
        "vfio-user-pci",
        "SIGTERM",
    ] {
        assert!(text.contains(part), "{part} is missing");
    }
}

#[test]
fn check_neither_serves_nor_fails() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("a.sock");
    let function = format!("name=a,mac=52:54:00:00:00:0a,socket={}", path.display());
    assert!(run(&["--check", "--function", &function]).status.success());
    assert!(!Path::new(&path).exists());
}

/// Returns the processor time that a process has used so far, in clock ticks (proc_pid_stat(5),
/// fields 14 and 15).
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let fields = stat.rsplit(')').next().expect("fields after the name");
    fields.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().expect("number")).sum()
}

#[test]
fn an_idle_daemon_with_many_functions_sleeps() {
    let daemon = start(64);
    let guest = daemon.ready_guest(0);
    std::thread::sleep(Duration::from_millis(100));
    let before = ticks(daemon.pid());
    std::thread::sleep(Duration::from_secs(4));
    let used = ticks(daemon.pid()) - before;
    // 4 ticks of 10 ms in 4 s are one percent of a processor. More are allowed for unoptimised
    // builds.
    assert!(used <= 12, "{used} ticks in 4 s");
    drop(guest);
}

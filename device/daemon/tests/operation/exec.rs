//! `vrnic exec`, seen and changed by the command `vrnic`.
//!
//! Shows: views

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Returns the command `vrnic`. `vrnic exec` needs a file in the place of the plugin, which no
/// program here loads.
fn vrnic() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.env("VRNIC_PLUGIN", env!("CARGO_BIN_EXE_vrnic"));
    command
}

/// A `vrnic exec` whose program sleeps. It is ended at the end of the test.
struct Running {
    folder: TempDir,
    child: Child,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let mut command = vrnic();
        command.args(["exec", "-n", "2", "--sockets"]).arg(folder.path());
        let child = command.args(["--", "sleep", "1000"]).spawn().expect("vrnic runs");
        let this = Self { folder, child };
        let start = Instant::now();
        // The socket file exists before it takes clients.
        while UnixStream::connect(this.folder.path().join("control.sock")).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "there is no socket");
            std::thread::sleep(Duration::from_millis(10));
        }
        this
    }

    fn vrnic(&self, words: &str) -> Output {
        let words = words.split(' ');
        let mut command = vrnic();
        command.arg("--sockets").arg(self.folder.path()).args(words).output().expect("vrnic runs")
    }

    /// Returns what a command says, which must succeed.
    fn said(&self, words: &str) -> String {
        let output = self.vrnic(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {error}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns why a command is refused.
    fn refused(&self, words: &str) -> String {
        let output = self.vrnic(words);
        assert!(!output.status.success(), "{words}");
        String::from_utf8(output.stderr).expect("text")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _status = self.child.wait();
    }
}

#[test]
fn a_running_exec_is_shown() {
    let exec = Running::start();
    let shown = exec.said("show function");
    assert!(shown.contains("vrnic0") && shown.contains("52:54:00:0e:00:02"), "{shown}");
    assert!(exec.said("top --looks 1").contains("vrnic1"));
    assert!(exec.said("metrics").contains("vrnic_link_up{function=\"vrnic0\"} 1"));
    let resources = exec.said("resources --function vrnic1");
    assert!(resources.lines().any(|line| line.contains(" qp ")), "{resources}");
    assert!(exec.said("show counters").contains("tx_write_req"));
    for kind in ["qp", "cq", "eq", "srq", "mr", "connection", "port"] {
        exec.said(&format!("show {kind}"));
    }
}

#[test]
fn rules_are_added_to_a_running_exec_and_removed() {
    let exec = Running::start();
    assert_eq!(exec.said("fault add rnr function=vrnic1"), "rule 1\n");
    assert_eq!(exec.said("fault add delay by=1ms"), "rule 2\n");
    assert!(exec.said("fault list").contains("delay by=1ms"));
    assert!(exec.refused("fault add drop function=a").contains("'a'"));
    assert!(exec.refused("fault add drop-command").contains("guest"));
    exec.said("fault clear 1");
    assert!(exec.refused("fault clear 1").contains("no rule 1"));
    exec.said("fault clear");
    assert!(!exec.said("fault list").contains("delay"));
}

#[test]
fn what_an_exec_does_not_have_is_refused() {
    let exec = Running::start();
    assert!(exec.refused("function list").contains("exec"));
    assert!(exec.refused("assign qp=5").contains("exec"));
    assert!(exec.refused("trace 77 --function vrnic0").contains("77"));
    assert!(exec.refused("trace 77").contains("--function"));
    assert!(exec.refused("pcap --function a --write x").contains("'a'"));
    assert!(exec.refused("pcap --port vrnic0 --write x").contains("ports"));
}

#[test]
fn the_program_itself_finds_the_sockets() {
    let folder = tempfile::tempdir().expect("folder");
    let own = Path::new(env!("CARGO_BIN_EXE_vrnic"));
    let script = "\"$0\" show function && \"$0\" fault add rnr && \"$0\" fault list";
    let mut command = vrnic();
    command.env("XDG_RUNTIME_DIR", folder.path()).args(["exec", "--", "sh", "-c", script]).arg(own);
    let output = command.output().expect("vrnic runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("vrnic0") && text.contains("rnr"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0, "left behind");
}

#[test]
fn a_rule_that_the_program_removes_must_have_hit() {
    let own = Path::new(env!("CARGO_BIN_EXE_vrnic"));
    for clear in ["fault clear", "fault clear 1"] {
        let mut command = vrnic();
        command.args(["exec", "--must-hit", "--fault", "drop nth=5", "--", "sh", "-c"]);
        let output = command.arg(format!("\"$0\" {clear}")).arg(own).output().expect("vrnic runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{clear}: {text}");
        assert!(text.contains("'drop nth=5' has hit nothing"), "{clear}: {text}");
    }
}

#[test]
fn a_program_runs_without_adapters_if_that_is_permitted() {
    let run = |options: &[&str]| {
        let mut command = vrnic();
        command.env("VRNIC_PLUGIN", "/nowhere/libvrnic.so").arg("exec").args(options);
        let output = command.args(["--", "sh", "-c", "exit 5"]).output().expect("vrnic runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (status, text) = run(&[]);
    assert_eq!(status, Some(125), "{text}");
    let (status, text) = run(&["--optional"]);
    assert_eq!(status, Some(5), "{text}");
    assert!(text.contains("the program runs without adapters: ") && text.contains("nowhere"));
}

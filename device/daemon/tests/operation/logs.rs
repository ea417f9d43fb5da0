//! Repeated actions of guests, VMMs and netdevs do not fill the log.
//!
//! Shows: hostile

use vrnic_abi::regs::{self, Control, Status};
use vrnic_testdriver::vmm::daemon::Daemon;

use crate::common::start;

/// Number of times that each action is repeated.
const TIMES: usize = 300;
/// Maximum number of lines. Some lines are allowed every ten seconds, and the test may take several
/// times as long on a busy machine.
const LINES: usize = TIMES / 2;

/// Returns the number of lines of the log that contain a text.
fn lines(daemon: &Daemon, text: &str) -> usize {
    daemon.log().lines().filter(|line| line.contains(text)).count()
}

fn some_but_not_all(daemon: &Daemon, text: &str) {
    let lines = lines(daemon, text);
    assert!((1..=LINES).contains(&lines), "{lines} lines of '{text}'");
}

#[test]
fn a_guest_that_fails_and_resets_again_and_again() {
    let daemon = start(1);
    let guest = daemon.guest(0);
    for _ in 0..TIMES {
        guest.reset();
        // The admin rings have no size.
        guest.set_register(regs::CONTROL, Control::ENABLE.bits());
        guest.wait_status("failure", |status| status.contains(Status::FATAL));
    }
    some_but_not_all(&daemon, "does nothing until its next reset");
}

#[test]
fn a_netdev_that_comes_and_goes() {
    let daemon = start(1);
    for _ in 0..TIMES {
        drop(daemon.plug(0));
    }
    daemon.wait_for_log("link up");
    some_but_not_all(&daemon, "f0");
}

#[test]
fn a_vmm_that_comes_and_goes() {
    let daemon = start(1);
    for _ in 0..TIMES {
        drop(daemon.guest(0));
    }
    some_but_not_all(&daemon, "VMM connected");
    some_but_not_all(&daemon, "VMM disconnected");
}

//! What the tests share; not every test uses all of it.
#![allow(dead_code)]

use std::path::Path;

use vrnic_testdriver::daemon::Daemon;
use vrnic_testdriver::guest::Guest;

/// Starts a daemon with so many functions.
pub(crate) fn start(functions: usize) -> Daemon {
    start_with(functions, &[])
}

/// Starts a daemon with further arguments.
pub(crate) fn start_with(functions: usize, args: &[&str]) -> Daemon {
    Daemon::start(Path::new(env!("CARGO_BIN_EXE_vrnicd")), functions, args).expect("vrnicd starts")
}

/// Guests of functions 0 and 1, ready for commands.
pub(crate) fn pair(daemon: &Daemon) -> [Guest; 2] {
    [0, 1].map(|index| daemon.ready_guest(index).expect("bring-up"))
}

/// Bytes that repeat late and differ by `seed`.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 101) % 253) as u8).collect()
}

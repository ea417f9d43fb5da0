//! What the tests share; not every test uses all of it.
#![allow(dead_code)]

use std::path::Path;

use vrnic_testdriver::daemon::Daemon;

/// Starts a daemon with so many functions.
pub(crate) fn start(functions: usize) -> Daemon {
    start_with(functions, &[])
}

/// Starts a daemon with further arguments.
pub(crate) fn start_with(functions: usize, args: &[&str]) -> Daemon {
    Daemon::start(Path::new(env!("CARGO_BIN_EXE_vrnicd")), functions, args).expect("vrnicd starts")
}

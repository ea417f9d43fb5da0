//! The vrnic program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::CommandFactory;
use vrnic_device::cli::Args;

fn main() -> ExitCode {
    vrnic_cli::main(Args::command, vrnic_device::exec_switch::start)
}

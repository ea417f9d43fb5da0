//! Runs inside a guest and starts programs for the host.

use std::process::ExitCode;

fn main() -> ExitCode {
    match vrnic_qemu::agent::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrnic-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

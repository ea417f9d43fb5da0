// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Runs a command in a guest while a rule for faults of the guest's device is in force.

#![forbid(unsafe_code)]

use std::env;
use std::io;
use std::process::{Command, ExitCode};

use vrnicfault::Fault;

const USAGE: &str = "usage: vrnic-fault DEVICE RULE COMMAND [ARGUMENT…]
Adds the rule for the device, such as 'fail-request status=rem-op-err nth=3' for vrnic0, runs the
command, and removes the rule. The status is that of the command, or 125 if the rule has hit
nothing.";
/// The status if the rule is refused or has hit nothing.
const FAULTLESS: u8 = 125;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [device, rule, program, rest @ ..] = &arguments[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(FAULTLESS);
    };
    match run(device, rule, Command::new(program).args(rest)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("vrnic-fault: {rule}: {error}");
            ExitCode::from(FAULTLESS)
        }
    }
}

/// Runs the command under the rule. Returns its status.
fn run(device: &str, rule: &str, command: &mut Command) -> io::Result<u8> {
    let fault = Fault::arm(device, rule)?;
    let status = command.status()?;
    let hits = fault.hits()?;
    if hits == 0 {
        return Err(io::Error::other("the rule has hit nothing"));
    }
    eprintln!("vrnic-fault: {rule}: {hits} hits");
    // A command that a signal has ended has no status of its own.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAULTLESS))
}

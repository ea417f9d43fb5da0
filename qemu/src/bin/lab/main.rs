//! Runs a command in guests that have adapters, for programs that are not ours.
//!
//! | module | contents |
//! | --- | --- |
//! | [`args`] | the options |
//! | [`plan`] | what the options ask for, checked before a guest boots |
//! | [`course`] | the course of a run: commands, results, files |

#![forbid(unsafe_code)]

mod args;
mod course;
mod plan;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use vrnic_qemu::fleet::Fleet;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::machine::signals;
use vrnic_qemu::machine::terminal::attach;

use crate::args::Args;
use crate::course::{Steps, Work};
use crate::plan::Plan;

/// Exit status when the guests or the daemon fail, and not the command.
const BROKEN: u8 = 125;

fn main() -> ExitCode {
    match lab(&Args::parse()) {
        // CAST: a status of a process has 8 bits.
        Ok(code) => ExitCode::from((code & 0xff) as u8),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(BROKEN)
        }
    }
}

/// Boots the guests and runs the commands. Returns the status.
fn lab(args: &Args) -> Result<i32> {
    if let Some(socket) = &args.enter {
        attach(socket, "")?;
        return Ok(0);
    }
    ensure!(
        !args.shell || io::stdin().is_terminal(),
        "--shell needs a terminal, and standard input is none; give a command instead"
    );
    if args.saves() {
        let args = args.clone();
        signals::before_the_end(move |why| course::not_started(&args, why));
    }
    let (fleet, work, steps) =
        start(args).inspect_err(|error| course::not_started(args, &format!("{error:#}")))?;
    course::run(args, &fleet, &work, steps)
}

/// Boots the guests, if the options fit together. Returns them, what they run, and the time that
/// the preparation took.
fn start(args: &Args) -> Result<(Fleet, Work, Steps)> {
    let Plan { options, job, scenario, steps } = Plan::new(args)?;
    let (image, packages) = (args.image, args.packages.join(" "));
    step(format!("booting {} guests of the {image:?} image {packages}", args.guests));
    let fleet = Fleet::boot(options, args.pcap.is_some() || scenario.is_some())?;
    step(format!("all guests are up, under {:?}", fleet.accel()));
    Ok((fleet, Work { job, scenario }, steps))
}

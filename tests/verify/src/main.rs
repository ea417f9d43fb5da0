//! Tests an RDMA device through public libibverbs: data integrity, completion semantics, errors,
//! limits, hostile programs. Needs two ends that reach each other, which may be the same machine:
//!
//! ```text
//! b$ vrnic-verify serve
//! a$ vrnic-verify run --b 10.9.0.2:7471
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`suite`] | the cases: what must be true of a device |
//! | [`rpc`] | how cases command agents |
//! | [`agent`] | the processes that own verbs objects, on both ends |

#![forbid(unsafe_code)]

mod agent;
mod rpc;
mod suite;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use rpc::client::Place;
use rpc::process::Start;
use suite::runner::{self, Filter};

/// Tests an RDMA device through libibverbs.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the cases. Prints one line for each (`ok NAME` or `FAIL NAME: reason`), and a sum at the
    /// end.
    Run(Run),
    /// Print the names of the cases.
    List(Selection),
    /// Listen, and start agents for the other end.
    Serve {
        /// Address to listen on.
        #[arg(long, default_value = "0.0.0.0:7471")]
        listen: SocketAddr,
    },
    /// Be an agent, commanded through standard input (a socket).
    #[command(hide = true)]
    Agent {
        /// Use the extended interfaces, as `run --extended` does.
        #[arg(long)]
        extended: bool,
    },
}

#[derive(Debug, Args)]
struct Run {
    /// Machine of end a: "spawn" for this one, or ADDRESS:PORT of a `serve`.
    #[arg(long, default_value = "spawn")]
    a: Place,
    /// Machine of end b, in the same form.
    #[arg(long, default_value = "spawn")]
    b: Place,
    /// Name of the RDMA device at both ends. Needed if there are several.
    #[arg(long)]
    device: Option<String>,
    /// Memory of send queues: the value of VRNIC_SQ for the agents.
    #[cfg(feature = "vrnic")]
    #[arg(long, value_parser = ["guest", "device"])]
    sq: Option<String>,
    /// Use the extended interfaces to create CQs and QPs, to poll and to post.
    #[arg(long)]
    extended: bool,
    /// Print the time that each case took, on standard error.
    #[arg(long)]
    times: bool,
    #[command(flatten)]
    selection: Selection,
}

#[derive(Debug, Args)]
struct Selection {
    /// Run only cases with this text in their name. May be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Skip cases with this text in their name. May be repeated.
    #[arg(long)]
    skip: Vec<String>,
    /// Also test 1 GiB messages, which need 1.2 GiB of free memory at both ends.
    #[arg(long)]
    huge: bool,
}

impl From<Selection> for Filter {
    fn from(selection: Selection) -> Self {
        Self { only: selection.only, skip: selection.skip, huge: selection.huge }
    }
}

fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("vrnic-verify: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn execute(command: Command) -> Result<bool> {
    match command {
        Command::Run(run) => {
            let start = Start {
                #[cfg(feature = "vrnic")]
                sq: run.sq,
                extended: run.extended,
            };
            let setup = suite::Setup { places: [run.a, run.b], device: run.device, start };
            runner::run(&setup, &run.selection.into(), run.times)
        }
        Command::List(selection) => {
            runner::list(&selection.into());
            Ok(true)
        }
        Command::Serve { listen } => {
            rpc::process::serve(listen)?;
            Ok(true)
        }
        Command::Agent { extended } => {
            agent::process::run(extended)?;
            Ok(true)
        }
    }
}

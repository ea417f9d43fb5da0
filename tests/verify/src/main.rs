//! Tests an RDMA device through public libibverbs: data integrity, completion semantics, errors,
//! limits, hostile programs. Needs two ends that can reach each other, which may be the same
//! machine:
//!
//! ```text
//! b$ vrnic-verify serve
//! a$ vrnic-verify run --b 10.9.0.2:7471
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | [`suite`] | the cases |
//! | [`rpc`] | how cases command agents |
//! | [`agent`] | the processes that own verbs objects, on both ends |

#![forbid(unsafe_code)]

mod agent;
mod rpc;
mod suite;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;

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
    /// Run the cases. Prints one line for each (`ok NAME`, `FAIL NAME: reason` or `skip NAME:
    /// reason`), and a sum at the end.
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
    /// Connect QPs by the RDMA connection manager, as iWARP needs it: the IPv4 addresses of the
    /// devices of ends a and b, with a comma between them. Skips the cases of what iWARP lacks.
    #[arg(long, value_name = "A,B")]
    cm: Option<Addresses>,
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

/// Addresses of two ends.
#[derive(Clone, Copy, Debug)]
struct Addresses([Ipv4Addr; 2]);

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed =
            text.split_once(',').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
        parsed
            .map(Self)
            .ok_or_else(|| format!("{text}: want two IPv4 addresses, such as 10.9.0.1,10.9.0.2"))
    }
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
        let Selection { only, skip, huge } = selection;
        Self { only, skip, huge, managed: false }
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
            let (places, cm) = ([run.a, run.b], run.cm.map(|addresses| addresses.0));
            let setup = suite::Setup { places, device: run.device, cm, start };
            let filter = Filter { managed: cm.is_some(), ..run.selection.into() };
            runner::run(&setup, &filter, run.times)
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

//! `vrnic`: looks at the adapters of a running vrnicd.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`client`] | asking the daemon |
//! | [`show`] | tables of objects |
//! | [`top`] | rates, again and again |

mod client;
mod show;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::client::Client;
use crate::show::Kind;

/// Looks at the adapters of a running vrnicd (started with --monitor).
#[derive(Debug, Parser)]
#[command(name = "vrnic", version)]
struct Args {
    /// Where the daemon answers: a path or ADDRESS:PORT
    #[arg(short, long, env = "VRNIC_MONITOR", default_value = "/run/vrnic/monitor.sock")]
    monitor: vrnic_device::monitor::Address,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show objects
    Show {
        /// What to show
        kind: Kind,
        /// Of this function only
        #[arg(short, long)]
        function: Option<String>,
        /// As JSON: an array with one object for each function, named, with its objects
        #[arg(long)]
        json: bool,
    },
    /// Show rates of all functions, again and again
    Top {
        /// Seconds between two looks
        #[arg(short, long, default_value_t = 1.0, value_parser = top::parse_interval)]
        interval: f64,
        /// Looks before the end; 0 for no end
        #[arg(short = 'n', long, default_value_t = 0)]
        looks: u64,
    },
    /// Print the metrics that Prometheus would get
    Metrics,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrnic: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let client = Client::new(args.monitor)?;
    match args.command {
        Command::Show { kind, function, json } => show::show(&client, kind, function, json),
        Command::Top { interval, looks } => top::top(&client, interval, looks),
        Command::Metrics => client.get("/metrics").map(|text| print!("{text}")),
    }
}

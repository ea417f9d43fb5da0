//! `vrnic`: shows the adapters of a running vrnicd.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`client`] | requests to the daemon |
//! | [`columns`] | columns of tables of objects |
//! | [`show`] | tables of objects |
//! | [`top`] | rates, refreshed |

mod client;
mod columns;
mod show;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::client::Client;
use crate::show::Kind;

/// Shows the adapters of a running vrnicd, which must have been started with --monitor.
#[derive(Debug, Parser)]
#[command(name = "vrnic", version)]
struct Args {
    /// Path or ADDRESS:PORT that was given to vrnicd --monitor
    #[arg(short, long, env = "VRNIC_MONITOR", default_value = "/run/vrnic/monitor.sock")]
    monitor: vrnic_device::socket::Address,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show adapters, queues, keys or counters
    Show {
        /// Kind of object
        kind: Kind,
        /// Show this function only
        #[arg(short, long)]
        function: Option<String>,
        /// Print JSON: an array with an entry for each function, which has its name and its objects
        #[arg(long)]
        json: bool,
    },
    /// Show the rates of all functions, and refresh them
    Top {
        /// Seconds between two refreshes
        #[arg(short, long, default_value_t = 1.0, value_parser = top::parse_interval)]
        interval: f64,
        /// Number of refreshes; 0 means until interrupted
        #[arg(short = 'n', long, default_value_t = 0)]
        looks: u64,
    },
    /// Print the metrics in the form that Prometheus reads
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

//! The vrnicd program.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;
use vrnic_device::cli::Args;
use vrnic_device::config::Config;
use vrnic_device::daemon::Daemon;
use vrnic_device::descriptors;
use vrnic_device::watchdog::tell_systemd;

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrnicd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    let config = Config::new(args.settings, args.config.as_deref())?;
    let filter = EnvFilter::try_new(&config.log)
        .with_context(|| format!("log filter '{}' is not valid", config.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if args.check {
        return Ok(());
    }
    descriptors::make_room(&config);
    // Before the sockets exist, so that no signal leaves them behind.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot install signal handlers")?;
    let mut daemon = Daemon::start(&config)?;
    tell_systemd(&[NotifyState::Ready]);
    if let Some(interval) = sd_notify::watchdog_enabled() {
        daemon.start_watchdog(interval)?;
    }
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "the daemon ends, on a signal");
    }
    tell_systemd(&[NotifyState::Stopping]);
    drop(daemon);
    Ok(())
}

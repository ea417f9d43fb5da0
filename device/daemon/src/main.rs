//! The vrnicd program.
#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;
use vrnic_device::cli::Args;
use vrnic_device::config::Config;
use vrnic_device::daemon::Daemon;
use vrnic_device::daemon::descriptors;
use vrnic_device::daemon::watchdog::tell_systemd;
use vrnic_device::os::journal::Output;
use vrnic_device::os::sys;

/// Replaces the log filter.
type SetFilter = Box<dyn Fn(EnvFilter) -> anyhow::Result<()>>;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vrnicd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let (config, filter) = read(args)?;
    let set_filter = start_log(filter);
    if args.check {
        return Ok(());
    }
    descriptors::make_room(&config);
    sys::keep_memory();
    // Installed before the sockets exist, so that a signal never leaves socket files behind.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let mut signals = signals.context("cannot install signal handlers")?;
    let mut daemon = Daemon::start(&config)?;
    tell_systemd(&[NotifyState::Ready]);
    if let Some(interval) = sd_notify::watchdog_enabled() {
        daemon.start_watchdog(interval)?;
    }
    for signal in &mut signals {
        // Without a file there is nothing to read again, and SIGHUP means that the terminal was
        // closed.
        if signal != SIGHUP || args.config.is_none() {
            tracing::info!(signal, "the daemon ends because of a signal");
            break;
        }
        tell_reloading();
        if let Err(error) = reload(args, &mut daemon, &set_filter) {
            tracing::error!("the settings were not reloaded: {error:#}");
        }
        tell_systemd(&[NotifyState::Ready]);
    }
    tell_systemd(&[NotifyState::Stopping]);
    // A second signal ends the wait.
    daemon.drain(|| signals.pending().any(|signal| signal != SIGHUP));
    drop(daemon);
    Ok(())
}

/// Reads the settings, and parses the log filter in them.
fn read(args: &Args) -> anyhow::Result<(Config, EnvFilter)> {
    let config = Config::new(args.settings.clone(), args.config.as_deref())?;
    let filter = EnvFilter::try_new(&config.log)
        .with_context(|| format!("log filter '{}' is not valid", config.log))?;
    Ok((config, filter))
}

/// Starts the log.
fn start_log(filter: EnvFilter) -> SetFilter {
    let output = Output::new();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(output)
        .with_timer(output)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter_reloading();
    let handle = log.reload_handle();
    log.init();
    Box::new(move |filter| Ok(handle.reload(filter)?))
}

/// Reads the settings again, and applies what can change in a running daemon.
fn reload(args: &Args, daemon: &mut Daemon, set_filter: &SetFilter) -> anyhow::Result<()> {
    let (config, filter) = read(args)?;
    set_filter(filter).context("the log filter cannot be replaced")?;
    tracing::info!(log = config.log, "the settings are reloaded");
    daemon.reload(config);
    Ok(())
}

/// Tells systemd that the settings are being reloaded. The message contains the time.
fn tell_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell_systemd(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "systemd cannot be notified of the reload"),
    }
}

//! The timeline of a queue pair.

use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use vrnic_control::timeline::perfetto::Perfetto;
use vrnic_control::timeline::text::line;
use vrnic_control_api::request::{Reply, Request};
use vrnic_control_api::trace::{TraceCommand, TraceView};

use crate::change::ask;

/// Time between two requests for records.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The most seconds of a trace.
const SECONDS_MAX: u64 = 86_400;

/// What to trace, and for how long.
///
/// A trace costs time for each step of the function, and nothing when there is none. One queue pair
/// of a function can be traced at a time.
#[derive(Debug, clap::Args)]
pub(crate) struct Trace {
    /// Number of the queue pair, as `vrnic show qp` has it
    qp: u32,
    /// Function of the queue pair; needed unless the daemon has one function only
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// End after so many seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// End after so many steps
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    count: usize,
    /// Write a file that Perfetto and chrome://tracing read, instead of lines of text
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

/// Prints the steps of a queue pair, or writes them to a file.
pub(crate) fn run(control: &Path, trace: &Trace) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut file = trace.perfetto.as_deref().map(create).transpose()?;
    let send = |command| tell(control, trace.function.clone(), command);
    send(TraceCommand::Begin { qp: trace.qp })?;
    eprintln!("tracing; Ctrl-C ends it");
    let end = Instant::now() + Duration::from_secs(trace.seconds);
    let (mut left, mut lost, mut last) = (trace.count, 0, None);
    while left > 0 {
        let over = stop.load(Ordering::Relaxed) || Instant::now() >= end;
        let TraceView { records, lost: more, empty } = send(TraceCommand::Take)?;
        lost += more;
        for record in records.iter().take(left) {
            match &mut file {
                Some(file) => file.add(1, None, record)?,
                None => writeln!(stdout(), "{}", line(None, record, last)?)
                    .context("the steps cannot be printed")?,
            }
            last = Some(record.ns);
        }
        left -= records.len().min(left);
        if empty && over {
            break;
        }
        if empty {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    send(TraceCommand::End)?;
    file.map(Perfetto::end).transpose()?;
    eprintln!("{} steps; {lost} were lost", trace.count - left);
    Ok(())
}

/// Sends a command. Returns the records of the reply.
fn tell(
    control: &Path,
    function: Option<String>,
    command: TraceCommand,
) -> anyhow::Result<TraceView> {
    match ask(control, &Request::Trace { function, command })? {
        Reply::Done => Ok(TraceView::default()),
        Reply::Traced(view) => Ok(view),
        Reply::Refused(why) => bail!("the daemon refused this: {why}"),
        other => bail!("unexpected reply from the daemon: {other:?}"),
    }
}

/// Begins a file for Perfetto.
fn create(path: &Path) -> anyhow::Result<Perfetto<BufWriter<File>>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Perfetto::new(BufWriter::new(file))
}

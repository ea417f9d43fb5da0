//! The timeline of a queue pair.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use vrnic_control_api::request::{Reply, Request};
use vrnic_control_api::trace::{TraceCommand, TraceRecord, TraceStep, TraceView};

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
    let mut file = trace.perfetto.as_deref().map(Perfetto::create).transpose()?;
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
                Some(file) => file.add(record)?,
                None => print(record, last)?,
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

/// Returns the name of a step, and its values.
fn parts(record: &TraceRecord) -> anyhow::Result<(String, Map<String, Value>)> {
    let Value::Object(mut values) = serde_json::to_value(&record.step)? else {
        bail!("a step has no values");
    };
    let name = values.remove("step").unwrap_or_default();
    values.retain(|_, value| !value.is_null() && *value != Value::Bool(false));
    Ok((name.as_str().unwrap_or_default().to_owned(), values))
}

/// Prints a step: its time, the time since the one before, its name and its values.
fn print(record: &TraceRecord, last: Option<u64>) -> anyhow::Result<()> {
    let (name, values) = parts(record)?;
    let since = record.ns.saturating_sub(last.unwrap_or(record.ns));
    let mut line = format!("{} {since:>+12} {name:<12}", record.ns);
    for (key, value) in values {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line += &format!(" {key}={text}");
    }
    writeln!(stdout(), "{}", line.trim_end()).context("the steps cannot be printed")
}

/// A file of events in the form of Chrome's traces: a track of the queue pair's steps, one of its
/// packets, and a bar for each work request from its fetch to its completion.
struct Perfetto {
    out: BufWriter<File>,
    empty: bool,
    /// The times at which requests without a completion were read, and their descriptions.
    open: HashMap<u32, (u64, Value)>,
}

/// Numbers of the tracks.
const STEPS: u32 = 1;
const PACKETS: u32 = 2;
const REQUESTS: u32 = 3;

impl Perfetto {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let out = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut this = Self { out: BufWriter::new(out), empty: true, open: HashMap::new() };
        write!(this.out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        for (track, name) in [(STEPS, "steps"), (PACKETS, "packets"), (REQUESTS, "work requests")] {
            let args = json!({ "name": name });
            this.write(&json!({
                "name": "thread_name", "ph": "M", "pid": 1, "tid": track, "args": args
            }))?;
        }
        Ok(this)
    }

    fn write(&mut self, event: &Value) -> anyhow::Result<()> {
        let comma = if std::mem::take(&mut self.empty) { "" } else { "," };
        write!(self.out, "{comma}\n{event}").context("the file cannot be written")
    }

    fn add(&mut self, record: &TraceRecord) -> anyhow::Result<()> {
        let (name, values) = parts(record)?;
        let track = match &record.step {
            TraceStep::Sent(_) | TraceStep::Received(_) => PACKETS,
            _ => STEPS,
        };
        match &record.step {
            TraceStep::Fetch { index, .. } => {
                // A request that waits is read again.
                let new = (record.ns, Value::Object(values.clone()));
                self.open.entry(*index).or_insert(new);
            }
            // Receives have indices of their own.
            TraceStep::Completion { index, opcode, .. } if !opcode.starts_with("recv") => {
                if let Some((from, args)) = self.open.remove(index) {
                    let took = micros(record.ns.saturating_sub(from));
                    let name = args["opcode"].clone();
                    self.write(&json!({
                        "name": name, "ph": "X", "pid": 1, "tid": REQUESTS,
                        "ts": micros(from), "dur": took, "args": args
                    }))?;
                }
            }
            _ => {}
        }
        self.write(&json!({
            "name": name, "ph": "i", "s": "t", "pid": 1, "tid": track,
            "ts": micros(record.ns), "args": values
        }))
    }

    fn end(mut self) -> anyhow::Result<()> {
        write!(self.out, "\n]}}\n").and_then(|()| self.out.flush())?;
        Ok(())
    }
}

/// Returns nanoseconds as microseconds, of which the file's form is made.
fn micros(ns: u64) -> f64 {
    // CAST: the clock counts from the start of the daemon, so nothing is lost for 100 days.
    ns as f64 / 1000.0
}

//! Steps as a file in the form of Chrome's traces, which Perfetto reads: for each queue pair a
//! track of its steps, one of its packets, and a bar for each work request from its fetch to its
//! completion.

use std::collections::{HashMap, HashSet};
use std::io::Write;

use anyhow::Context;
use serde_json::{Value, json};
use vrnic_control_api::trace::{TraceRecord, TraceStep};

use super::text::parts;

/// Numbers of the tracks of a queue pair, and their names.
const STEPS: u64 = 1;
const PACKETS: u64 = 2;
const REQUESTS: u64 = 3;
const TRACKS: [(u64, &str); 3] =
    [(STEPS, "steps"), (PACKETS, "packets"), (REQUESTS, "work requests")];

/// A work request: the number of its function, its queue pair and its index.
type Open = (u64, Option<u32>, u32);

/// A file that is being written.
#[derive(Debug)]
pub struct Perfetto<W> {
    out: W,
    empty: bool,
    /// The functions and queue pairs whose tracks have names.
    named: HashSet<(u64, Option<u32>)>,
    /// The times at which requests without a completion were read, and their descriptions.
    open: HashMap<Open, (u64, Value)>,
}

impl<W: Write> Perfetto<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Returns the error of writing.
    pub fn new(mut out: W) -> anyhow::Result<Self> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Self { out, empty: true, named: HashSet::new(), open: HashMap::new() })
    }

    fn write(&mut self, event: &Value) -> anyhow::Result<()> {
        let comma = if std::mem::take(&mut self.empty) { "" } else { "," };
        write!(self.out, "{comma}\n{event}").context("the file cannot be written")
    }

    /// Writes the names of the tracks of a queue pair.
    fn name(&mut self, pid: u64, function: Option<&str>, qp: Option<u32>) -> anyhow::Result<()> {
        if !self.named.insert((pid, qp)) {
            return Ok(());
        }
        if let Some(function) = function {
            let args = json!({ "name": function });
            self.write(&json!({ "name": "process_name", "ph": "M", "pid": pid, "args": args }))?;
        }
        for (track, name) in TRACKS {
            let name = qp.map_or_else(|| name.to_owned(), |qp| format!("QP {qp}: {name}"));
            let (tid, args) = (tid(qp, track), json!({ "name": name }));
            self.write(&json!({
                "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": args
            }))?;
        }
        Ok(())
    }

    /// Writes a step of the function with the number `pid`, and its name if there is one.
    ///
    /// # Errors
    /// Returns the error of writing.
    pub fn add(
        &mut self,
        pid: u64,
        function: Option<&str>,
        record: &TraceRecord,
    ) -> anyhow::Result<()> {
        let (name, values) = parts(record)?;
        let qp = record.qp;
        self.name(pid, function, qp)?;
        let track = match &record.step {
            TraceStep::Sent(_) | TraceStep::Received(_) => PACKETS,
            _ => STEPS,
        };
        match &record.step {
            TraceStep::Fetch { index, .. } => {
                // A request that waits is read again.
                let new = (record.ns, Value::Object(values.clone()));
                self.open.entry((pid, qp, *index)).or_insert(new);
            }
            // Receives have indices of their own.
            TraceStep::Completion { index, opcode, .. } if !opcode.starts_with("recv") => {
                if let Some((from, args)) = self.open.remove(&(pid, qp, *index)) {
                    let took = micros(record.ns.saturating_sub(from));
                    let name = args["opcode"].clone();
                    self.write(&json!({
                        "name": name, "ph": "X", "pid": pid, "tid": tid(qp, REQUESTS),
                        "ts": micros(from), "dur": took, "args": args
                    }))?;
                }
            }
            _ => {}
        }
        self.write(&json!({
            "name": name, "ph": "i", "s": "t", "pid": pid, "tid": tid(qp, track),
            "ts": micros(record.ns), "args": values
        }))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Returns the error of writing.
    pub fn end(mut self) -> anyhow::Result<()> {
        write!(self.out, "\n]}}\n").and_then(|()| self.out.flush())?;
        Ok(())
    }
}

/// Returns the number of a track of a queue pair.
fn tid(qp: Option<u32>, track: u64) -> u64 {
    u64::from(qp.unwrap_or(0)) * (TRACKS.len() as u64 + 1) + track
}

/// Returns nanoseconds as microseconds, of which the file's form is made.
fn micros(ns: u64) -> f64 {
    // CAST: the clock counts from the start of the process, so nothing is lost for 100 days.
    ns as f64 / 1000.0
}

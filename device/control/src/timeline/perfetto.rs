//! Steps as a file in the form of Chrome's traces, which Perfetto reads: for each queue pair a
//! track of its steps, one of its packets, and a bar for each work request from its fetch to its
//! completion.

use std::collections::{HashMap, HashSet, VecDeque};
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

/// Maximum number of requests of a queue pair that are shown as open.
const MAX_OPEN: usize = 1 << 16;

/// A work request that was read, and has no completion yet.
#[derive(Debug)]
struct Open {
    index: u32,
    /// When it was read.
    from: u64,
    /// The description of the request.
    args: Value,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Perfetto<W> {
    out: W,
    empty: bool,
    /// The functions and queue pairs whose tracks have names.
    named: HashSet<(u64, Option<u32>)>,
    /// The requests of each function and queue pair that have no completion yet, the oldest first.
    open: HashMap<(u64, Option<u32>), VecDeque<Open>>,
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

    /// Takes the requests that a completion is for: that with this index, and the earlier ones,
    /// which are unsignaled.
    fn completed(&mut self, pid: u64, qp: Option<u32>, index: u32) -> Vec<Open> {
        let Some(open) = self.open.get_mut(&(pid, qp)) else { return Vec::new() };
        let later = open.iter().position(|open| is_after(open.index, index));
        let count = later.unwrap_or(open.len());
        open.drain(..count).collect()
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
                let open = self.open.entry((pid, qp)).or_default();
                if open.back().is_none_or(|last| is_after(*index, last.index)) {
                    if open.len() == MAX_OPEN {
                        open.pop_front();
                    }
                    let args = Value::Object(values.clone());
                    open.push_back(Open { index: *index, from: record.ns, args });
                }
            }
            // Receives have indices of their own.
            TraceStep::Completion { index, opcode, .. } if !opcode.starts_with("recv") => {
                for Open { from, args, .. } in self.completed(pid, qp, *index) {
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

/// Returns whether an index, which counts modulo 2³², comes after another.
fn is_after(index: u32, other: u32) -> bool {
    (1..=u32::MAX / 2).contains(&index.wrapping_sub(other))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A completion ends the bars of the unsignaled requests before it, too, so none stay in
    /// memory.
    #[test]
    fn requests_without_completions_end_with_the_next_one() {
        let mut out = Vec::new();
        let mut file = Perfetto::new(&mut out).expect("written");
        let step = |step| TraceRecord { ns: 5, qp: Some(7), step };
        for index in [u32::MAX, 0, 1, 1, 2] {
            let opcode = "write".to_owned();
            let fetch = TraceStep::Fetch { index, wr_id: 0, opcode, bytes: 8 };
            file.add(1, None, &step(fetch)).expect("written");
        }
        let (opcode, status) = ("write".to_owned(), "success".to_owned());
        let completion = TraceStep::Completion { index: 1, wr_id: 0, opcode, status, cq: 3 };
        file.add(1, None, &step(completion)).expect("written");
        let left: Vec<_> = file.open.values().flatten().map(|open| open.index).collect();
        assert_eq!(left, [2]);
        file.end().expect("written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.matches("\"ph\":\"X\"").count(), 3, "{text}");
    }
}

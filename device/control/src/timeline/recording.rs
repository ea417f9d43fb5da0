//! The timelines of all queue pairs of some adapters in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::Host;
use vrnic_control_api::trace::TraceRecord;

use super::perfetto::Perfetto;
use super::{steps, text};

/// Time between two looks at records.
const INTERVAL: Duration = Duration::from_millis(10);

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines of text.
    Text,
    /// JSON that Perfetto and chrome://tracing read.
    Perfetto,
}

/// The traces of adapters, which a thread writes into a file.
#[derive(Debug)]
pub struct Timelines {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<u64>>,
}

impl Timelines {
    /// Begins to trace all queue pairs of these adapters, also those that are created later.
    ///
    /// # Errors
    /// Returns an error if the adapters are traced already, or if no thread can be started.
    pub fn begin<H: Host>(
        adapters: Vec<Arc<Adapter<H>>>,
        file: File,
        form: Form,
    ) -> anyhow::Result<Self> {
        for adapter in &adapters {
            adapter.begin_trace_of_all()?;
        }
        let mut out = Out::new(BufWriter::new(file), form)?;
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let work = move || {
            let mut lost = 0;
            loop {
                // Steps that come before this are taken.
                let last = seen.load(Ordering::SeqCst);
                lost += take(&adapters, &mut out)?;
                if last {
                    break;
                }
                std::thread::sleep(INTERVAL);
            }
            adapters.iter().for_each(|adapter| adapter.end_trace());
            out.end().map(|()| lost)
        };
        let thread = std::thread::Builder::new().name("timelines".into()).spawn(work);
        Ok(Self { ends, thread: thread.context("cannot start a thread")? })
    }

    /// Ends the traces. Returns the number of steps that are not in the file, because they came
    /// faster than they could be written.
    ///
    /// # Errors
    /// Returns the error of writing the file.
    pub fn end(self) -> anyhow::Result<u64> {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| anyhow!("the thread of the timelines has panicked"))?
    }
}

/// Writes the records that wait, in the order of their times. Returns the number of those that were
/// lost.
fn take<H: Host>(adapters: &[Arc<Adapter<H>>], out: &mut Out) -> anyhow::Result<u64> {
    let (mut all, mut lost) = (Vec::new(), 0);
    for (number, adapter) in adapters.iter().enumerate() {
        match adapter.take_trace(usize::MAX) {
            Some(taken) => {
                lost += taken.lost;
                all.extend(taken.records.iter().flat_map(steps).map(|record| (number, record)));
            }
            // This process was stopped for long.
            None => adapter.begin_trace_of_all()?,
        }
    }
    all.sort_by_key(|(_, record)| record.ns);
    for (number, record) in &all {
        let name = adapters.get(*number).map(|adapter| adapter.name());
        out.add(*number as u64, name.unwrap_or_default(), record)?;
    }
    Ok(lost)
}

/// The file.
enum Out {
    Text { out: BufWriter<File>, last: Option<u64> },
    Perfetto(Perfetto<BufWriter<File>>),
}

impl Out {
    fn new(out: BufWriter<File>, form: Form) -> anyhow::Result<Self> {
        Ok(match form {
            Form::Text => Self::Text { out, last: None },
            Form::Perfetto => Self::Perfetto(Perfetto::new(out)?),
        })
    }

    fn add(&mut self, number: u64, name: &str, record: &TraceRecord) -> anyhow::Result<()> {
        match self {
            Self::Text { out, last } => {
                writeln!(out, "{}", text::line(Some(name), record, *last)?)?;
                *last = Some(record.ns);
                Ok(())
            }
            Self::Perfetto(file) => file.add(number + 1, Some(name), record),
        }
    }

    fn end(self) -> anyhow::Result<()> {
        match self {
            Self::Text { mut out, .. } => Ok(out.flush()?),
            Self::Perfetto(file) => file.end(),
        }
    }
}

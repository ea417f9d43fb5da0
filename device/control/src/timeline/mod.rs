//! The timeline of a queue pair, for clients of the control socket, and of all queue pairs, for a
//! file.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`text`] | steps as lines of text |
//! | [`perfetto`] | steps as a file for Perfetto |
//! | [`recording`] | the timelines of all queue pairs in a file |

pub mod perfetto;
pub mod recording;
pub mod text;

use std::sync::Arc;

use anyhow::{Context, ensure};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::Host;
use vrnic_adapter::objects::faults::trace::{Record, Records, Step};
use vrnic_control_api::request::Reply;
use vrnic_control_api::trace::{TraceCommand, TracePacket, TraceRecord, TraceStep, TraceView};
use vrnic_faults::names::name_of;

/// The most records of a reply.
const MAX_RECORDS: usize = 4096;

/// Executes a command for the trace of the adapter of a function. Without the function's name it is
/// the only adapter.
///
/// # Errors
/// Says that there is no such adapter, why the queue pair cannot be traced, or that the trace has
/// ended.
pub fn execute<'a, H: Host>(
    adapters: impl Iterator<Item = &'a Arc<Adapter<H>>>,
    function: Option<&str>,
    command: &TraceCommand,
) -> anyhow::Result<Reply> {
    let mut named = adapters.filter(|it| function.is_none_or(|name| it.name() == name));
    let adapter = named.next().with_context(|| match function {
        Some(name) => format!("there is no function '{name}'"),
        None => "there is no function".to_owned(),
    })?;
    ensure!(named.next().is_none(), "there are several functions: use --function");
    match *command {
        TraceCommand::Begin { qp } => adapter.begin_trace(qp)?,
        TraceCommand::Take => {
            let taken = adapter.take_trace(MAX_RECORDS).context("the trace has ended")?;
            return Ok(Reply::Traced(view(&taken)));
        }
        TraceCommand::End => adapter.end_trace(),
    }
    Ok(Reply::Done)
}

fn view(Records { records, lost }: &Records) -> TraceView {
    let empty = records.len() < MAX_RECORDS;
    let mut records: Vec<_> = records.iter().flat_map(steps).collect();
    // It is the one that the client has named.
    records.iter_mut().for_each(|record| record.qp = None);
    TraceView { records, lost: *lost, empty }
}

/// Returns the steps of a record for clients: the last part of a message that is copied is also its
/// acknowledgement.
fn steps(Record { at, qpn, step }: &Record) -> impl Iterator<Item = TraceRecord> + use<> {
    let (ns, qp) = (at.0, qpn.map(|qpn| qpn.get()));
    let record = move |step| TraceRecord { ns, qp, step };
    let acknowledged = match *step {
        Step::Copy { index, last: true, .. } => Some(TraceStep::Acknowledged { index }),
        _ => None,
    };
    [Some(record(step_of(step))), acknowledged.map(record)].into_iter().flatten()
}

fn step_of(step: &Step) -> TraceStep {
    match *step {
        Step::Doorbell => TraceStep::Doorbell,
        Step::Turn { worker } => TraceStep::Turn { worker },
        Step::Fetch { index, wr_id, opcode, bytes } => {
            TraceStep::Fetch { index, wr_id, opcode: name_of(&opcode), bytes }
        }
        Step::Copy { index, from, to, .. } => TraceStep::Copy { index, from, to },
        Step::Packet { leaves, opcode, psn, bytes } => {
            let packet = TracePacket { opcode: opcode.map(|it| it.to_string()), psn, bytes };
            if leaves { TraceStep::Sent(packet) } else { TraceStep::Received(packet) }
        }
        Step::Completion { index, wr_id, opcode, status, cqn } => TraceStep::Completion {
            index,
            wr_id,
            opcode: name_of(&opcode),
            status: name_of(&status),
            cq: cqn.get(),
        },
        Step::Event { kind, id, eqn, held } => {
            TraceStep::Event { kind: name_of(&kind), id, eq: eqn.get(), held }
        }
        Step::Interrupt { vector, held } => TraceStep::Interrupt { vector, held },
    }
}

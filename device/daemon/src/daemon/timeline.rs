//! The timeline of a queue pair, for clients of the control socket.

use anyhow::Context;
use vrnic_adapter::objects::faults::trace::{Record, Records, Step};
use vrnic_control_api::request::Reply;
use vrnic_control_api::trace::{TraceCommand, TracePacket, TraceRecord, TraceStep, TraceView};
use vrnic_faults::names::name_of;

use super::functions::Function;
use super::running::Running;

/// The most records of a reply.
const MAX_RECORDS: usize = 4096;

impl Running {
    /// Executes a command for the trace of a function. Without a name it is the only function.
    pub(super) fn trace(
        &self,
        function: Option<&str>,
        command: &TraceCommand,
    ) -> anyhow::Result<Reply> {
        let state = self.state.lock();
        let mut named =
            state.functions.iter().filter(|it| function.is_none_or(|name| it.name() == name));
        let found = named.next().with_context(|| match function {
            Some(name) => format!("there is no function '{name}'"),
            None => "there is no function".to_owned(),
        })?;
        anyhow::ensure!(named.next().is_none(), "there are several functions: use --function");
        execute(found, command)
    }
}

fn execute(function: &Function, command: &TraceCommand) -> anyhow::Result<Reply> {
    let adapter = function.hosted().adapter();
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
    TraceView { records: records.iter().flat_map(steps).collect(), lost: *lost, empty }
}

/// Returns the steps of a record for clients: the last part of a message that is copied is also its
/// acknowledgement.
fn steps(Record { at, step }: &Record) -> impl Iterator<Item = TraceRecord> + use<> {
    let record = |step| TraceRecord { ns: at.0, step };
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

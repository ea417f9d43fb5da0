//! The handlers of completion events in a guest, as /proc/interrupts and the driver's debugfs file
//! show them.

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

use crate::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, said, serve, stop_all};

/// Interrupts of each completion vector, by processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupts(Vec<Vec<(u32, u64)>>);

impl Interrupts {
    /// Reads /proc/interrupts.
    pub fn read(guest: &Guest) -> Result<Self> {
        let text = guest.check("grep -E 'CPU|vrnic-comp' /proc/interrupts", SHORT_TIMEOUT)?;
        let mut lines = text.lines();
        let head = lines.next().context("no head line")?;
        let cpus = head.split_whitespace().map(|cpu| cpu.trim_start_matches("CPU").parse());
        let cpus = cpus.collect::<Result<Vec<u32>, _>>()?;
        let vectors = lines.map(|line| {
            let counts = line.split_whitespace().skip(1).take(cpus.len()).map(str::parse);
            let counts =
                counts.collect::<Result<Vec<u64>, _>>().with_context(|| line.to_owned())?;
            Ok(cpus.iter().copied().zip(counts).collect())
        });
        Ok(Self(vectors.collect::<Result<_>>()?))
    }

    /// Returns the interrupts of a vector on a processor, or 0 if the processor is offline.
    #[must_use]
    pub fn on(&self, vector: usize, cpu: u32) -> u64 {
        let vector = self.0.get(vector).into_iter().flatten();
        vector.filter(|(at, _)| *at == cpu).map(|(_, count)| count).sum()
    }

    /// Returns the interrupts of a vector on all processors.
    #[must_use]
    pub fn of(&self, vector: usize) -> u64 {
        self.0.get(vector).into_iter().flatten().map(|(_, count)| count).sum()
    }
}

/// A completion event handler, as the driver shows it.
#[derive(Clone, Debug, Default)]
pub struct Handler {
    /// The processor to which its interrupt is directed.
    pub cpu: u32,
    /// The events of the vector so far.
    pub events: u64,
    /// The interrupts of the vector so far.
    pub interrupts: u64,
    /// Turns of the interrupts' thread so far.
    pub turns: u64,
    /// The completion queues bound to it.
    pub cqs: Vec<Cq>,
}

/// A completion queue, as the driver shows it.
#[derive(Clone, Debug, Default)]
pub struct Cq {
    /// The number of the CQ.
    pub cqn: u32,
    /// The events of the CQ so far.
    pub events: u64,
    /// The QPs of this completion queue. A QP is listed for each of its queues that completes here.
    pub qpns: Vec<u32>,
}

/// Returns the driver's tree of handlers, completion queues and QPs, in the order of the handlers'
/// ids.
pub fn tree(guest: &Guest) -> Result<Vec<Handler>> {
    let text = guest.check("cat /sys/kernel/debug/vrnic-*/events", SHORT_TIMEOUT)?;
    let mut handlers: Vec<Handler> = Vec::new();
    for line in text.lines() {
        let numbers = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
        let numbers = numbers.map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let last = handlers.last_mut();
        match (line.trim_start().split(' ').next(), &*numbers, last) {
            (Some("processor"), [cpu, id, events, interrupts, turns], _) => {
                ensure!(*id == handlers.len() as u64, "handlers out of order:\n{text}");
                let (events, interrupts, turns) = (*events, *interrupts, *turns);
                let (cpu, cqs) = (u32::try_from(*cpu)?, Vec::new());
                handlers.push(Handler { cpu, events, interrupts, turns, cqs });
            }
            (Some("cq"), [cqn, events], Some(handler)) => {
                let cqn = u32::try_from(*cqn)?;
                handler.cqs.push(Cq { cqn, events: *events, qpns: Vec::new() });
            }
            (Some("qp"), [qpn], Some(handler)) => {
                let cq = handler.cqs.last_mut().context("a QP without a CQ")?;
                cq.qpns.push(u32::try_from(*qpn)?);
            }
            _ => anyhow::bail!("what is '{line}' in\n{text}"),
        }
    }
    Ok(handlers)
}

/// Returns the handler ids of the completion queues of programs of this name, in the order of
/// their creation.
pub fn handlers_of(guest: &Guest, program: &str) -> Result<Vec<u32>> {
    let text = guest.check("rdma res show cq -dd", SHORT_TIMEOUT)?;
    let flat = text.replace("\n    ", " ");
    let of = |line: &str| -> Result<u32> {
        let number = line.split("drv_handler ").nth(1).and_then(|rest| rest.split(' ').next());
        number.with_context(|| format!("no handler in '{line}'"))?.parse().context("a number")
    };
    flat.lines().filter(|line| line.contains(&format!("comm {program}"))).map(of).collect()
}

/// Programs that exchange messages between guest a and guest b. Each pair sleeps on completion
/// events.
#[must_use]
pub struct Streams(Vec<(Running, Running)>);

impl Streams {
    /// Starts a pair of programs for each of these vectors, which both ends use: `command` with
    /// vector and port.
    pub fn start(pair: &Pair, command: &str, vectors: &[u32], port: u16) -> Result<Self> {
        let mut streams = Vec::new();
        for (port, vector) in (port..).zip(vectors) {
            let command = format!("{command} -e -X {vector} -p {port}");
            let server = serve(&pair.b, &command, port)?;
            streams.push((server, command));
        }
        let streams = streams.into_iter().map(|(server, command)| {
            let client = format!("exec {command} {}", pair.b.ip());
            Ok((server, pair.a.agent().start(&client)?))
        });
        Ok(Self(streams.collect::<Result<_>>()?))
    }

    /// Waits until all programs have ended with success.
    pub fn finish(self) -> Result<()> {
        for (server, client) in self.0 {
            let there = client.wait(LONG_TIMEOUT)?;
            if !there.ok() {
                server.kill()?;
            }
            let here = server.wait(SHORT_TIMEOUT)?;
            ensure!(there.ok() && here.ok(), "client: {}\nserver: {}", said(&there), said(&here));
        }
        Ok(())
    }

    /// Ends all programs.
    pub fn end(self) -> Result<()> {
        for (server, client) in self.0 {
            stop_all([client, server])?;
        }
        Ok(())
    }
}

/// Shell script: records the beginning and end of all completion interrupts from now on.
pub const TRACE_ON: &str = "set -e; cd /sys/kernel/debug/tracing; echo 0 > tracing_on; echo > trace; \
    echo mono > trace_clock; echo 20000 > buffer_size_kb; \
    cd events/irq; echo 'name ~ \"vrnic-comp*\"' > irq_handler_entry/filter; \
    irqs=$(awk -F: '/vrnic-comp/ { printf \"%sirq == %d\", or, $1; or = \" || \" }' /proc/interrupts); \
    echo \"$irqs\" > irq_handler_exit/filter; \
    echo 1 > irq_handler_entry/enable; echo 1 > irq_handler_exit/enable; echo 1 > ../../tracing_on";

/// Shell script: ends the recording. Prints how many interrupts began, how many of them while
/// another processor was in an interrupt, and the maximum number of processors in interrupts.
pub const TRACE_OFF: &str = "cd /sys/kernel/debug/tracing; echo 0 > tracing_on; \
    echo 0 > events/irq/enable; \
    awk '{ cpu = \"\"; for (i = 1; i <= NF && cpu == \"\"; i++) if ($i ~ /^\\[[0-9]+\\]$/) cpu = $i } \
         /irq_handler_entry/ { began++; if (busy > 0) beside++; if (!inside[cpu]) busy++; inside[cpu] = 1; \
             if (busy > most) most = busy } \
         /irq_handler_exit/ { if (inside[cpu]) busy--; inside[cpu] = 0 } \
         END { print began + 0, beside + 0, most + 0 }' trace; echo > trace";

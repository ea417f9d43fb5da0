//! Memory without a mapping, which the VMM reads and writes for the daemon. The VMM is a thread of
//! this program, which has the bytes in its own memory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use vrnic_figures::{Operation, Quantity, Subject};
use vrnic_testdriver::qp::ALL;
use vrnic_testdriver::vmm::relay::{Answer, Request};
use vrnic_testdriver::vmm::vfio::Endpoint;

use crate::rate::{self, Runs};
use crate::report::Report;
use crate::rig::{Pair, Rig};

/// The address of the memory.
const MEMORY: u64 = 0xdead_0000_0000;
/// The length of the memory.
const LEN: u64 = 1 << 20;
/// Sizes of messages, in bytes.
const MESSAGES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];

/// The arguments of the daemon.
const ARGS: [&str; 3] = ["--workers", "1", "--dma-messages"];

/// Measures WRITEs out of such memory and READs into it, in a daemon and by packets, and by packets
/// also WRITEs into it and READs out of it.
///
/// # Errors
/// When an operation fails.
pub(crate) fn measure(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let answer = answer();
    let rig = Rig::with_answers(daemon, &ARGS, Arc::clone(&answer))?;
    let mut pair = Pair::new(&rig, false);
    give_memory(&mut pair.a)?;
    measure_pair(report, &rig, &mut pair, runs, Subject::LocalMessages)?;
    drop((pair, rig));
    let rig = Rig::with_answers(daemon, &[&ARGS[..], &["--fabric", "wire"]].concat(), answer)?;
    let mut pair = Pair::new(&rig, false);
    give_memory(&mut pair.a)?;
    measure_pair(report, &rig, &mut pair, runs, Subject::PacketMessages)?;
    let Pair { a, b } = Pair::new(&rig, false);
    let mut pair = Pair { a: b, b: a };
    give_memory(&mut pair.b)?;
    measure_pair(report, &rig, &mut pair, runs, Subject::PeerMessages)
}

/// Returns the VMM.
fn answer() -> Arc<Answer> {
    let bytes = vec![1; LEN as usize];
    Arc::new(move |request: &Request| match request.is_write() {
        true => request.bare_reply(),
        false => request.reply(bytes.get(..request.count as usize).unwrap_or_default()),
    })
}

/// Gives an end such memory.
fn give_memory(end: &mut Endpoint) -> anyhow::Result<()> {
    let key = end.guest.reg_flat(end.pdn, ALL, MEMORY, LEN);
    (end.buffer, end.key) = (MEMORY, key.ok().context("a region")?);
    Ok(())
}

fn measure_pair(
    report: &mut Report,
    rig: &Rig,
    pair: &mut Pair,
    runs: Runs,
    subject: impl Fn(u32, Operation) -> Subject,
) -> anyhow::Result<()> {
    for len in MESSAGES {
        for operation in [Operation::Write, Operation::Read] {
            let [moved] = runs.best(|span| {
                let run = rate::run(rig, pair, operation, len, span)?;
                Ok([run.per_second() * f64::from(len)])
            })?;
            report.figure(subject(len >> 10, operation), Quantity::Gigabytes, moved / 1e9);
        }
    }
    Ok(())
}

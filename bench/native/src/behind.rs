//! Memory without a mapping, which the VMM reads and writes for the daemon. The VMM is a thread of
//! this program, which has the bytes in its own memory.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use vrnic_figures::{Operation, Quantity, Subject};
use vrnic_testdriver::qp::ALL;
use vrnic_testdriver::relay::Request;

use crate::rate::{self, Runs};
use crate::report::Report;
use crate::rig::{Pair, Rig};

/// The address of the memory.
const MEMORY: u64 = 0xdead_0000_0000;
/// Its length.
const LEN: u64 = 1 << 20;
/// Sizes of messages, in bytes.
const MESSAGES: [u32; 3] = [4 << 10, 64 << 10, 1 << 20];

/// Measures WRITEs out of such memory and READs into it.
///
/// # Errors
/// When an operation fails.
pub(crate) fn measure(report: &mut Report, daemon: &Path, runs: Runs) -> anyhow::Result<()> {
    let bytes = vec![1; LEN as usize];
    let answer = Arc::new(move |request: &Request| match request.is_write() {
        true => request.bare_reply(),
        false => request.reply(bytes.get(..request.count as usize).unwrap_or_default()),
    });
    let rig = Rig::with_answers(daemon, &["--workers", "1", "--dma-messages"], answer)?;
    let mut pair = Pair::new(&rig, false);
    let key = rig.guests[0].reg_flat(pair.a.pdn, ALL, MEMORY, LEN);
    (pair.a.buffer, pair.a.key) = (MEMORY, key.ok().context("a region")?);
    for len in MESSAGES {
        for operation in [Operation::Write, Operation::Read] {
            let [moved] = runs.best(|span| {
                let run = rate::run(&rig, &mut pair, operation, len, span)?;
                Ok([run.per_second() * f64::from(len)])
            })?;
            report.figure(
                Subject::LocalMessages(len >> 10, operation),
                Quantity::Gigabytes,
                moved / 1e9,
            );
        }
    }
    Ok(())
}

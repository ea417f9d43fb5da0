//! iWARP adapters with few QPs, so that a QP number is used again at once.
//!
//! Shows: iwarp

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, listens, stop};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let daemon = ["--limit", "qp=3"].map(str::to_owned).to_vec();
    let personality = Transport::Iwarp;
    // The memory is that of `smp`, whose snapshot the guests start from.
    let options = Options { personality, cpus: 2, memory: 2048, daemon, ..Options::default() };
    let cases = vec![
        Case::new("numbers_of_queue_pairs_are_used_again_at_once", |pair| again(pair)),
        Case::new("ranges_of_queue_pairs_with_such_numbers", |pair| ranges(pair)),
    ];
    Ok(Suite::new(options, cases))
}

/// The end of a QP does not free the address range of another QP that has got its number.
///
/// Shows: iwarp: ranges of queue pairs that get each other's numbers
fn ranges(pair: &Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    let said = pair.a.check("exec vrnic_renumber 20", LONG_TIMEOUT)?;
    eprintln!("{}", said.trim());
    ensure!(said.starts_with("ok "), "{said}");
    before.unchanged_within(pair, &pair.a, SHORT_TIMEOUT).context("something is left")
}

/// The end of a QP does not end the connection of another QP that has got its number.
fn again(pair: &Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    let server = pair.b.agent().start("modprobe rdma_ucm; exec vrnic-stress answer")?;
    listens(&pair.b)?;
    let call = format!("modprobe rdma_ucm; exec vrnic-stress renumber {}", pair.b.ip());
    let said = pair.a.check(&call, LONG_TIMEOUT);
    let server = stop(server)?;
    let said = said.with_context(|| server.stderr)?;
    eprintln!("{}", said.trim());
    ensure!(said.starts_with("ok "), "{said}");
    before.unchanged_within(pair, &pair.a, SHORT_TIMEOUT).context("something is left")
}

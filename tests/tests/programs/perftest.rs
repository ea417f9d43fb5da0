//! Each perftest tool and variant runs, and its figures are plausible.
//!
//! Shows: programs

use anyhow::{Result, bail, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_qemu::traffic::perftest::{Case as Run, Figure, SET};
use vrnic_tests::harness::{Case, Suite};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = SET
        .iter()
        .map(|run| {
            let name = format!("{} {}", run.tool, run.options);
            Case::new(name.trim().to_owned(), move |pair: &mut Pair| once(pair, run))
        })
        .collect();
    Ok(Suite::new(Options::default(), cases))
}

fn once(pair: &mut Pair, run: &Run) -> Result<()> {
    let outcome = pair.perftest(run)?;
    ensure!(outcome.code == 0, "rc={}\n{}", outcome.code, outcome.text);
    match outcome.figure {
        Some(Figure::Bandwidth { bytes, average, rate }) => {
            // MB/s of 2^20 bytes and million messages a second must fit each other. The table
            // rounds to two decimal places, and to six.
            let from_rate = rate * 1e6 * bytes as f64 / f64::from(1 << 20);
            let slack = 0.02 + from_rate * 0.02 + bytes as f64 * 1e-6;
            ensure!(
                average > 0.0 && (average - from_rate).abs() <= slack,
                "{average} MB/s and {rate} Mpps of {bytes} bytes contradict each other"
            );
            // No memory moves a terabyte a second: such a figure would mean that nothing was moved.
            ensure!(average < 1e6, "{average} MB/s is not plausible");
        }
        Some(Figure::Latency { typical, .. }) => {
            ensure!(typical > 0.0 && typical < 1e6, "{typical} µs is not plausible");
        }
        Some(Figure::Rounds(_)) | None => bail!("no figure in\n{}", outcome.text),
    }
    Ok(())
}

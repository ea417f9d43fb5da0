//! The time that a command took, and the bytes that an adapter moved in that time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::fleet::Fleet;
use crate::guest::Guest;

/// Prints the bytes that guest a's adapter has sent and received.
const BYTES: &str = "cat /sys/class/infiniband/*/ports/1/hw_counters/tx_bytes \
                     /sys/class/infiniband/*/ports/1/hw_counters/rx_bytes";
/// Time limit for reading these counters.
const READING: Duration = Duration::from_secs(20);

/// A point in time, and the adapter's counters then.
#[derive(Debug)]
pub struct Timing {
    at: Instant,
    bytes: [u64; 2],
}

impl Timing {
    /// Takes the time and the counters.
    ///
    /// # Errors
    /// If the counters of guest a cannot be read.
    pub fn start(fleet: &Fleet) -> Result<Self> {
        let bytes = bytes(fleet.first()?)?;
        Ok(Self { at: Instant::now(), bytes })
    }

    /// Returns a sentence about the time since the start.
    ///
    /// # Errors
    /// If the counters of guest a cannot be read.
    pub fn end(&self, fleet: &Fleet) -> Result<String> {
        let took = self.at.elapsed();
        Ok(sentence(took, self.bytes, bytes(fleet.first()?)?))
    }
}

fn sentence(took: Duration, [sent, received]: [u64; 2], [tx, rx]: [u64; 2]) -> String {
    format!(
        "the command took {:.3} s; the adapter of guest a sent {} bytes and received {} bytes",
        took.as_secs_f64(),
        tx.saturating_sub(sent),
        rx.saturating_sub(received)
    )
}

/// Returns the bytes that the guest's adapter has sent and received.
fn bytes(guest: &Guest) -> Result<[u64; 2]> {
    let text = guest.agent().check(BYTES, READING)?;
    let mut numbers = text.lines().map(|line| line.trim().parse().ok());
    let mut next = || numbers.next().flatten().context("the adapter's counters are no numbers");
    Ok([next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_what_was_moved_meanwhile() {
        let text = sentence(Duration::from_millis(1500), [100, 1000], [350, 1000]);
        assert_eq!(
            text,
            "the command took 1.500 s; the adapter of guest a sent 250 bytes and received 0 bytes"
        );
    }
}

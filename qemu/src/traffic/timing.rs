//! The time that a command took, and the bytes that the adapters moved in that time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::fleet::Fleet;
use crate::guest::Guest;

/// Prints the bytes that each adapter of guest a has sent, and then those that each has received.
const BYTES: &str = "cat /sys/class/infiniband/*/ports/1/hw_counters/tx_bytes \
                     /sys/class/infiniband/*/ports/1/hw_counters/rx_bytes";
/// Time limit for reading these counters.
const READING: Duration = Duration::from_secs(20);

/// A point in time, and the adapters' counters then.
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
        "the command took {:.3} s; all adapters of guest a sent {} bytes and received {} bytes",
        took.as_secs_f64(),
        tx.saturating_sub(sent),
        rx.saturating_sub(received)
    )
}

/// Returns the bytes that the guest's adapters have sent and received together.
fn bytes(guest: &Guest) -> Result<[u64; 2]> {
    let text = guest.agent().check(BYTES, READING)?;
    sums(&text).context("the adapters' counters are no numbers")
}

/// Returns the sum of the first half of these numbers, and that of the second half.
fn sums(text: &str) -> Option<[u64; 2]> {
    let numbers = text.lines().map(|line| line.trim().parse().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    if numbers.is_empty() || !numbers.len().is_multiple_of(2) {
        return None;
    }
    let (sent, received) = numbers.split_at(numbers.len() / 2);
    let sum = |part: &[u64]| part.iter().copied().reduce(u64::saturating_add);
    Some([sum(sent)?, sum(received)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_what_was_moved_meanwhile() {
        let text = sentence(Duration::from_millis(1500), [100, 1000], [350, 1000]);
        assert_eq!(
            text,
            "the command took 1.500 s; all adapters of guest a sent 250 bytes and received 0 bytes"
        );
    }

    #[test]
    fn the_bytes_of_all_adapters_count() {
        assert_eq!(sums("1\n20\n300\n4000\n"), Some([21, 4300]));
        assert_eq!(sums("1\n20\n"), Some([1, 20]));
        assert_eq!((sums(""), sums("1\n2\n3\n"), sums("1\nx\n")), (None, None, None));
    }
}

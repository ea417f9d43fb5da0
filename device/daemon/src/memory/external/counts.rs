//! Counts of transfers.

use super::job::Job;
use crate::memory::messages::Unanswered;

/// Counts of the transfers of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of reads that the VMM has answered.
    pub reads: u64,
    /// Number of bytes that were read.
    pub read_bytes: u64,
    /// Number of writes that the VMM has answered.
    pub writes: u64,
    /// Number of bytes that were written.
    pub written_bytes: u64,
    /// Number of reads and writes that the VMM has refused, or answered wrongly.
    pub refused: u64,
    /// Number of reads and writes that it has not answered in time.
    pub unanswered: u64,
    /// Number of transfers that wait now.
    pub waiting: u64,
}

impl Counts {
    /// The names of the counters among them, with help texts.
    pub const NAMES: [(&str, &str); 6] = [
        ("message_reads", "Reads of memory that the VMM has executed"),
        ("message_read_bytes", "Bytes of memory that the VMM has read"),
        ("message_writes", "Writes to memory that the VMM has executed"),
        ("message_written_bytes", "Bytes of memory that the VMM has written"),
        ("message_refused", "Accesses to memory that the VMM has refused or answered wrongly"),
        ("message_unanswered", "Accesses to memory that the VMM has not answered in time"),
    ];

    /// Returns the values of these counters.
    #[must_use]
    pub const fn values(&self) -> [u64; 6] {
        [
            self.reads,
            self.read_bytes,
            self.writes,
            self.written_bytes,
            self.refused,
            self.unanswered,
        ]
    }

    /// Counts a transfer with this result.
    pub(super) fn add(&mut self, job: &Job, result: &Result<Option<Vec<u8>>, Unanswered>) {
        let len = job.span.len as u64;
        match (result, &job.bytes) {
            (Ok(_), None) => {
                self.reads += 1;
                self.read_bytes += len;
            }
            (Ok(_), Some(_)) => {
                self.writes += 1;
                self.written_bytes += len;
            }
            (Err(Unanswered::Late | Unanswered::Closed), _) => self.unanswered += 1,
            (Err(Unanswered::Refused(_) | Unanswered::Wrong), _) => self.refused += 1,
            (Err(Unanswered::Ended), _) => {}
        }
    }
}

//! A bounded queue of records for a capture. Threads that add records never wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use vrnic_adapter::watch::Exchanged;

/// Maximum number of records in the queue.
const RECORDS: usize = 16 << 10;
/// Maximum number of bytes in the queue.
const BYTES: usize = 64 << 20;
/// Length of the longest message that is captured. The bytes of longer messages are not read again.
pub const MESSAGE_MAX: u64 = 8 << 20;
/// Bytes that are counted for each record in addition to its content.
const OVERHEAD: usize = 128;

/// A frame or a message.
#[derive(Debug)]
pub struct Record {
    /// Nanoseconds since 1970.
    pub nanos: u64,
    /// The frame or the message.
    pub what: What,
}

/// The content of a record.
#[derive(Debug)]
pub enum What {
    /// A frame.
    Frame {
        /// The bytes of the frame.
        bytes: Box<[u8]>,
        /// True if it was never on a wire.
        copied: bool,
        /// A comment on it.
        note: Option<Box<str>>,
    },
    /// A message that was copied.
    Message(Arc<Exchanged>),
}

impl What {
    fn bytes(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Frame { bytes, note, .. } => {
                    bytes.len() + note.as_deref().map_or(0, str::len)
                }
                Self::Message(message) => message.payload.len(),
            }
    }
}

/// The queue of a capture.
#[derive(Debug)]
pub struct Queue {
    /// None if the capture is of all ports.
    port: Option<String>,
    records: SyncSender<Record>,
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl Queue {
    /// Creates the queue of a capture at a port, or at all, and the receiving end of the queue.
    #[must_use]
    pub fn new(port: Option<String>) -> (Arc<Self>, Receiver<Record>) {
        let (records, end) = sync_channel(RECORDS);
        let (bytes, lost) = (AtomicUsize::new(0), AtomicU64::new(0));
        (Arc::new(Self { port, records, bytes, lost }), end)
    }

    /// Returns the name of the port.
    #[must_use]
    pub fn port(&self) -> &str {
        self.port.as_deref().unwrap_or("all")
    }

    /// Returns whether the capture is about one of these ports.
    #[must_use]
    pub fn is_about(&self, ports: &[&str]) -> bool {
        self.port.as_deref().is_none_or(|port| ports.contains(&port))
    }

    /// Returns whether a message of this length fits. Counts it as lost if it does not.
    #[must_use]
    pub fn has_room(&self, length: u64) -> bool {
        let left = BYTES.saturating_sub(self.bytes.load(Ordering::Relaxed)) as u64;
        let room = length <= MESSAGE_MAX && length <= left;
        if !room {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        room
    }

    /// Appends a record with the current time, or counts it as lost if it does not fit.
    pub fn put(&self, what: What) {
        let bytes = what.bytes();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = Record { nanos: u64::try_from(now.as_nanos()).unwrap_or(0), what };
        let fits = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= BYTES;
        if !fits || self.records.try_send(record).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that a record has left the queue.
    pub fn taken(&self, record: &Record) {
        self.bytes.fetch_sub(record.what.bytes(), Ordering::Relaxed);
    }

    /// Counts records that could not be shown.
    pub fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of records that were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize) -> What {
        What::Frame { bytes: vec![0; len].into(), copied: false, note: None }
    }

    /// Shows: faults: records for a capture whose client does not read are counted
    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let (queue, end) = Queue::new(Some("a".to_owned()));
        for _ in 0..RECORDS + 3 {
            queue.put(frame(60));
        }
        assert_eq!((queue.lost(), end.try_iter().count()), (3, RECORDS));
        let (queue, end) = Queue::new(Some("a".to_owned()));
        let (len, count) = (1 << 20, BYTES / ((1 << 20) + OVERHEAD));
        for _ in 0..count + 2 {
            queue.put(frame(len));
        }
        assert_eq!(queue.lost(), 2);
        let record = end.recv().expect("a record");
        queue.taken(&record);
        queue.put(frame(len));
        assert_eq!(queue.lost(), 2, "there was room again");
        assert!(!queue.has_room(len as u64) && !queue.has_room(MESSAGE_MAX + 1));
        assert_eq!(queue.lost(), 4);
    }
}

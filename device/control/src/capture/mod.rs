//! Captures of traffic for the command `vrnic pcap` (docs/pcap.md).
//!
//! Workers and the switch put records into the bounded queue of each capture and never wait. The
//! capture's thread converts them to a pcapng file, which it sends to the client.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`queue`] | records on their way to a capture |
//! | [`recorder`] | start and end of captures |
//! | [`recording`] | a capture that a file receives |
//! | `file` | records as a pcapng file |
//! | `messages` | frames of messages that were copied |

mod file;
mod messages;
pub mod queue;
pub mod recorder;
pub mod recording;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use vrnic_adapter::watch::Exchanged;

use self::queue::{Queue, What};

/// The captures of the process. While none runs, [`Self::frame`] costs one load.
#[derive(Debug, Default)]
pub struct Captures {
    any: AtomicBool,
    queues: ArcSwap<Vec<Arc<Queue>>>,
}

impl Captures {
    /// Records a frame that passes a port of the switch, or that leaves or reaches the adapter
    /// behind it. `note` returns a comment on it.
    #[inline]
    pub fn frame(&self, port: &str, frame: &[u8], note: impl FnOnce() -> Option<String>) {
        if self.any() {
            let note = if self.is_about(port) { note() } else { None };
            self.put_frame(&[port], frame, false, note.as_deref());
        }
    }

    /// Returns whether a capture runs.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Records the frame that would have carried copied data between these ports.
    pub fn copied_frame(&self, ports: &[&str], frame: &[u8]) {
        self.put_frame(ports, frame, true, None);
    }

    /// Returns whether a message of this length between these ports is to be recorded.
    #[must_use]
    pub fn wants(&self, ports: &[&str], length: u64) -> bool {
        let queues = self.queues.load();
        // Asks every queue, because each one counts the messages that it has no room for.
        let mut wanted = false;
        for queue in queues.iter().filter(|queue| queue.is_about(ports)) {
            wanted |= queue.has_room(length);
        }
        wanted
    }

    /// Records a message that was copied between these ports.
    pub fn message(&self, ports: &[&str], message: Exchanged) {
        let message = Arc::new(message);
        for queue in self.queues.load().iter().filter(|queue| queue.is_about(ports)) {
            queue.put(What::Message(Arc::clone(&message)));
        }
    }

    #[cold]
    fn put_frame(&self, ports: &[&str], frame: &[u8], copied: bool, note: Option<&str>) {
        for queue in self.queues.load().iter().filter(|queue| queue.is_about(ports)) {
            let note = note.map(Box::from);
            queue.put(What::Frame { bytes: frame.into(), copied, note });
        }
    }

    #[cold]
    fn is_about(&self, port: &str) -> bool {
        self.queues.load().iter().any(|queue| queue.is_about(&[port]))
    }

    /// Returns the number of captures.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queues.load().len()
    }

    /// Adds a capture.
    fn add(&self, queue: &Arc<Queue>) {
        self.change(|queues| queues.push(Arc::clone(queue)));
    }

    /// Removes a capture.
    fn remove(&self, queue: &Arc<Queue>) {
        self.change(|queues| queues.retain(|other| !Arc::ptr_eq(other, queue)));
    }

    /// Changes the list of captures. The caller ensures that only one thread at a time does this.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Queue>>)) {
        let mut queues = Vec::clone(&self.queues.load());
        change(&mut queues);
        self.any.store(!queues.is_empty(), Ordering::Relaxed);
        self.queues.store(Arc::new(queues));
    }
}

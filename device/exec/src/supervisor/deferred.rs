//! Requests to device files that wait for the address of a peer, as the kernel's do
//! (`rdma_addr_find_l2_eth_by_grh` in drivers/infiniband/core/addr.c).

use std::time::{Duration, Instant};

#[cfg(doc)]
use crate::join::neighbors::Neighbors;
use crate::trap::call::Call;
use crate::trap::listener::Id;
use crate::trap::task::FileId;

/// Maximum number of requests that wait.
const MAX: usize = 1024;
/// The time for which a request waits.
const LIMIT: Duration = Duration::from_secs(1);
/// The time between two tries.
pub const INTERVAL: Duration = Duration::from_millis(50);

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The system call.
    pub id: Id,
    /// The number and the arguments of the system call.
    pub call: Call,
    /// The device file.
    pub file: FileId,
    until: Instant,
}

/// All requests that wait.
#[derive(Debug, Default)]
pub struct Deferred {
    all: Vec<Waiting>,
    next: Option<Instant>,
    /// The number of [`Neighbors::generation`] at the last look.
    generation: u64,
}

impl Waiting {
    /// Returns whether the request waits no longer.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

impl Deferred {
    /// Adds a request. Returns false if too many wait.
    pub fn add(&mut self, id: Id, call: Call, file: FileId) -> bool {
        let room = self.all.len() < MAX;
        if room {
            let now = Instant::now();
            self.all.push(Waiting { id, call, file, until: now + LIMIT });
            self.next = self.next.or(Some(now + INTERVAL));
        }
        room
    }

    /// Adds a request again that has been taken.
    pub fn put_back(&mut self, waiting: Waiting) {
        self.all.push(waiting);
        self.next = self.next.or(Some(Instant::now() + INTERVAL));
    }

    /// Takes all requests if it is time to try them again, or if addresses have become known.
    pub fn take(&mut self, generation: u64) -> Vec<Waiting> {
        let news = std::mem::replace(&mut self.generation, generation) != generation;
        if !news && self.next.is_none_or(|next| Instant::now() < next) {
            return Vec::new();
        }
        self.next = None;
        std::mem::take(&mut self.all)
    }

    /// Returns the time of the next try, if requests wait.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.next
    }
}

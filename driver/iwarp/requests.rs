// SPDX-License-Identifier: GPL-2.0
//! The requests of a listener that have arrived completely.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{Instant, Monotonic},
};

use super::endpoint::{Endpoint, PATIENCE};

/// The requests that the owner of a listener has not answered, and those that wait for it.
///
/// The core's connection manager and that of programs each drop a request if as many as the
/// listener's backlog wait to be taken (`drivers/infiniband/core/iwcm.c` and `ucma.c`). So the
/// owner gets no more than that at a time, and other requests wait for its answers.
pub(super) struct Requests {
    limit: usize,
    /// Number of requests that the owner has got and not answered.
    unanswered: usize,
    /// The endpoints whose request waits, the oldest first.
    waiting: KVec<Arc<Endpoint>>,
    /// When the owner last got or answered a request.
    moved: Instant<Monotonic>,
}

impl Requests {
    /// Returns the requests of a listener with this backlog, none yet.
    pub(super) fn new(backlog: i32) -> Self {
        let limit = usize::try_from(backlog).unwrap_or(0).max(1);
        Self { limit, unanswered: 0, waiting: KVec::new(), moved: Instant::now() }
    }

    /// Returns the number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Counts the request of `endpoint` as one that the owner gets now, and returns true. If the
    /// owner must answer others first, the endpoint waits, and this returns false.
    pub(super) fn admit(&mut self, endpoint: &Arc<Endpoint>) -> bool {
        let is_next = self.waiting.first().is_none_or(|next| Arc::ptr_eq(next, endpoint));
        let has_room = self.unanswered < self.limit || self.moved.elapsed() >= PATIENCE;
        if !(is_next && has_room) && self.keep(endpoint) {
            return false;
        }
        self.leave(endpoint);
        self.unanswered += 1;
        self.moved = Instant::now();
        true
    }

    /// Lets an endpoint wait. Returns false if there is no memory for that.
    fn keep(&mut self, endpoint: &Arc<Endpoint>) -> bool {
        let is_kept = self.waiting.iter().any(|other| Arc::ptr_eq(other, endpoint));
        is_kept || self.waiting.push(endpoint.clone(), GFP_KERNEL).is_ok()
    }

    /// Records that the owner has answered a request, or that its peer is gone.
    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.moved = Instant::now();
    }

    /// Removes an endpoint whose request waits no longer.
    pub(super) fn leave(&mut self, endpoint: &Endpoint) {
        self.waiting.retain(|other| !core::ptr::eq(&**other, endpoint));
    }

    /// Returns the endpoint whose request the owner can get now.
    pub(super) fn next(&self) -> Option<Arc<Endpoint>> {
        (self.unanswered < self.limit).then(|| self.waiting.first().cloned()).flatten()
    }

    /// Takes the endpoints whose requests wait.
    pub(super) fn into_waiting(self) -> KVec<Arc<Endpoint>> {
        self.waiting
    }
}

//! Polls of adapters whose durations are measured, on a clock that moves with the work.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vrnic_adapter::poll::Polled;
use vrnic_adapter::slice::{SHORT_SLICE, SLICE};

use crate::bus::Guest;

/// The time of polls that are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The length of their slices.
    pub(crate) slice: Duration,
    /// True if memory is fifty times slower than usual, as pages are at their first use.
    pub(crate) slow: bool,
}

/// Long and short slices, with usual and with slow memory.
pub(crate) const KINDS: [Kind; 4] = [
    Kind { slice: SLICE, slow: false },
    Kind { slice: SLICE, slow: true },
    Kind { slice: SHORT_SLICE, slow: false },
    Kind { slice: SHORT_SLICE, slow: true },
];

impl Kind {
    /// Returns the longest time in ns by which a poll exceeds its slice, with the frames that have
    /// arrived. These are the numbers in docs/threat-model.md.
    fn limit(self) -> u64 {
        match (self.slow, self.slice < SLICE) {
            (false, _) => 60_000,
            (true, true) => 65_000,
            (true, false) => 200_000,
        }
    }
}

/// The polls of some adapters with one clock.
#[derive(Debug)]
pub(crate) struct Polls {
    clock: Arc<AtomicU64>,
    kind: Cell<Kind>,
    /// The longest time by which one has exceeded its slice, in ns.
    excess: Cell<u64>,
}

impl Polls {
    /// Returns polls of the longest slices.
    pub(crate) fn new(clock: &Arc<AtomicU64>) -> Self {
        let [first, ..] = KINDS;
        Self { clock: Arc::clone(clock), kind: Cell::new(first), excess: Cell::new(0) }
    }

    /// Lets the adapters of these guests take time from now on, in polls of this kind.
    pub(crate) fn measure(&self, guests: &[&Guest], kind: Kind) {
        for guest in guests {
            guest.host.take_time();
            if kind.slow {
                guest.host.slow_memory();
            }
        }
        self.kind.set(kind);
        self.excess.set(0);
    }

    /// Polls an adapter. A poll takes as long as the clock or the adapter itself says, whichever is
    /// more: the clock does not know what calculations take.
    pub(crate) fn poll(&self, guest: &Guest) -> Polled {
        let start = self.now();
        let slice = self.kind.get().slice;
        let polled = guest.adapter.poll_for(0, slice);
        let took = (self.now() - start).max(polled.spent);
        let slice = u64::try_from(slice.as_nanos()).expect("a short time");
        self.excess.set(self.excess.get().max(took.saturating_sub(slice)));
        polled
    }

    /// Checks that no poll was too long.
    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        let (excess, kind) = (self.excess.get(), self.kind.get());
        assert!(excess <= kind.limit(), "{what}, {kind:?}: a poll was {excess} ns too long");
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }
}

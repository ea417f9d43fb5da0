//! The moderation of a completion queue's events.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::{Cq, Inner};

/// The moderation of a queue's events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moderation {
    /// Number of completions that raise an event.
    count: u32,
    /// Maximum time for which an event waits for them.
    period: Duration,
}

/// An event that waits for more completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldEvent {
    /// Number of completions so far.
    count: u32,
    /// The time at which the event is due in any case.
    until: Nanos,
}

/// Says whether a completion raises an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The completion raises no event.
    No,
    /// The completion raises an event; [`Cq::fire`] reports it.
    Now,
    /// The event waits for more completions, and must be added to the list of waiting events.
    Later {
        /// The time at which it is due.
        due: Nanos,
        /// The time under which the list contains the CQ already.
        listed: Option<Nanos>,
    },
}

/// The state of a waiting event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The event waits until this time.
    Until(Nanos),
    /// The event is due.
    Due,
    /// The event has been reported.
    Gone,
}

impl Cq {
    /// Sets the interrupt moderation: see [`vrnic_abi::admin::ModifyCq`].
    pub fn set_moderation(&self, count: u16, period_us: u16) {
        let (count, period) = (count.into(), Duration::from_micros(period_us.into()));
        self.inner.lock().moderation = Moderation { count, period };
    }

    /// Checks whether an event still waits.
    #[must_use]
    pub fn release(&self, now: Nanos) -> Held {
        let mut inner = self.inner.lock();
        match inner.held {
            Some(HeldEvent { until, .. }) if until > now => {
                inner.listed = Some(until);
                return Held::Until(until);
            }
            _ => inner.listed = None,
        }
        if inner.held.take().is_some() { Held::Due } else { Held::Gone }
    }

    /// Removes the time under which the adapter's list of waiting events contains this CQ.
    pub fn unlist(&self) -> Option<Nanos> {
        self.inner.lock().listed.take()
    }
}

impl Inner {
    /// Decides what to do after a completion if an event is due or waits already.
    #[inline]
    pub(super) fn moderate(&mut self, due: bool, now: impl FnOnce() -> Nanos) -> Due {
        let Moderation { count, period } = self.moderation;
        let held = match self.held {
            Some(held) => HeldEvent { count: held.count + 1, ..held },
            None if !due => return Due::No,
            None if count < 2 || period.is_zero() => return Due::Now,
            None => HeldEvent { count: 1, until: now().plus(period) },
        };
        if held.count >= count {
            self.held = None;
            return Due::Now;
        }
        self.held = Some(held);
        let due = held.until;
        match self.listed {
            Some(listed) if listed <= due => Due::No,
            listed => {
                self.listed = Some(due);
                Due::Later { due, listed }
            }
        }
    }
}

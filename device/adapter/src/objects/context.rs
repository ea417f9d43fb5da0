//! The context in which a queue is used.

use vrnic_abi::eq::Kind;
use vrnic_faults::Site;
use vrnic_packet::Nanos;

use crate::host::{Host, Lane};
use crate::objects::faults::injection::{Here, Injection};
use crate::objects::pace::Pace;
use crate::stats::{Counter, Counters};

/// An adapter's host and counters, for a thread.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a, H> {
    /// The name of the adapter.
    pub(crate) name: &'a str,
    /// The host of the adapter.
    pub host: &'a H,
    /// The counters of the adapter.
    pub stats: &'a Counters,
    /// The ceilings of the function.
    pub(crate) pace: &'a Pace,
    /// The adapter's faults by rules, unless they do not apply.
    pub(crate) injection: Option<&'a Injection>,
    /// The lane of the thread.
    pub lane: Lane,
}

impl<H: Host> Caller<'_, H> {
    /// Logs a warning about the guest's behaviour, at a bounded rate.
    #[cold]
    pub fn warn(&self, warn: impl FnOnce()) {
        self.stats.limiter.warn(self.host.now(), warn);
    }

    /// Returns the faults by rules, if one looks at this place, with the function and the time.
    #[inline]
    pub(crate) fn faults_at(&self, site: Site) -> Option<(&Injection, Here<'_>)> {
        let injection = self.injection.filter(|injection| injection.looks_at(site))?;
        Some((injection, Here { function: self.name, now: self.host.now() }))
    }

    /// Raises an interrupt, unless a rule for faults takes it away or holds it back.
    pub(crate) fn raise(&self, vector: u16) {
        let faults = self.faults_at(Site::Interrupt);
        if !faults.is_some_and(|(faults, here)| faults.takes_interrupt(here, vector)) {
            self.host.raise(vector);
        }
    }
}

/// The context of a turn, for completion queues and shared receive queues.
pub trait QueueContext<'a, H: Host> {
    /// Returns the host.
    fn host(&self) -> &'a H;

    /// Returns the guest's memory, which is held.
    fn memory(&self) -> &H::Held<'a>;

    /// Returns the time, which may have been read slightly earlier.
    fn now(&self) -> Nanos;

    /// Adds one to a counter.
    fn step(&self, counter: Counter);

    /// Logs a warning about the guest's behaviour, at a bounded rate. `warn` gets the adapter's
    /// name.
    fn warn(&self, warn: impl FnOnce(&str));

    /// Reports an asynchronous event.
    fn report(&self, kind: Kind, id: impl Into<u32>);
}

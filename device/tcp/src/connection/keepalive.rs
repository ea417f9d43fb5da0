//! Keepalive: probes of a peer from which nothing has arrived for long (RFC 9293, 3.8.4), while no
//! other timer would find out that it is gone.

use std::time::Duration;

use vrnic_packet::Nanos;

use super::Connection;
use super::close::State;
use crate::send::GiveUp;

/// Number of probes without an answer after which a connection ends, as in Linux.
pub const PROBES: u32 = 9;
/// Time between two of them, as in Linux. It is never longer than the idle time.
pub const INTERVAL: Duration = Duration::from_secs(75);

/// The state of the probes.
#[derive(Debug)]
pub(super) struct Keepalive {
    /// The idle time before the first probe, if there are probes.
    idle: Option<Duration>,
    /// The number of probes since the last valid segment of the peer.
    probes: u32,
    /// The time of the last probe, or of that segment.
    since: Nanos,
    /// True if a probe is to be sent.
    due: bool,
}

impl Keepalive {
    pub(super) fn new(now: Nanos, idle: Option<Duration>) -> Self {
        let idle = idle.filter(|idle| !idle.is_zero());
        Self { idle, probes: 0, since: now, due: false }
    }

    /// Returns the idle time before the first probe, if there are probes.
    pub(super) const fn idle(&self) -> Option<Duration> {
        self.idle
    }

    /// Records a valid segment of the peer.
    pub(super) const fn heard(&mut self, now: Nanos) {
        (self.since, self.probes, self.due) = (now, 0, false);
    }

    /// Returns the time of the next probe, or of the end after the last one.
    fn next(&self) -> Option<Nanos> {
        let idle = self.idle?;
        let wait = if self.probes == 0 { idle } else { INTERVAL.min(idle) };
        Some(self.since.plus(wait))
    }

    fn timeout(&mut self, now: Nanos) -> Result<(), GiveUp> {
        if self.probes >= PROBES {
            return Err(GiveUp);
        }
        (self.since, self.probes, self.due) = (now, self.probes + 1, true);
        Ok(())
    }
}

impl Connection {
    /// Returns the time at which [`Self::timeout`] probes the peer if nothing is sent and nothing
    /// arrives until then. It is not part of [`Self::deadline`], because the connection is idle. It
    /// is later than the time of the last call of [`Self::timeout`].
    #[must_use]
    pub fn keepalive(&self) -> Option<Nanos> {
        let open = match self.ending.state() {
            State::Established => true,
            State::FinWait2 => self.ending.is_half_open(),
            _ => false,
        };
        let quiet = open && self.send.is_quiet();
        self.keepalive.next().filter(|_| quiet)
    }

    /// Sends no probes from now on, because the caller learns by other means if the peer is gone.
    pub const fn stop_keepalive(&mut self) {
        self.keepalive.idle = None;
    }

    /// Probes a peer from which nothing has arrived for too long.
    pub(super) fn keep_alive(&mut self, now: Nanos) -> Result<(), GiveUp> {
        match self.keepalive() {
            Some(at) if at <= now => self.keepalive.timeout(now),
            _ => Ok(()),
        }
    }

    /// Returns whether a probe must be sent now.
    pub(super) fn take_keepalive(&mut self) -> bool {
        std::mem::take(&mut self.keepalive.due) && self.keepalive().is_some()
    }
}

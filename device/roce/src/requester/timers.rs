//! Time-outs: a missing answer, or a responder that was not ready.

use vrnic_packet::Nanos;

use super::Requester;
use super::work::Outcome;

impl Requester {
    /// Returns the time at which [`Self::expire`] must be called, if no answer arrives before.
    /// A requester with a deadline may still have packets to send.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.stalled_until.is_some() {
            return self.stalled_until;
        }
        let timers = [self.timer, self.repair.probe_at, self.not_ready_until, self.paced_until];
        timers.into_iter().flatten().min()
    }

    /// Handles expired timers.
    pub fn expire(&mut self, now: Nanos) {
        if let Some(until) = self.stalled_until {
            if now < until {
                return;
            }
            // The peer has not got all packets that are outstanding.
            self.stalled_until = None;
            if self.config.transport.is_reliable() {
                self.arm(now);
            }
        }
        if self.paced_until.is_some() {
            self.wait_for_pace(now);
        }
        if self.not_ready_until.is_some_and(|until| until <= now) {
            self.not_ready_until = None;
            self.restarted = None;
            self.arm(now);
        }
        if self.timer.is_some_and(|timer| timer <= now) {
            self.timed_out(now);
        } else if self.repair.probe_at.is_some_and(|at| at <= now) {
            self.probe(now);
        }
    }

    /// Starts timers again that have expired while the next packet waits for the rate. The packets
    /// before it may not have asked for an acknowledgement, and it shows whether they were lost.
    fn wait_for_pace(&mut self, now: Nanos) {
        let Some(until) = self.paced_until.map(|until| until.max(now)) else { return };
        self.paced_until = (now < until).then_some(until);
        if self.since_ack_request > 0 && self.timer.is_some_and(|timer| timer <= now) {
            self.arm(until);
        } else if self.repair.probe_at.is_some_and(|at| at <= now) {
            self.arm_probe(until);
        }
    }

    /// Starts the time-out, if there is one, and the timer of the next probe.
    pub(super) fn arm(&mut self, now: Nanos) {
        self.timer = self.config.timeout.duration().map(|duration| now.plus(duration));
        self.arm_probe(now);
    }

    /// Stops the time-out and the timer of the next probe.
    pub(super) fn disarm(&mut self) {
        self.timer = None;
        self.repair.probe_at = None;
    }

    /// Handles a missing answer: sends all outstanding packets again, or fails.
    fn timed_out(&mut self, now: Nanos) {
        self.counters.timeouts += 1;
        match self.retries.checked_sub(1) {
            Some(left) => {
                self.retries = left;
                self.restarted = Some(self.oldest);
                self.congested(now);
                self.go_back();
                self.arm(now);
            }
            None => {
                self.disarm();
                self.ledger.fail_oldest(Outcome::RetryExceeded);
            }
        }
    }
}

//! Time-outs: no answer came, or the responder was not ready.

use super::Requester;
use super::work::Outcome;
use crate::time::Time;

impl Requester {
    /// The moment at which [`Self::expire`] has to be called, if nothing happens before. A
    /// requester with a deadline may still have packets to send.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        [self.timer, self.repair.probe_at, self.not_ready_until].into_iter().flatten().min()
    }

    /// Acts on a deadline that has come.
    pub fn expire(&mut self, now: Time) {
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

    /// Starts the timer, if there is one, and the one of the next probe.
    pub(super) fn arm(&mut self, now: Time) {
        self.timer = self.config.timeout.duration().map(|duration| now.plus(duration));
        self.arm_probe(now);
    }

    /// Stops both.
    pub(super) fn disarm(&mut self) {
        self.timer = None;
        self.repair.probe_at = None;
    }

    /// No answer came: sends all again that is outstanding, or gives up.
    fn timed_out(&mut self, now: Time) {
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

//! The waits of a connection for its guest. The guest rings no doorbell when they are over, so the
//! connection checks.

use std::time::Duration;

use vrnic_iwarp::Stream;
use vrnic_packet::Nanos;

/// Maximum time for which a SEND waits for a receive.
pub(crate) const RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum and maximum time between two checks. The time is a sixteenth of the present wait in
/// between, so a long wait costs few checks.
pub(crate) const MIN_POLL_INTERVAL: Duration = Duration::from_micros(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The wait of a SEND of the peer for a receive.
    receive: Option<Wait>,
    /// The wait of received bytes for memory.
    memory: Option<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// The time at which it began.
    since: Nanos,
    /// The number of FPDUs that had been received by then. If more have been received since, this
    /// wait is over, and another one begins.
    received: u64,
}

impl Waits {
    /// Ends the stream if a SEND of the peer has waited too long for a receive. Returns the time of
    /// the next check. The same intervals are for bytes that wait for memory. `is_scheduled` says
    /// that the QP is scheduled when the wait for the receive is over, because it waits for room in
    /// its CQ; there is no time limit then.
    pub(super) fn check(
        &mut self,
        stream: &mut Stream,
        now: Nanos,
        is_scheduled: impl FnOnce() -> bool,
    ) -> Option<Nanos> {
        let received = stream.counters().fpdus_received;
        if stream.waits_for_memory() {
            return Some(next_check(now, Wait::go_on(&mut self.memory, now, received)));
        }
        self.memory = None;
        if !stream.waits_for_receive() || is_scheduled() {
            self.receive = None;
            return None;
        }
        let since = Wait::go_on(&mut self.receive, now, received);
        if now.since(since) > RECEIVE_TIMEOUT {
            stream.receive_timed_out();
            return None;
        }
        Some(next_check(now, since))
    }
}

impl Wait {
    /// Continues the wait in `wait`, or begins one if there is none or another FPDU has been
    /// received. Returns the time at which it began.
    fn go_on(wait: &mut Option<Self>, now: Nanos, received: u64) -> Nanos {
        let present = wait.filter(|wait| wait.received == received);
        wait.insert(present.unwrap_or(Self { since: now, received })).since
    }
}

/// Returns the time of the next check of a wait that has begun at `since`.
pub(crate) fn next_check(now: Nanos, since: Nanos) -> Nanos {
    now.plus((now.since(since) / 16).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL))
}

//! AWAITs that wait for a mark ([`vrnic_abi::direct::Await`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use vrnic_abi::Qpn;
use vrnic_abi::direct::{Await, MARK_FAILED};
use vrnic_packet::Nanos;

use crate::memory::tpt::Denied;
use crate::objects::direct::range::Taken;

/// The AWAIT of a QP that waits. Only a thread with the QP's requester changes it.
#[derive(Debug, Default)]
pub struct MarkWait {
    /// The number of the word in the upper half, the mark in the lower half; zero if none waits.
    wanted: AtomicU64,
    /// The time at which it fails, on the host's clock; zero if none waits.
    until: AtomicU64,
    /// True if the QP is in the list of [`MarkWaits`].
    listed: AtomicBool,
}

impl MarkWait {
    /// Executes an AWAIT whose word has the value `found`, at the time `now`.
    ///
    /// # Errors
    /// Returns [`Denied::Ended`] if the word says so, [`Denied::Short`] when its time is over.
    pub fn execute(&self, wanted: Await, found: u32, now: Nanos) -> Result<Taken, Denied> {
        let Await { word, mark, time_limit_ms } = wanted;
        let until = match self.until.load(Ordering::Relaxed) {
            0 => now.plus(Duration::from_millis(time_limit_ms.into())),
            until => Nanos(until),
        };
        let end = match found {
            _ if found == mark => Ok(Taken::Done),
            _ if found == mark | MARK_FAILED => Err(Denied::Ended),
            _ if until <= now => Err(Denied::Short),
            _ => {
                self.wanted.store(u64::from(word) << 32 | u64::from(mark), Ordering::Relaxed);
                self.until.store(until.0, Ordering::SeqCst);
                return Ok(Taken::Later);
            }
        };
        self.clear();
        end
    }

    /// Forgets the AWAIT.
    pub fn clear(&self) {
        self.wanted.store(0, Ordering::Relaxed);
        self.until.store(0, Ordering::SeqCst);
    }

    /// Returns whether an AWAIT waits and its word, which `load` reads, has what ends it.
    #[inline]
    #[must_use]
    pub fn is_met(&self, load: impl FnOnce(u32) -> u32) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        // CAST: both halves.
        wanted != 0 && load((wanted >> 32) as u32) & !MARK_FAILED == wanted as u32
    }

    /// Returns whether the time of an AWAIT is over.
    #[must_use]
    pub fn is_late(&self, now: Nanos) -> bool {
        let until = self.until.load(Ordering::SeqCst);
        until != 0 && until <= now.0
    }

    fn waits(&self) -> bool {
        self.until.load(Ordering::SeqCst) != 0
    }
}

/// The QPs of an adapter whose AWAITs wait. The heartbeat looks at these.
#[derive(Debug, Default)]
pub struct MarkWaits {
    qpns: Mutex<Vec<Qpn>>,
}

impl MarkWaits {
    /// Adds a QP whose AWAIT has begun to wait.
    pub fn add(&self, qpn: Qpn, wait: &MarkWait) {
        if !wait.listed.swap(true, Ordering::SeqCst) {
            self.qpns.lock().push(qpn);
        }
    }

    /// Calls `visit` for each QP, and removes the QPs whose AWAITs do not wait any more. `visit`
    /// calls the function that it gets, unless the QP is gone.
    pub fn retain_waiting(&self, visit: impl Fn(Qpn, &dyn Fn(&MarkWait) -> bool) -> bool) {
        // An AWAIT that begins to wait meanwhile either finds the QP not listed, or is found here.
        let keep = |wait: &MarkWait| {
            wait.listed.store(false, Ordering::SeqCst);
            wait.waits() && !wait.listed.swap(true, Ordering::SeqCst)
        };
        self.qpns.lock().retain(|qpn| visit(*qpn, &keep));
    }

    /// Removes a QP that is destroyed, so that one that gets its number later is listed once.
    pub fn forget(&self, qpn: Qpn, wait: &MarkWait) {
        // With the lock, [`Self::retain_waiting`] does not list it again meanwhile.
        let mut qpns = self.qpns.lock();
        if wait.listed.swap(false, Ordering::SeqCst) {
            qpns.retain(|listed| *listed != qpn);
        }
    }

    /// Removes all QPs.
    pub fn clear(&self) {
        self.qpns.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A QP that begins to wait again while the list is looked through is found next time.
    #[test]
    fn a_qp_is_listed_once_while_it_waits() {
        let (list, wait, qpn) = (MarkWaits::default(), MarkWait::default(), Qpn::new(7));
        let wanted = Await { word: 1, mark: 5, time_limit_ms: 10 };
        for _ in 0..3 {
            assert_eq!(wait.execute(wanted, 4, Nanos(1)), Ok(Taken::Later));
            list.add(qpn, &wait);
        }
        list.retain_waiting(|_, keep| keep(&wait));
        assert_eq!(*list.qpns.lock(), [qpn]);
        assert!(wait.is_met(|word| word + 4) && !wait.is_met(|_| 6));
        assert_eq!(wait.execute(wanted, 5, Nanos(2)), Ok(Taken::Done));
        list.retain_waiting(|_, keep| keep(&wait));
        assert_eq!(*list.qpns.lock(), []);
        assert!(!wait.is_met(|_| 0));
        assert_eq!(wait.execute(wanted, 4, Nanos(2)), Ok(Taken::Later));
        list.add(qpn, &wait);
        assert_eq!(*list.qpns.lock(), [qpn]);
        assert!(!wait.is_late(Nanos(10_000_001)) && wait.is_late(Nanos(10_000_002)));
        assert_eq!(wait.execute(wanted, 5 | MARK_FAILED, Nanos(3)), Err(Denied::Ended));
        assert_eq!(wait.execute(wanted, 4, Nanos(3)), Ok(Taken::Later));
        assert_eq!(wait.execute(wanted, 4, Nanos(10_000_003)), Err(Denied::Short));
    }

    /// Programs create and destroy QPs more often than the list is looked through.
    #[test]
    fn qps_that_get_a_number_one_after_the_other_are_listed_once() {
        let (list, qpn, other) = (MarkWaits::default(), Qpn::new(7), Qpn::new(8));
        list.add(other, &MarkWait::default());
        let mut last = MarkWait::default();
        list.add(qpn, &last);
        for _ in 0..3 {
            list.forget(qpn, &last);
            assert_eq!(*list.qpns.lock(), [other]);
            last = MarkWait::default();
            list.add(qpn, &last);
        }
        assert_eq!(*list.qpns.lock(), [other, qpn]);
    }
}

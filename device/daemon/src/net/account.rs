//! Limits how many bytes of each adapter wait at uplinks. An adapter that sends a lot is delayed
//! itself, and delays no other one. Frames leave an uplink in the order of their arrival, so
//! adapters that always have frames waiting share it by these limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use vrnic_packet::Nanos;

/// Maximum number of bytes of an adapter that wait at uplinks, if it has the largest share. With
/// more, the bytes would leave the processor's cache before they are sent.
pub const LIMIT: usize = 1 << 20;
/// The same for the smallest share: a few of the longest frames.
const LIMIT_MIN: usize = 32 << 10;
/// Time for which an account may be full. After that, the uplink counts as stuck: its queue accepts
/// frames while there is room, and drops the rest. This is longer than the time for which another
/// daemon may stop reading ([`super::hold::HOLD`]).
const STUCK: Duration = Duration::from_millis(450);

/// The bytes of one adapter that wait at uplinks.
#[derive(Debug)]
pub struct Account {
    bytes: AtomicUsize,
    limit: AtomicUsize,
    /// The time since which the account has been full; 0 if it is not.
    full_since: AtomicU64,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            limit: AtomicUsize::new(LIMIT),
            full_since: AtomicU64::new(0),
        }
    }
}

impl Account {
    /// Limits the account to `share` of `most`, the largest share of all adapters.
    pub fn limit(&self, share: u32, most: u32) {
        let limit = LIMIT as u64 * u64::from(share) / u64::from(most.max(1));
        let limit = usize::try_from(limit).unwrap_or(LIMIT).clamp(LIMIT_MIN, LIMIT);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns how many units of `unit` bytes may be sent at the time `now`.
    #[must_use]
    pub fn room(&self, unit: usize, now: Nanos) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        let room = limit.saturating_sub(self.bytes.load(Ordering::Relaxed)) / unit.max(1);
        if room > 0 {
            self.full_since.store(0, Ordering::Relaxed);
            return room;
        }
        let now = now.max(Nanos(1));
        let first =
            self.full_since.compare_exchange(0, now.0, Ordering::Relaxed, Ordering::Relaxed);
        let since = first.map_or_else(Nanos, |_| now);
        if now.since(since) > STUCK { limit / unit.max(1) } else { 0 }
    }

    /// Charges an account with bytes, until the result is dropped.
    #[must_use]
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: Arc::clone(self), bytes }
    }
}

/// Bytes with which an account is charged.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_account_stops_its_adapter_until_bytes_have_left_or_the_uplink_is_stuck() {
        let account = Arc::new(Account::default());
        assert_eq!(account.room(1 << 10, Nanos(5)), 1 << 10);
        let first = account.charge(LIMIT - 100);
        assert_eq!(account.room(1 << 10, Nanos(5)), 0, "less than a frame is no room");
        drop(first);
        assert_eq!(account.room(1 << 10, Nanos(6)), 1 << 10);

        account.limit(1, 4);
        assert_eq!(account.room(1 << 10, Nanos(6)), 1 << 8);
        account.limit(1, 1000);
        assert_eq!(account.room(1 << 10, Nanos(6)), LIMIT_MIN >> 10);
        account.limit(1000, 1000);

        let _charge = account.charge(LIMIT);
        assert_eq!(account.room(1 << 10, Nanos(7)), 0);
        assert_eq!(account.room(1 << 10, Nanos(7).plus(STUCK)), 0);
        assert_eq!(account.room(1 << 10, Nanos(8).plus(STUCK)), 1 << 10);
    }
}

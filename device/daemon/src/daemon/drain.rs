//! The end of work requests that have begun, before the daemon ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hosted::adapter::HostedAdapter;
use crate::memory::stall::Watched;

/// The time between two checks of the adapters.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time that drivers have to reset their adapters after they were notified that the daemon
/// ends.
const RESETS: Duration = Duration::from_secs(1);
/// Time for the last register accesses of a driver that has reset its adapter. QEMU 11.1 may abort
/// if the daemon ends while it waits for an answer.
const ACCESSES: Duration = Duration::from_millis(100);

/// Lets these adapters begin no more work requests, waits until those that have begun have ended,
/// and tells the drivers. Waits for at most `limit`. When `is_urgent` returns true, it stops
/// waiting and does not notify the drivers.
pub(super) fn drain(
    adapters: &[Arc<HostedAdapter>],
    limit: Duration,
    mut is_urgent: impl FnMut() -> bool,
) {
    let _watched = Watched::begin();
    adapters.iter().for_each(|hosted| hosted.close());
    tracing::info!("the daemon starts no more work requests");
    let busy = || adapters.iter().map(|hosted| hosted.busy_qps()).sum();
    match wait(busy, limit, &mut is_urgent) {
        Wait::Over => tracing::info!("all work requests that had been started have ended"),
        Wait::Late(busy) => {
            tracing::warn!("work requests of {busy} queue pairs have not ended within {limit:?}");
        }
        Wait::Urgent => {
            tracing::warn!("the daemon ends at once, because of a second signal");
            return;
        }
    }
    adapters.iter().for_each(|hosted| hosted.stop());
    let enabled = || adapters.iter().filter(|hosted| hosted.adapter().core().is_enabled()).count();
    if enabled() > 0 && matches!(wait(enabled, RESETS, &mut is_urgent), Wait::Over) {
        std::thread::sleep(ACCESSES);
    }
}

/// The end of a wait.
enum Wait {
    /// Nothing was left before the time was over.
    Over,
    /// So much was left when the time was over.
    Late(usize),
    /// The daemon is to end at once.
    Urgent,
}

/// Waits until nothing is left, for at most `limit`.
fn wait(left: impl Fn() -> usize, limit: Duration, mut is_urgent: impl FnMut() -> bool) -> Wait {
    let start = Instant::now();
    loop {
        let left = left();
        if left == 0 {
            return Wait::Over;
        }
        if is_urgent() {
            return Wait::Urgent;
        }
        let rest = limit.saturating_sub(start.elapsed());
        if rest.is_zero() {
            return Wait::Late(left);
        }
        std::thread::sleep(rest.min(POLL_INTERVAL));
    }
}

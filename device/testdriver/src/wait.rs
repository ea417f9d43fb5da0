//! Waiting for things that take a while, with a limit.

use std::time::{Duration, Instant};

/// Time limit for everything that tests wait for; generous, for loaded machines.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Calls `probe` until it gives something, for at most [`LIMIT`].
#[track_caller]
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() <= LIMIT, "{what}: nothing within {LIMIT:?}");
        // On a machine with few processors the daemon needs this one, too.
        std::thread::sleep(Duration::from_micros(50));
    }
}

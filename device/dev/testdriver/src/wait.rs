//! Waiting with a time limit.

use std::time::{Duration, Instant};

/// Time limit for everything that tests wait for. It allows for loaded machines.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Calls `probe` until it returns a value, for at most [`LIMIT`].
#[track_caller]
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() <= LIMIT, "{what}: nothing within {LIMIT:?}");
        // On a machine with few processors the daemon needs this processor, too.
        std::thread::sleep(Duration::from_micros(50));
    }
}

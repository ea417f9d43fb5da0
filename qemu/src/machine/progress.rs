//! Progress lines, in the form that the scripts use.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time at which the run started. The script exports it; otherwise it is the time of the first
/// line.
static STARTED: LazyLock<SystemTime> = LazyLock::new(|| {
    std::env::var("VRNIC_STARTED")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .map_or_else(SystemTime::now, |seconds| UNIX_EPOCH + Duration::from_secs(seconds))
});

/// Prints a line of progress, with the seconds since the start.
pub fn step(text: impl std::fmt::Display) {
    eprint!("{}", line(text));
}

/// Returns a line of progress, with the seconds since the start.
pub(crate) fn line(text: impl std::fmt::Display) -> String {
    format!("[{:4}s] {text}\n", STARTED.elapsed().unwrap_or_default().as_secs())
}

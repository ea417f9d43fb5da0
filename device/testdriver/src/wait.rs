//! Waiting for things that take a while, with a limit.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Time limit for everything that tests wait for; generous, for loaded machines.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Calls `probe` until it gives something, for at most [`LIMIT`].
///
/// # Errors
/// When the time is over, or what `probe` reports.
pub fn until<T>(
    what: &str,
    mut probe: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if start.elapsed() > LIMIT {
            bail!("{what}: nothing within {LIMIT:?}");
        }
        // Polite on small machines: the daemon needs a processor too.
        std::thread::sleep(Duration::from_micros(50));
    }
}

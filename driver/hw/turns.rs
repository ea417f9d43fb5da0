// SPDX-License-Identifier: GPL-2.0
//! Turns of threads that take what an adapter adds, which may have no end. This does not depend on
//! the kernel, so `abi/tests/kernel_turns.rs` can test it without one.

/// Something of which a thread takes a part at a time.
pub(crate) trait Source {
    /// Takes a part. Returns whether there may be more.
    fn take(&self) -> bool;

    /// Returns whether what is left matters to nobody.
    fn is_over(&self) -> bool;

    /// Returns the time in ns, from any beginning.
    fn now(&self) -> i64;

    /// Leaves the processor to others for so many ns, or longer.
    fn pause(&self, time: i64);
}

/// Takes all parts until the source is empty or over, and uses at most half of the processor's
/// time. Each pause has at least so many ns.
pub(crate) fn take_all(source: &impl Source, pause: i64) {
    let mut start = source.now();
    while source.take() && !source.is_over() {
        source.pause(source.now().wrapping_sub(start).max(pause));
        start = source.now();
    }
}

/// Calls `take`, which returns whether there may be more, so many times at most. Returns whether
/// there may still be more.
pub(crate) fn take_some(times: u32, mut take: impl FnMut() -> bool) -> bool {
    (0..times).all(|_| take())
}

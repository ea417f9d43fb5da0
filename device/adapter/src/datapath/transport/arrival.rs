//! The way on which a frame comes to an adapter.

use std::cell::Cell;

use crate::ethernet::Frame;
use crate::watch::Watcher;

/// The arrival of a frame.
#[derive(Debug, Default)]
pub(crate) struct Arrival<'w> {
    /// True if the frame comes from another adapter, and the switch brings it again if this adapter
    /// returns it.
    pub(crate) comes_again: bool,
    /// The watcher of frames that come from other adapters.
    pub(crate) watcher: Option<&'w dyn Watcher>,
    /// The number of QPs of raw packets that have got the frame.
    copies: Cell<u64>,
}

impl<'w> Arrival<'w> {
    /// Returns the arrival of frames that come from other adapters directly.
    pub(crate) fn direct(comes_again: bool, watcher: Option<&'w dyn Watcher>) -> Self {
        Self { comes_again, watcher, copies: Cell::new(0) }
    }

    /// Shows a frame that the function of this name gets to the watcher. The switch shows all
    /// others.
    pub(crate) fn record(&self, function: &str, frame: &Frame) {
        if let Some(watcher) = self.watcher {
            watcher.arriving(function, frame);
        }
    }

    /// Records that QPs of raw packets have got a frame, which takes time.
    pub(crate) fn add_copies(&self, count: u64) {
        self.copies.set(self.copies.get() + count);
    }

    /// Returns the number of QPs of raw packets that have got a frame.
    pub(crate) fn copies(&self) -> u64 {
        self.copies.get()
    }
}

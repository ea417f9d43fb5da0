//! How a frame comes to an adapter.

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
}

impl<'w> Arrival<'w> {
    /// Returns the arrival of frames that come from other adapters directly.
    pub(crate) fn direct(comes_again: bool, watcher: Option<&'w dyn Watcher>) -> Self {
        Self { comes_again, watcher }
    }

    /// Shows a frame that the function of this name gets to the watcher. The switch shows all
    /// others.
    pub(crate) fn record(&self, function: &str, frame: &Frame) {
        if let Some(watcher) = self.watcher {
            watcher.arriving(function, frame);
        }
    }
}

//! The way on which a frame comes to an adapter.

use std::cell::Cell;

use vrnic_abi::Qpn;

use crate::ethernet::Frame;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::faults::trace::Noted;
use crate::watch::Watcher;

/// The arrival of a frame.
#[derive(Debug, Default)]
pub(crate) struct Arrival<'w> {
    /// True if the frame comes from another adapter, and the switch brings it again if this adapter
    /// returns it.
    pub(crate) comes_again: bool,
    /// The watcher of frames that come from other adapters.
    pub(crate) watcher: Option<&'w dyn Watcher>,
    /// The number of QPs of raw packets that have got the frame, and work that takes as long.
    copies: Cell<u64>,
}

impl<'w> Arrival<'w> {
    /// Returns the arrival of frames that come from other adapters directly.
    pub(crate) fn direct(comes_again: bool, watcher: Option<&'w dyn Watcher>) -> Self {
        Self { comes_again, watcher, copies: Cell::new(0) }
    }

    /// Shows a frame that an adapter gets for a QP, if that is known, to the watcher. The switch
    /// shows all others.
    pub(crate) fn record<H: Host>(&self, core: &Core<H>, qpn: Option<Qpn>, frame: &Frame) {
        if let Some(watcher) = self.watcher {
            watcher.arriving(core.name(), frame, note(core, qpn, frame));
        }
    }

    /// Records that QPs of raw packets have got a frame, which takes time, or other work that takes
    /// as long.
    pub(crate) fn add_copies(&self, count: u64) {
        self.copies.set(self.copies.get() + count);
    }

    /// Returns the number of QPs of raw packets that have got a frame, and of other work that takes
    /// as long.
    pub(crate) fn copies(&self) -> u64 {
        self.copies.get()
    }
}

/// Returns the comment of captures on a frame that an adapter gets for a QP, if that is traced.
pub(crate) fn note<H: Host>(core: &Core<H>, qpn: Option<Qpn>, frame: &Frame) -> Option<String> {
    core.injection.note(core.here(), qpn?, &Noted::Frame { bytes: frame.bytes(), leaves: false })
}

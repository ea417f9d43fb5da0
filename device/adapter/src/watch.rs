//! What a daemon sees of its adapters' traffic, while it asks for it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use vrnic_abi::Qpn;

use crate::ethernet::Frame;

/// The sender of frames.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The name of its adapter.
    pub function: &'a str,
    /// The MAC of its adapter.
    pub mac: [u8; 6],
    /// The QP.
    pub qpn: Qpn,
}

/// Hears of traffic. Workers call it in their turns, so it never waits.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Is given the frames of a QP before they leave. It may take some away, add some, and change
    /// them.
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>);
}

/// The watcher of a daemon's adapters, and what it wants to hear of now.
#[derive(Debug, Default)]
pub struct Watch {
    watcher: OnceLock<Arc<dyn Watcher>>,
    frames: AtomicBool,
}

impl Watch {
    /// Sets the watcher, once.
    pub fn attach(&self, watcher: Arc<dyn Watcher>) {
        let _set_before = self.watcher.set(watcher);
    }

    /// From now on the watcher hears of frames, or does not. A turn that is under way may not heed
    /// this yet.
    pub fn want_frames(&self, wanted: bool) {
        self.frames.store(wanted, Ordering::Relaxed);
    }

    /// Returns the watcher if it wants to hear of frames.
    #[inline]
    pub(crate) fn of_frames(&self) -> Option<&dyn Watcher> {
        if self.frames.load(Ordering::Relaxed) { self.watcher.get().map(|of| &**of) } else { None }
    }
}

//! Ethernet frames on their way between an adapter and the network outside of its daemon.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Frames that may wait for a worker. Those that come when so many wait are lost.
const INBOX: usize = 4096;
/// As many are left for senders that do not ask for room.
const RESERVE: usize = INBOX / 2;

/// An Ethernet frame without preamble and check sequence.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// Makes a frame of these bytes, which begin with the destination's MAC.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, to be used elsewhere.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the MAC that the frame is for; zero if it has none.
    #[must_use]
    pub fn destination(&self) -> [u8; 6] {
        self.0.first_chunk().copied().unwrap_or_default()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.0.len())
    }
}

/// The network outside of the daemon, as its adapters see it. Workers call it in their turns, so it
/// never waits: a frame that finds no room is lost, as on any Ethernet.
pub trait Uplink: fmt::Debug + Send + Sync {
    /// Takes frames that the adapter with the MAC `source` sends, in their order.
    fn send(&self, source: [u8; 6], frames: &mut Vec<Frame>);

    /// Returns about how many frames the adapter with the MAC `source` may send before some are
    /// lost at once.
    fn room(&self, source: [u8; 6]) -> usize;
}

/// Frames that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    frames: Mutex<VecDeque<Frame>>,
    len: AtomicUsize,
}

impl Inbox {
    /// Appends a frame; returns whether there was room.
    pub(crate) fn put(&self, frame: Frame) -> bool {
        let mut frames = self.frames.lock();
        let room = frames.len() < INBOX;
        if room {
            frames.push_back(frame);
            self.len.store(frames.len(), Ordering::Release);
        }
        room
    }

    /// Returns whether a frame waits.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.len.load(Ordering::Acquire) > 0
    }

    /// Returns how many frames a sender that asks may put.
    pub(crate) fn room(&self) -> usize {
        (INBOX - RESERVE).saturating_sub(self.len.load(Ordering::Acquire))
    }

    /// Moves frames to the end of `to`, at most `most` of them.
    pub(crate) fn take(&self, to: &mut VecDeque<Frame>, most: usize) {
        let mut frames = self.frames.lock();
        let count = most.min(frames.len());
        to.extend(frames.drain(..count));
        self.len.store(frames.len(), Ordering::Release);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.frames.lock().clear();
        self.len.store(0, Ordering::Release);
    }
}

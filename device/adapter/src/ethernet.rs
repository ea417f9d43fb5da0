//! Ethernet frames between an adapter and the network outside of its daemon.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Maximum number of frames that wait for a worker. Further frames are lost.
const INBOX: usize = 4096;
/// Number of these that are reserved for senders that do not ask for room.
const RESERVE: usize = INBOX / 2;

/// An Ethernet frame without preamble and frame check sequence.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// Creates a frame from these bytes, which begin with the destination's MAC.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the destination MAC, or zero if the frame has none.
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

/// The network outside of the daemon, for its adapters. Workers call it in their turns, so it never
/// waits: a frame for which there is no room is lost, as on any Ethernet.
pub trait Uplink: fmt::Debug + Send + Sync {
    /// Takes frames that the adapter with the MAC `source` sends, in order.
    fn send(&self, source: [u8; 6], frames: &mut Vec<Frame>);

    /// Returns approximately how many frames the adapter with the MAC `source` can send before some
    /// are dropped.
    fn room(&self, source: [u8; 6]) -> usize;
}

/// Frames that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    frames: Mutex<VecDeque<Frame>>,
    len: AtomicUsize,
}

impl Inbox {
    /// Appends a frame. Returns whether there was room.
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

    /// Returns the number of frames for which a sender that asks has room.
    pub(crate) fn room(&self) -> usize {
        (INBOX - RESERVE).saturating_sub(self.len.load(Ordering::Acquire))
    }

    /// Moves at most `most` frames to the end of `to`.
    pub(crate) fn take(&self, to: &mut VecDeque<Frame>, most: usize) {
        let mut frames = self.frames.lock();
        let count = most.min(frames.len());
        to.extend(frames.drain(..count));
        self.len.store(frames.len(), Ordering::Release);
    }

    /// Removes all frames.
    pub(crate) fn clear(&self) {
        self.frames.lock().clear();
        self.len.store(0, Ordering::Release);
    }
}

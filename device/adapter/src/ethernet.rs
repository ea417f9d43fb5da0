//! Ethernet frames between an adapter and the network outside of its daemon.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Maximum number of frames that wait for a worker. Further frames are lost.
const INBOX: usize = 4096;
/// Number of these that are reserved for senders that do not ask for room.
const RESERVE: usize = INBOX / 2;

/// The shortest data of segments that are joined to one frame, so that a frame has at most 256 of
/// them and the turn in which it arrives stays short.
pub const SEGMENT_MIN: usize = 256;

/// How several frames with segments of TCP were joined to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joint {
    /// Length of the headers, which each of the frames has.
    pub headers: u16,
    /// Length of the data in each of them. Only the last one may have less.
    pub segment: u16,
}

/// An Ethernet frame without preamble and frame check sequence, or several frames that were joined
/// to one and are to be cut again. The checksum of TCP in a joined frame is that of the
/// pseudo-header. Nothing has changed its data since its sender's memory, or the host's kernel has
/// checked it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Frame {
    bytes: Vec<u8>,
    /// Offset of the first byte of the frame.
    start: u16,
    /// The numbers of [`Joint`], if it is a joined frame. Queues of frames are smaller than with a
    /// `Joint` here.
    headers: u16,
    segment: Option<NonZeroU16>,
}

impl Frame {
    /// Creates a frame from these bytes, which begin with the destination's MAC.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, start: 0, headers: 0, segment: None }
    }

    /// Creates a frame from the bytes from `start` on.
    #[must_use]
    pub fn behind(bytes: Vec<u8>, start: u16, joint: Option<Joint>) -> Self {
        let segment = joint.and_then(|joint| NonZeroU16::new(joint.segment));
        Self { bytes, start, headers: joint.map_or(0, |joint| joint.headers), segment }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(self.start.into()..).unwrap_or_default()
    }

    /// Returns the bytes.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..usize::from(self.start).min(self.bytes.len()));
        self.bytes
    }

    /// Returns how frames were joined to this one, if they were.
    #[must_use]
    pub fn joint(&self) -> Option<Joint> {
        self.segment.map(|segment| Joint { headers: self.headers, segment: segment.get() })
    }

    /// Returns the number of frames that this one stands for.
    #[must_use]
    pub fn count(&self) -> usize {
        let Some(segment) = self.segment else { return 1 };
        let data = self.bytes().len().saturating_sub(self.headers.into());
        data.div_ceil(usize::from(segment.get())).max(1)
    }

    /// Returns the length of the longest of them.
    #[must_use]
    pub fn longest(&self) -> usize {
        let len = self.bytes().len();
        let longest = |segment: NonZeroU16| usize::from(self.headers) + usize::from(segment.get());
        self.segment.map_or(len, |segment| len.min(longest(segment)))
    }

    /// Returns the bytes of all of them.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bytes().len() + (self.count() - 1) * usize::from(self.headers)
    }

    /// Returns whether the destination is a group, such as all stations (IEEE 802.3, I/G bit).
    #[must_use]
    pub fn is_to_group(&self) -> bool {
        self.destination()[0] & 1 != 0
    }

    /// Returns the destination MAC, or zero if the frame has none.
    #[must_use]
    pub fn destination(&self) -> [u8; 6] {
        self.bytes().first_chunk().copied().unwrap_or_default()
    }
}

/// What an adapter has done with a frame that was offered to it.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    /// It was for the adapter, which has queued it, or has discarded it because no object of the
    /// adapter can receive it.
    Taken,
    /// It was for the adapter, and was lost because its workers do not keep up.
    Full,
    /// It is not for the adapter.
    Other(Frame),
}

impl Offered {
    /// Returns the frame if it is not for the adapter.
    #[must_use]
    pub fn other(self) -> Option<Frame> {
        match self {
            Self::Taken | Self::Full => None,
            Self::Other(frame) => Some(frame),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes().len())
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

    /// Returns whether joined frames are welcome. If not, each is cut before it is sent, which
    /// costs more than frames that were never joined.
    fn joins(&self) -> bool {
        false
    }
}

/// Frames that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    frames: Mutex<VecDeque<Frame>>,
    /// Number of frames, where a joined one counts as all those that it stands for.
    len: AtomicUsize,
}

impl Inbox {
    /// Appends a frame. Returns whether there was room.
    pub(crate) fn put(&self, frame: Frame) -> bool {
        let mut frames = self.frames.lock();
        let len = self.len.load(Ordering::Relaxed);
        let room = len < INBOX;
        if room {
            self.len.store(len + frame.count(), Ordering::Release);
            frames.push_back(frame);
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
        let taken: usize = frames.iter().take(count).map(Frame::count).sum();
        to.extend(frames.drain(..count));
        // Only with the lock is it written.
        self.len.store(self.len.load(Ordering::Relaxed).saturating_sub(taken), Ordering::Release);
    }

    /// Removes all frames.
    pub(crate) fn clear(&self) {
        let mut frames = self.frames.lock();
        frames.clear();
        self.len.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_frame_counts_as_those_that_it_stands_for() {
        let joint = Some(Joint { headers: 54, segment: 100 });
        let frame = Frame::behind(vec![7; 10 + 54 + 350], 10, joint);
        assert_eq!((frame.bytes().len(), frame.count(), frame.longest()), (404, 4, 154));
        assert_eq!(frame.total(), 4 * 54 + 350);
        let inbox = Inbox::default();
        assert!(inbox.put(frame.clone()) && inbox.put(Frame::new(vec![0; 60])));
        assert_eq!(inbox.room(), INBOX - RESERVE - 5);
        let mut taken = VecDeque::new();
        inbox.take(&mut taken, 1);
        assert_eq!((taken.len(), inbox.room()), (1, INBOX - RESERVE - 1));
        inbox.take(&mut taken, 9);
        assert!(!inbox.any() && taken.len() == 2);
        assert_eq!(frame.into_bytes(), [7; 404]);
        assert_eq!(Frame::new(vec![0; 60]).count(), 1);
    }
}

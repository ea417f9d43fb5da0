//! The frames that wait to leave by a port.

use std::collections::VecDeque;
use std::io::IoSlice;

use arrayvec::ArrayVec;

use super::account::Charge;
use super::frame::Frame;
use super::framing::{PREFIX, prefix};

/// Maximum number of frames that are written by one system call.
pub const BATCH: usize = 256;
/// Number of bytes that count for each frame in addition to its memory, so that many short frames
/// do not fill the memory.
pub const OVERHEAD: usize = 64;

/// A piece of memory for each prefix and each frame of a batch.
pub type Slices<'a> = ArrayVec<IoSlice<'a>, { 2 * BATCH }>;

/// A queue of frames with a limit of bytes.
#[derive(Debug)]
pub struct SendQueue {
    frames: VecDeque<Waiting>,
    /// Bytes of all frames, with their [`OVERHEAD`].
    bytes: usize,
    limit: usize,
    /// Number of bytes of the first frame that have been written, including its prefix.
    sent: usize,
}

#[derive(Debug)]
struct Waiting {
    prefix: [u8; PREFIX],
    frame: Frame,
    /// The charge of the adapter that sent the frame.
    charge: Option<Charge>,
}

impl SendQueue {
    /// Creates a queue for at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, limit, sent: 0 }
    }

    /// Appends a frame, and keeps `charge` until the frame is removed. Returns false if there is no
    /// room for it.
    #[must_use]
    pub fn push(&mut self, frame: Frame, charge: Option<Charge>) -> bool {
        let len = frame.footprint() + OVERHEAD;
        if self.bytes + len > self.limit {
            return false;
        }
        self.bytes += len;
        self.frames.push_back(Waiting { prefix: prefix(&frame), frame, charge });
        true
    }

    /// Returns the bytes of all frames, with their [`OVERHEAD`].
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether no frame waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the frames, the first one first.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().map(|waiting| &waiting.frame)
    }

    /// Removes the first `count` frames.
    pub fn remove(&mut self, count: usize) {
        for waiting in self.frames.drain(..count.min(self.frames.len())) {
            self.bytes -= waiting.frame.footprint() + OVERHEAD;
        }
        self.sent = 0;
    }

    /// Replaces the first frame by others.
    pub fn replace_first(&mut self, frames: Vec<Frame>) {
        let Some(Waiting { frame, mut charge, .. }) = self.frames.pop_front() else { return };
        self.bytes -= frame.footprint() + OVERHEAD;
        // The last one keeps the charge.
        for frame in frames.into_iter().rev() {
            self.bytes += frame.footprint() + OVERHEAD;
            let charge = charge.take();
            self.frames.push_front(Waiting { prefix: prefix(&frame), frame, charge });
        }
        self.sent = 0;
    }

    /// Removes all frames. Returns how many there were, where a joined one counts as all those that
    /// it stands for.
    pub fn clear(&mut self) -> usize {
        let count = self.frames().map(Frame::count).sum();
        self.remove(self.frames.len());
        count
    }

    /// Returns the bytes that are to be written next to a stream.
    #[must_use]
    pub fn stream(&self) -> Slices<'_> {
        // Only the first frame can be written in part.
        let mut written = self.sent;
        let parts = self.frames.iter().take(BATCH).flat_map(Waiting::parts);
        let rest = parts.filter_map(|part| {
            let skipped = written.min(part.len());
            written -= skipped;
            part.get(skipped..).filter(|rest| !rest.is_empty())
        });
        rest.map(IoSlice::new).collect()
    }

    /// Removes the frames that are complete after `len` bytes have been written to a stream.
    pub fn written(&mut self, len: usize) {
        let mut sent = self.sent + len;
        while let Some(first) = self.frames.front()
            && sent >= first.len()
        {
            sent -= first.len();
            self.remove(1);
        }
        self.sent = sent;
    }
}

impl Waiting {
    fn parts(&self) -> [&[u8]; 2] {
        [&self.prefix, self.frame.bytes()]
    }

    fn len(&self) -> usize {
        PREFIX + self.frame.bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use vrnic_adapter::ethernet::{self, Joint};

    use super::*;

    fn frame(len: usize) -> Frame {
        Frame::new((0..len).map(|i| i.to_le_bytes()[0]).collect()).expect("a frame")
    }

    fn bytes(slices: &[IoSlice<'_>]) -> Vec<u8> {
        slices.iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn a_stream_has_every_byte_once_whatever_the_pieces() {
        for piece in [1, 3, 19, 64, 1000] {
            let mut queue = SendQueue::new(1 << 20);
            let lens = [14, 60, 15, 700, 99];
            let mut whole = Vec::new();
            for len in lens {
                assert!(queue.push(frame(len), None));
                whole.extend(u32::try_from(len).expect("small").to_be_bytes());
                whole.extend(frame(len).bytes());
            }
            let mut out: Vec<u8> = Vec::new();
            while !queue.is_empty() {
                let next = bytes(&queue.stream());
                let len = piece.min(next.len());
                out.extend(&next[..len]);
                queue.written(len);
            }
            assert_eq!(out, whole, "pieces of {piece}");
            assert_eq!((queue.bytes, queue.sent), (0, 0));
        }
    }

    #[test]
    fn a_full_queue_takes_nothing_until_frames_have_left() {
        let mut queue = SendQueue::new(3 * (100 + OVERHEAD));
        assert!((0..3).all(|_| queue.push(frame(100), None)));
        assert!(!queue.push(frame(14), None));
        queue.remove(1);
        assert!(queue.push(frame(14), None));
        assert_eq!(queue.clear(), 3);
        assert_eq!(queue.bytes, 0);
        let joint = Joint { headers: 54, segment: 60 };
        let joined = ethernet::Frame::joined(vec![0; 54 + 150], joint);
        assert!(queue.push(joined.try_into().expect("a frame"), None));
        assert_eq!(queue.clear(), 3);
    }
}

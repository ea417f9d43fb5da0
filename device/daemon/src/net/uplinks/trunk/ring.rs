//! The ring by which frames pass in one direction of a trunk, and the argument that no wake-up is
//! lost.
//!
//! Positions count bytes from the start on, and never wrap in practice. Each frame is after its
//! length, a 64-bit number, and both begin at a multiple of eight. The sender writes frames, and
//! then [`Word::Head`]. The receiver copies them out, and then writes [`Word::Tail`].
//!
//! A side that is going to wait sets its word ([`Word::WantsFrames`], [`Word::WantsRoom`]), and
//! then looks at the other side's position once more. The other side writes its position, and then
//! looks at the word. Between the two steps each side has a fence. So either the one that is going
//! to wait sees the new position, or the other one sees the word, clears it, and sends a wake-up.
//!
//! Each side keeps its own position, and believes of the other's only what is possible.

use std::sync::atomic::Ordering;

use thiserror::Error;
use vrnic_adapter::ethernet::Frame;

use super::memory::{CAPACITY, LENGTHS, Memory, Word, fence};

/// Bytes of a length, and the alignment of frames.
pub const PREFIX: u64 = 8;
/// Bytes that must be free before a sender that has found no room continues, so that neither side
/// wakes the other one for each frame.
const ENOUGH_FREE: u64 = CAPACITY / 2;

/// A word of the peer in the shared memory that cannot be true.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Lie {
    /// The peer's position runs backwards, or ahead of what is possible.
    #[error("the peer's position in the shared memory went from {from} to {to}")]
    Position {
        /// The last position.
        from: u64,
        /// The position after it.
        to: u64,
    },
    /// A frame ends after the last one.
    #[error("the peer has announced a frame of {0} bytes, but has sent fewer bytes")]
    Length(u64),
    /// The memory has disappeared.
    #[error("the peer's shared memory has disappeared")]
    Lost,
}

/// The next entry of a ring, as its receiver finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame.
    Frame(Frame),
    /// No frame has this length. It was skipped.
    Malformed(u64),
    /// No frame waits.
    Nothing,
}

/// The end of a ring that frames go into.
#[derive(Debug)]
pub struct Sender {
    memory: Memory,
    /// The position of the next frame.
    head: u64,
    /// The position that the receiver knows.
    published: u64,
    /// The receiver's position when it was last looked at.
    tail: u64,
}

/// The end of a ring that frames come out of.
#[derive(Debug)]
pub struct Receiver {
    memory: Memory,
    /// The position of the next frame.
    tail: u64,
    /// The position that the sender knows.
    published: u64,
    /// The sender's position when it was last looked at.
    head: u64,
}

/// Returns the bytes that a frame takes, if that is a number.
const fn record(len: u64) -> Option<u64> {
    match len.checked_add(2 * PREFIX - 1) {
        Some(sum) => Some(sum - sum % PREFIX),
        None => None,
    }
}

impl Sender {
    /// Creates the sender's end of memory that it has created.
    #[must_use]
    pub const fn new(memory: Memory) -> Self {
        Self { memory, head: 0, published: 0, tail: 0 }
    }

    /// Writes a frame, which the receiver sees after [`Self::publish`]. Returns false if there is
    /// no room for it.
    ///
    /// # Errors
    /// The peer has lied.
    pub fn put(&mut self, frame: &[u8]) -> Result<bool, Lie> {
        let len = frame.len() as u64;
        let Some(needed) = record(len) else { return Ok(false) };
        if needed > self.free() {
            self.update_tail()?;
            if needed > self.free() {
                return Ok(false);
            }
        }
        self.memory.put_length(self.head, len);
        self.memory.put(self.head.wrapping_add(PREFIX), frame);
        self.head = self.head.wrapping_add(needed);
        Ok(true)
    }

    /// Shows the receiver all frames that were written. Returns whether it has to be woken.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        self.memory.store(Word::Head, self.head);
        self.published = self.head;
        wants(&self.memory, Word::WantsFrames)
    }

    /// Returns whether it is worth while to try again after [`Self::put`] has found no room.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        // A lie counts as room: the next frame finds it.
        let used = self.head.wrapping_sub(self.memory.load(Word::Tail));
        CAPACITY.checked_sub(used).is_none_or(|free| free >= ENOUGH_FREE)
    }

    /// Asks to be woken when there is room. Returns false if there is room already.
    #[must_use]
    pub fn wait(&self) -> bool {
        self.memory.store(Word::WantsRoom, 1);
        fence(Ordering::SeqCst);
        !self.has_room()
    }

    const fn free(&self) -> u64 {
        CAPACITY - self.head.wrapping_sub(self.tail)
    }

    /// Reads the receiver's position. It must be between the last known one and the end of the
    /// frames that the receiver has been shown.
    fn update_tail(&mut self) -> Result<(), Lie> {
        let tail = self.memory.load(Word::Tail);
        if tail.wrapping_sub(self.tail) > self.published.wrapping_sub(self.tail) {
            return Err(Lie::Position { from: self.tail, to: tail });
        }
        self.tail = tail;
        Ok(())
    }
}

impl Receiver {
    /// Creates the receiver's end of memory that the peer has created.
    #[must_use]
    pub const fn new(memory: Memory) -> Self {
        Self { memory, tail: 0, published: 0, head: 0 }
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// The peer has lied.
    pub fn take(&mut self) -> Result<Next, Lie> {
        if self.tail == self.head {
            let head = self.memory.load(Word::Head);
            if head.wrapping_sub(self.tail) > CAPACITY {
                return Err(Lie::Position { from: self.head, to: head });
            }
            self.head = head;
            if self.tail == head {
                return Ok(Next::Nothing);
            }
        }
        // The length is loaded once.
        let len = self.memory.length(self.tail).ok_or(Lie::Lost)?;
        let available = self.head.wrapping_sub(self.tail);
        let taken = record(len).filter(|taken| *taken <= available).ok_or(Lie::Length(len))?;
        let next = if LENGTHS.contains(&len) {
            let frame = self.memory.get(self.tail.wrapping_add(PREFIX), len);
            Next::Frame(frame.ok_or(Lie::Lost)?)
        } else {
            Next::Malformed(len)
        };
        self.tail = self.tail.wrapping_add(taken);
        Ok(next)
    }

    /// Gives the room of all frames that were taken back to the sender. Returns whether it has to
    /// be woken.
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.memory.store(Word::Tail, self.tail);
        self.published = self.tail;
        let used = self.head.wrapping_sub(self.tail);
        used <= CAPACITY - ENOUGH_FREE && wants(&self.memory, Word::WantsRoom)
    }

    /// Returns whether a frame waits.
    #[inline]
    #[must_use]
    pub fn has_frames(&self) -> bool {
        self.tail != self.head || self.memory.load(Word::Head) != self.tail
    }

    /// Asks to be woken when a frame comes. Returns false if one waits already.
    #[must_use]
    pub fn wait(&self) -> bool {
        self.memory.store(Word::WantsFrames, 1);
        fence(Ordering::SeqCst);
        !self.has_frames()
    }
}

/// Returns whether the other side asks to be woken. It is woken once each time that it asks.
fn wants(memory: &Memory, word: Word) -> bool {
    fence(Ordering::SeqCst);
    memory.load(word) != 0 && memory.clear(word) != 0
}

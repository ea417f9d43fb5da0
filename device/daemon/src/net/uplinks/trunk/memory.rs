//! The shared memory of one direction of a trunk: a few words, and the bytes of the ring. The side
//! that sends in this direction creates it, and gives it to the peer with the greeting.
//!
//! Both sides can write to all of it at any time.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use thiserror::Error;
use vrnic_adapter::ethernet::Frame;
use vrnic_packet::pool::Buffer;

use crate::memory::mapping::Mapping;
use crate::net::frame::{FRAME_MAX, FRAME_MIN};

pub(super) use std::sync::atomic::fence;

/// Bytes of the ring.
pub const CAPACITY: u64 = 1 << 20;
/// Lengths that a frame may have.
pub const LENGTHS: RangeInclusive<u64> = FRAME_MIN as u64..=FRAME_MAX as u64;
/// Offset of the ring's bytes.
pub const DATA: usize = 4096;
/// Length of the memory.
const LEN: usize = DATA + CAPACITY as usize;
/// Seals that the memory must have, so that it keeps its length.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The words, and their offsets. Each has cache lines of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The sender's position: the number of bytes that it has written.
    Head = 0,
    /// 1 if the sender waits for room, and wants to be woken.
    WantsRoom = 128,
    /// The receiver's position: the number of bytes that it has read.
    Tail = 256,
    /// 1 if the receiver waits for frames, and wants to be woken.
    WantsFrames = 384,
}

/// The reason for which the memory of a peer is refused.
#[derive(Debug, Error)]
pub enum Unfit {
    /// The file is not a memory file, or can be truncated.
    #[error("its shared memory is not sealed")]
    Seals,
    /// The file has another length.
    #[error("its shared memory has {0} bytes instead of {LEN}")]
    Length(u64),
    /// The kernel returned an error.
    #[error("its shared memory cannot be mapped: {0}")]
    Os(#[from] io::Error),
}

/// The memory of one direction, mapped.
#[derive(Debug)]
pub struct Memory(Mapping);

impl Memory {
    /// Creates the memory for the direction in which this side sends. Returns it with the file for
    /// the peer.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("vrnic-trunk", flags)?);
        // If memory is scarce, this fails here, and not when a frame is written.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, LEN as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Self(Mapping::new(&file, 0, LEN, true)?), file.into()))
    }

    /// Maps the memory that a peer has created.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn of_peer(file: OwnedFd) -> Result<Self, Unfit> {
        let file = File::from(file);
        // Only memory files have seals.
        if !rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS)) {
            return Err(Unfit::Seals);
        }
        let len = file.metadata()?.len();
        if len != LEN as u64 {
            return Err(Unfit::Length(len));
        }
        Ok(Self(Mapping::new(&file, 0, LEN, true)?))
    }

    /// Loads a word. What its writer wrote before is visible after this.
    #[inline]
    #[must_use]
    pub fn load(&self, word: Word) -> u64 {
        self.0.word64(word as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Stores a word after all that was read or written before.
    #[inline]
    pub fn store(&self, word: Word, value: u64) {
        // The word is inside, and the mapping is writable.
        let _always = self.0.word64(word as usize).map(|word| word.store(value, Ordering::Release));
    }

    /// Sets a word to zero, and returns its old value.
    pub fn clear(&self, word: Word) -> u64 {
        self.0.word64(word as usize).and_then(|word| word.fetch_clear(u64::MAX)).unwrap_or(0)
    }

    /// Loads the length of a frame, which is at a multiple of eight.
    #[inline]
    pub fn length(&self, at: u64) -> Option<u64> {
        Some(self.0.word64(DATA + place(at))?.load(Ordering::Relaxed)).filter(|_| !self.0.is_lost())
    }

    /// Stores the length of a frame at a multiple of eight.
    #[inline]
    pub fn put_length(&self, at: u64, len: u64) {
        let word = self.0.word64(DATA + place(at));
        // The word is inside, and the mapping is writable.
        let _always = word.map(|word| word.store(len, Ordering::Relaxed));
    }

    /// Copies bytes to a position. If the memory is lost, the peer gets nothing.
    #[inline]
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let at = place(at);
        let (first, rest) = bytes.split_at(bytes.len().min(LEN - DATA - at));
        // No frame is longer than the ring.
        let _always = self.0.fill(DATA + at, first);
        if !rest.is_empty() {
            let _always = self.0.fill(DATA, rest);
        }
    }

    /// Copies a frame from a position. Returns none if the memory is lost.
    #[inline]
    pub fn get(&self, at: u64, len: u64) -> Option<Frame> {
        let (at, len) = (place(at), usize::try_from(len).ok()?);
        let mut buffer = Buffer::of(len);
        let to = buffer.bytes_mut().get_mut(..len)?;
        let (first, rest) = to.split_at_mut(len.min(LEN - DATA - at));
        self.0.read(DATA + at, first)?;
        if !rest.is_empty() {
            self.0.read(DATA, rest)?;
        }
        Some(Frame::within(buffer, 0..len, None))
    }
}

/// Returns the place in the ring of a position.
const fn place(at: u64) -> usize {
    (at % CAPACITY) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_the_end_of_the_ring() {
        let (ours, file) = Memory::create().expect("memory");
        let theirs = Memory::of_peer(file).expect("the same memory");
        let bytes: Vec<u8> = (0..=255).collect();
        for at in [0, 8, CAPACITY - 256, CAPACITY - 8, 7 * CAPACITY - 128] {
            ours.put(at, &bytes);
            assert_eq!(theirs.get(at, 256), Some(Frame::copy(&bytes)), "{at}");
            ours.put_length(at, at);
            assert_eq!(theirs.length(at), Some(at));
        }
        ours.store(Word::Head, 5);
        assert_eq!((theirs.load(Word::Head), theirs.load(Word::Tail)), (5, 0));
        assert_eq!((theirs.clear(Word::Head), ours.load(Word::Head)), (5, 0));
    }

    #[test]
    fn memory_that_can_change_its_length_is_refused() {
        let file = |seals, len| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(rustix::fs::memfd_create("test", flags).expect("memfd"));
            file.set_len(len).expect("length");
            rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
            OwnedFd::from(file)
        };
        let len = LEN as u64;
        assert!(Memory::of_peer(file(SEALS, len)).is_ok());
        for less in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
            let refused = Memory::of_peer(file(SEALS.difference(less), len));
            assert!(matches!(refused, Err(Unfit::Seals)), "without {less:?}");
        }
        for wrong in [0, 1, len - 1, len + 1, len << 20] {
            let refused = Memory::of_peer(file(SEALS, wrong));
            assert!(matches!(refused, Err(Unfit::Length(got)) if got == wrong), "{wrong}");
        }
        // The receiver has to write its position.
        let refused = Memory::of_peer(file(SEALS | SealFlags::WRITE, len));
        assert!(matches!(refused, Err(Unfit::Os(_))));
        let plain = tempfile::tempfile().expect("a file");
        plain.set_len(len).expect("length");
        assert!(matches!(Memory::of_peer(plain.into()), Err(Unfit::Seals)));
    }
}

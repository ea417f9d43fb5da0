// SPDX-License-Identifier: GPL-2.0
//! Memory that a device reads and writes: pieces that lie anywhere, in RAM or in the device.
//!
//! The device may write at any time, so the contents are only touched through pointers, by volatile
//! accesses.

pub mod all_memory;
pub mod user_memory;

use core::ptr::NonNull;

use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::pd::Device;
use crate::bindings;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Words that lie together, aligned to their size if that is a power of two.
///
/// # Invariants
///
/// Start and capacity of the memory of a vector of words, or start and bytes of memory of a device,
/// which stays with it. All words are initialised, and this type owns them.
struct Piece(NonNull<u64>, usize, Option<Arc<dyn Device>>);

// SAFETY: by the type's invariants the memory is owned.
unsafe impl Send for Piece {}
// SAFETY: the memory is only touched by volatile accesses.
unsafe impl Sync for Piece {}

impl Piece {
    fn new(words: usize) -> Result<Self> {
        let mut vec = KVec::with_capacity(words, GFP_KERNEL)?;
        vec.extend_with(words, 0_u64, GFP_KERNEL)?;
        let (start, _, capacity) = vec.into_raw_parts();
        // INVARIANT: these are the parts of the vector, which has given up its memory.
        Ok(Self(NonNull::new(start).ok_or(ENOMEM)?, capacity, None))
    }

    fn of_device(device: &Arc<dyn Device>, size: usize) -> Result<Self> {
        // SAFETY: the device is registered, as `device` is alive.
        let start = unsafe { bindings::kclient_peer_alloc(device.as_raw().as_ptr(), size) };
        let start = NonNull::new(start.cast()).ok_or(ENOMEM)?;
        // INVARIANT: allocated just now, in whole pages. Any value of a word is valid.
        Ok(Self(start, size, Some(device.clone())))
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(device) = &self.2 {
            let device = device.as_raw().as_ptr();
            // SAFETY: by the type's invariants it is memory of this device, which is registered,
            // and is given back once.
            unsafe { bindings::kclient_peer_free(device, self.0.as_ptr().cast(), self.1) };
            return;
        }
        // SAFETY: by the type's invariants these are the parts of a vector, whose memory this type
        // owns. Words need no drop, so none is named.
        drop(unsafe { KVec::from_raw_parts(self.0.as_ptr(), 0, self.1) });
    }
}

/// Some pieces of one size, which are one space of bytes.
pub struct Memory {
    pieces: KVec<Piece>,
    size: usize,
}

impl Memory {
    /// Allocates this many pieces of `size` bytes, zeroed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the size is zero or not of whole words, `ENOMEM`.
    pub fn new(count: usize, size: usize) -> Result<Self> {
        if size == 0 || size % WORD != 0 {
            return Err(EINVAL);
        }
        let mut pieces = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            pieces.push(Piece::new(size / WORD)?, GFP_KERNEL)?;
        }
        Ok(Self { pieces, size })
    }

    /// Allocates one piece of a device's own memory, by which other PCI devices reach it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the size is not of whole pages, `ENOMEM` if the device has not so much left.
    pub fn of_device(device: &Arc<dyn Device>, size: usize) -> Result<Self> {
        if size == 0 || size % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let mut pieces = KVec::with_capacity(1, GFP_KERNEL)?;
        pieces.push(Piece::of_device(device, size)?, GFP_KERNEL)?;
        Ok(Self { pieces, size })
    }

    /// Returns the device whose own it is, if it is not RAM.
    pub(super) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.pieces.first()?.2.as_ref()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.pieces.len() * self.size
    }

    /// Returns the bytes of a piece.
    pub(super) fn piece_len(&self) -> usize {
        self.size
    }

    /// Returns the starts of the pieces.
    pub fn starts(&self) -> impl Iterator<Item = *mut u8> + '_ {
        self.pieces.iter().map(|piece| piece.0.as_ptr().cast())
    }

    /// Returns the address of a byte; it and those after it within the piece are there as long as
    /// this.
    fn byte(&self, at: usize) -> Result<*mut u8> {
        let piece = self.pieces.get(at / self.size).ok_or(EINVAL)?;
        // SAFETY: pieces have `size` bytes, so the offset is within this one.
        Ok(unsafe { piece.0.as_ptr().cast::<u8>().add(at % self.size) })
    }

    /// Returns word `nth`.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end.
    pub fn get(&self, nth: usize) -> Result<u64> {
        let word = self.byte(nth.checked_mul(WORD).ok_or(EINVAL)?)?.cast::<u64>();
        // SAFETY: `byte` has checked that the word is within the memory, whose pieces are aligned
        // and have whole words; the device may write it, so the access is volatile.
        Ok(unsafe { word.read_volatile() })
    }

    /// Stores word `nth`.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end.
    pub fn set(&self, nth: usize, value: u64) -> Result {
        let word = self.byte(nth.checked_mul(WORD).ok_or(EINVAL)?)?.cast::<u64>();
        // SAFETY: `byte` has checked that the word is within the memory, which is aligned; the
        // device may write it, so the access is volatile.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    /// Copies the bytes from `at` on out.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result {
        for (at, byte) in (at..).zip(into) {
            // SAFETY: `byte` has checked that this is a byte of a piece.
            *byte = unsafe { self.byte(at)?.read_volatile() };
        }
        Ok(())
    }

    /// Copies `length` bytes into a vector.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end, `ENOMEM`.
    pub fn bytes(&self, at: usize, length: usize) -> Result<KVec<u8>> {
        let mut bytes = KVec::from_elem(0, length, GFP_KERNEL)?;
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Stores bytes from `at` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end; those before it are stored.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result {
        for (at, byte) in (at..).zip(bytes) {
            // SAFETY: `byte` has checked that this is a byte of a piece.
            unsafe { self.byte(at)?.write_volatile(*byte) };
        }
        Ok(())
    }

    /// Returns the message at the start.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are fewer bytes.
    pub fn load<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        let mut message = T::new_zeroed();
        self.read(0, message.as_mut_bytes())?;
        Ok(message)
    }

    /// Stores a message at the start.
    ///
    /// # Errors
    ///
    /// As for [`Self::write`].
    pub fn store<T: IntoBytes + Immutable>(&self, message: &T) -> Result {
        self.write(0, message.as_bytes())
    }

    /// Fills `length` bytes from `at` on with random ones, which are returned.
    ///
    /// # Errors
    ///
    /// As for [`Self::write`]; `ENOMEM`.
    pub fn randomize(&self, at: usize, length: usize) -> Result<KVec<u8>> {
        let mut bytes = KVec::from_elem(0_u8, length, GFP_KERNEL)?;
        // SAFETY: the vector has this many bytes.
        unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), length) };
        self.write(at, &bytes)?;
        Ok(bytes)
    }
}

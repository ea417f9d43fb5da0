//! The memory of one direction. Each unit of eight bytes is a cell of loom's, which notices if the
//! two sides use it at the same time.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use vrnic_adapter::ethernet::Frame;

pub(crate) use loom::sync::atomic::fence;

pub const CAPACITY: u64 = 32;
pub const LENGTHS: RangeInclusive<u64> = 1..=8;

#[derive(Clone, Copy, Debug)]
pub enum Word {
    Head,
    WantsRoom,
    Tail,
    WantsFrames,
}

#[derive(Clone, Debug)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    words: [AtomicU64; 4],
    data: [UnsafeCell<u64>; 4],
}

impl Memory {
    pub fn new() -> Self {
        let words = [0; 4].map(AtomicU64::new);
        Self(Arc::new(Shared { words, data: [0; 4].map(UnsafeCell::new) }))
    }

    pub fn load(&self, word: Word) -> u64 {
        self.0.words[word as usize].load(Ordering::Acquire)
    }

    pub fn store(&self, word: Word, value: u64) {
        self.0.words[word as usize].store(value, Ordering::Release);
    }

    pub fn clear(&self, word: Word) -> u64 {
        self.0.words[word as usize].swap(0, Ordering::SeqCst)
    }

    fn cell(&self, at: u64) -> &UnsafeCell<u64> {
        &self.0.data[usize::try_from(at % CAPACITY / 8).expect("small")]
    }

    pub fn length(&self, at: u64) -> Option<u64> {
        // SAFETY: loom ends the model if another thread writes to the cell at the same time.
        Some(self.cell(at).with(|data| unsafe { *data }))
    }

    pub fn put_length(&self, at: u64, len: u64) {
        // SAFETY: loom ends the model if another thread uses the cell at the same time.
        self.cell(at).with_mut(|data| unsafe { *data = len });
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        self.put_length(at, u64::from_le_bytes(word));
    }

    pub fn get(&self, at: u64, len: u64) -> Option<Frame> {
        let bytes = self.length(at)?.to_le_bytes();
        bytes.get(..usize::try_from(len).ok()?).map(|bytes| Frame::new(bytes.to_vec()))
    }
}

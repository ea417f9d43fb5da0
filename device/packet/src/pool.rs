//! Memory for frames, which is used again and again.
//!
//! A packet on its way takes a buffer of one of a few lengths. When the last frame in a buffer is
//! dropped, its thread keeps the buffer for the next one. Threads that drop more frames than they
//! make pass buffers on to the others, many at a time. So a frame costs no allocation and no
//! zeroing: a buffer stays initialised by its last use.

use std::cell::RefCell;
use std::fmt;
use std::iter::repeat_n;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of one length.
#[derive(Clone, Copy)]
struct Class {
    /// The fewest bytes for which they are used.
    min: usize,
    /// The length of each buffer.
    len: usize,
    /// The number of buffers that pass between a thread and the shared stock at a time. A thread
    /// keeps at most twice as many.
    batch: usize,
    /// Maximum number of buffers in the shared stock.
    stock: usize,
}

/// The classes: short packets, IP packets of 1,500 bytes, RoCE packets with 4,096 bytes of payload,
/// IP packets of 9,000 bytes, and joined segments.
const CLASSES: [Class; 5] = [
    Class { min: 0, len: 256, batch: 64, stock: 4096 },
    Class { min: 257, len: 2048, batch: 32, stock: 512 },
    Class { min: 2049, len: 4352, batch: 32, stock: 512 },
    Class { min: 4353, len: 9216, batch: 8, stock: 64 },
    Class { min: 32_769, len: LEN_MAX, batch: 4, stock: 32 },
];
/// Length of the longest buffers of the pool. The longest IP packet fits, with an Ethernet header
/// and other bytes in front of it.
pub const LEN_MAX: usize = 65_792;

type Buffers = Vec<Arc<[u8]>>;

/// The stock that all threads share, by class.
static STOCK: [Mutex<Buffers>; CLASSES.len()] = [const { Mutex::new(Vec::new()) }; CLASSES.len()];

thread_local! {
    /// The buffers that this thread keeps, by class.
    static KEPT: RefCell<[Buffers; CLASSES.len()]> =
        const { RefCell::new([const { Vec::new() }; CLASSES.len()]) };
}

/// Memory for a frame. It goes back to the pool on drop, if no clone of it is left. Clones share
/// the bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Buffer(Option<Arc<[u8]>>);

impl Buffer {
    /// Returns a buffer of at least `len` bytes with arbitrary contents. It comes from the pool if
    /// that has buffers which are not much longer.
    #[must_use]
    pub fn of(len: usize) -> Self {
        let bytes = match class_for(len) {
            Some(nth) => take(nth),
            None => zeroed(len),
        };
        Self(Some(bytes))
    }

    /// Returns a buffer that begins with a copy of these bytes, from the pool as in [`Self::of`].
    #[must_use]
    pub fn copy(bytes: &[u8]) -> Self {
        let Some(nth) = class_for(bytes.len()) else { return Self::exact(bytes) };
        let mut buffer = Self(Some(take(nth)));
        if let Some(to) = buffer.bytes_mut().get_mut(..bytes.len()) {
            to.copy_from_slice(bytes);
        }
        buffer
    }

    /// Returns a buffer of exactly this length with a copy of these bytes, which takes no more
    /// memory than it needs.
    #[must_use]
    pub fn exact(bytes: &[u8]) -> Self {
        Self(Some(bytes.into()))
    }

    /// Returns the bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the bytes. If there are clones, this becomes a buffer of its own first.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map(Arc::make_mut).unwrap_or_default()
    }

    /// Returns the length.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Some(bytes.into()))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(bytes) = self.0.take() else { return };
        // If two threads drop the last clones at once, the memory is freed instead.
        if Arc::strong_count(&bytes) == 1
            && let Some(nth) = CLASSES.iter().position(|class| class.len == bytes.len())
        {
            give(nth, bytes);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

/// Returns the class for this number of bytes.
fn class_for(len: usize) -> Option<usize> {
    CLASSES.iter().position(|class| (class.min..=class.len).contains(&len))
}

fn zeroed(len: usize) -> Arc<[u8]> {
    repeat_n(0, len).collect()
}

/// Returns a buffer of a class.
fn take(nth: usize) -> Arc<[u8]> {
    let Some(class) = CLASSES.get(nth) else { return zeroed(0) };
    let kept = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let kept = kept.get_mut(nth)?;
        if kept.is_empty() {
            let mut stock = STOCK.get(nth)?.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = stock.len().saturating_sub(class.batch);
            kept.extend(stock.drain(rest..));
        }
        kept.pop()
    });
    // A thread that ends has no buffers of its own any more.
    kept.ok().flatten().unwrap_or_else(|| zeroed(class.len))
}

/// Keeps a buffer of a class that has no other owner.
fn give(nth: usize, mut bytes: Arc<[u8]>) {
    if cfg!(debug_assertions)
        && let Some(bytes) = Arc::get_mut(&mut bytes)
    {
        // Tests find frames with bytes that were not written.
        bytes.fill(0xa5);
    }
    let Some(class) = CLASSES.get(nth) else { return };
    let _ended = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let Some((kept, stock)) = kept.get_mut(nth).zip(STOCK.get(nth)) else { return };
        if kept.len() >= 2 * class.batch {
            let mut stock = stock.lock().unwrap_or_else(PoisonError::into_inner);
            let room = class.stock.saturating_sub(stock.len());
            stock.extend(kept.drain(class.batch..).take(room));
        }
        kept.push(bytes);
    });
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_last_clone_is_dropped() {
        let mut first = Buffer::of(300);
        assert_eq!(first.len(), 2048);
        first.bytes_mut().fill(7);
        let address = first.bytes().as_ptr();
        let clone = first.clone();
        drop(first);
        let other = Buffer::of(300);
        assert_ne!(other.bytes().as_ptr(), address, "a clone is left");
        assert_eq!(clone.bytes(), [7; 2048]);
        drop(clone);
        assert_eq!(Buffer::of(2048).bytes().as_ptr(), address);
    }

    #[test]
    fn writing_to_a_clone_leaves_the_others_alone() {
        let mut first = Buffer::from(vec![1; 100]);
        let second = first.clone();
        first.bytes_mut().fill(2);
        assert_eq!((first.bytes(), second.bytes()), (&[2; 100][..], &[1; 100][..]));
    }

    #[test]
    fn lengths_without_a_class_are_not_kept() {
        for len in [9217, 32_768, LEN_MAX + 1] {
            assert_eq!((Buffer::of(len).len(), Buffer::copy(&vec![1; len]).len()), (len, len));
        }
        assert_eq!(Buffer::exact(&[3; 70]).bytes(), [3; 70]);
        assert!(Buffer::default().is_empty() && Buffer::default().bytes_mut().is_empty());
    }

    /// The two parts use the same stock, so they are one test.
    #[test]
    fn threads_share_a_stock_that_has_a_limit() {
        let class = CLASSES[4];
        let made: Vec<_> = (0..3 * class.batch).map(|_| Buffer::of(class.len)).collect();
        let address = |buffer: &Buffer| buffer.bytes().as_ptr().addr();
        let addresses: Vec<_> = made.iter().map(address).collect();
        thread::spawn(move || drop(made)).join().expect("no panic");
        let again = Buffer::of(class.len);
        assert!(addresses.contains(&address(&again)), "the shared stock was not used");
        for (nth, class) in CLASSES.iter().enumerate() {
            let count = class.stock + 3 * class.batch;
            let all: Vec<_> = (0..count).map(|_| Buffer::of(class.len)).collect();
            drop(all);
            let kept = KEPT.with_borrow(|kept| kept[nth].len());
            let stock = STOCK[nth].lock().expect("no panic").len();
            assert!(kept <= 2 * class.batch && stock <= class.stock, "{kept} {stock}");
        }
    }
}

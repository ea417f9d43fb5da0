// SPDX-License-Identifier: GPL-2.0
//! Memory that the device reads and writes: pages that lie anywhere, and how it gets at them.
//!
//! The device may write at any time, so bytes are only touched through pointers, a word at a time.

use core::ptr::NonNull;

use kernel::{error::from_err_ptr, page::PAGE_SIZE, prelude::*};

use crate::bindings;

/// Words of a page.
const WORDS: usize = PAGE_SIZE / size_of::<u64>();

/// Word `nth` of the pattern of `sequence`.
fn pattern(sequence: u64, nth: usize) -> u64 {
    // CAST: an index.
    (sequence << 32 ^ nth as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A page.
struct Page(NonNull<u64>);

// SAFETY: it owns its memory.
unsafe impl Send for Page {}
// SAFETY: words are only touched by volatile accesses.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Result<Self> {
        // Allocations of this size are aligned to it.
        let words = KBox::<[u64; WORDS]>::init(pin_init::init_zeroed(), GFP_KERNEL)?;
        Ok(Self(NonNull::new(KBox::into_raw(words).cast()).ok_or(ENOMEM)?))
    }

    fn get(&self, nth: usize) -> u64 {
        debug_assert!(nth < WORDS);
        // SAFETY: within the page.
        unsafe { self.0.as_ptr().add(nth % WORDS).read_volatile() }
    }

    fn set(&self, nth: usize, value: u64) {
        // SAFETY: within the page.
        unsafe { self.0.as_ptr().add(nth % WORDS).write_volatile(value) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nobody else's.
        drop(unsafe { KBox::<[u64; WORDS]>::from_raw(self.0.as_ptr().cast()) });
    }
}

/// Some pages.
pub(crate) struct Pages(KVec<Page>);

impl Pages {
    /// So many, zeroed.
    pub(crate) fn new(count: usize) -> Result<Self> {
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            pages.push(Page::new()?, GFP_KERNEL)?;
        }
        Ok(Self(pages))
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len() * PAGE_SIZE
    }

    fn words(&self) -> impl Iterator<Item = (usize, &Page)> {
        (0..)
            .zip(self.0.iter())
            .flat_map(|(n, page)| (0..WORDS).map(move |at| (n * WORDS + at, page)))
    }

    /// Fills them with the pattern of `sequence`.
    pub(crate) fn fill(&self, sequence: u64) {
        self.words().for_each(|(nth, page)| page.set(nth, pattern(sequence, nth)));
    }

    /// Inverts each bit.
    pub(crate) fn invert(&self) {
        self.words().for_each(|(nth, page)| page.set(nth, !page.get(nth)));
    }

    /// Counts the words that are not of the pattern of `sequence`, or of its inverse.
    pub(crate) fn wrong(&self, sequence: u64, inverse: bool) -> u64 {
        let flip = if inverse { u64::MAX } else { 0 };
        let wrong = |(nth, page): &(usize, &Page)| page.get(*nth) != pattern(sequence, *nth) ^ flip;
        self.words().filter(wrong).count() as u64
    }

    /// Copies the start of the first page out.
    pub(crate) fn read<T: zerocopy::FromBytes>(&self) -> Result<T> {
        let mut bytes = KVec::new();
        for at in 0..size_of::<T>().div_ceil(size_of::<u64>()) {
            let word = self.0.first().ok_or(EINVAL)?.get(at);
            bytes.extend_from_slice(&word.to_ne_bytes(), GFP_KERNEL)?;
        }
        T::read_from_prefix(&bytes).map(|(value, _)| value).map_err(|_| EINVAL)
    }

    /// Stores at the start of the first page; a value has whole words.
    pub(crate) fn write(&self, value: &(impl zerocopy::IntoBytes + zerocopy::Immutable)) -> Result {
        let page = self.0.first().ok_or(EINVAL)?;
        for (at, word) in value.as_bytes().chunks_exact(size_of::<u64>()).enumerate() {
            page.set(at, u64::from_ne_bytes(word.try_into().map_err(|_| EINVAL)?));
        }
        Ok(())
    }
}

/// Pages of which the device knows each by its address.
pub(crate) struct Mapped {
    pages: Pages,
    device: NonNull<bindings::ib_device>,
    addresses: KVec<u64>,
}

impl Mapped {
    /// Maps pages.
    ///
    /// # Safety
    ///
    /// `device` must be registered until this has been dropped, and must use the memory no more then.
    pub(crate) unsafe fn new(device: NonNull<bindings::ib_device>, pages: Pages) -> Result<Self> {
        let mut this = Self { pages, device, addresses: KVec::new() };
        this.addresses.reserve(this.pages.0.len(), GFP_KERNEL)?;
        for page in &this.pages.0 {
            // SAFETY: by the caller's promise; the memory is ours.
            let address = unsafe {
                bindings::kping_map(device.as_ptr(), page.0.as_ptr().cast(), PAGE_SIZE as u32)
            };
            if address == 0 {
                return Err(ENOMEM);
            }
            this.addresses.push(address, GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// A list of `length` bytes of them for a work request.
    pub(crate) fn segments(&self, length: usize, lkey: u32) -> Result<KVec<bindings::ib_sge>> {
        let mut list = KVec::new();
        let mut left = length;
        for address in &self.addresses {
            let part = left.min(PAGE_SIZE);
            if part == 0 {
                break;
            }
            // CAST: at most a page.
            let sge = bindings::ib_sge { addr: *address, length: part as u32, lkey };
            list.push(sge, GFP_KERNEL)?;
            left -= part;
        }
        if left == 0 { Ok(list) } else { Err(EINVAL) }
    }
}

impl core::ops::Deref for Mapped {
    type Target = Pages;

    fn deref(&self) -> &Pages {
        &self.pages
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        for address in &self.addresses {
            // SAFETY: mapped by `new`; the device uses it no more, by the promise to `new`.
            unsafe { bindings::kping_unmap(self.device.as_ptr(), *address, PAGE_SIZE as u32) };
        }
    }
}

/// Pages that a peer reaches by one key, while it is registered by a work request.
pub(crate) struct Region {
    pages: Pages,
    device: NonNull<bindings::ib_device>,
    list: KVec<bindings::scatterlist>,
    mr: NonNull<bindings::ib_mr>,
}

impl Region {
    /// A region of some pages, not registered yet.
    ///
    /// # Safety
    ///
    /// As for [`Mapped::new`]; `pd` must outlive this.
    pub(crate) unsafe fn new(
        device: NonNull<bindings::ib_device>,
        pd: NonNull<bindings::ib_pd>,
        pages: Pages,
    ) -> Result<Self> {
        let count = u32::try_from(pages.0.len())?;
        let mut list = KVec::with_capacity(pages.0.len(), GFP_KERNEL)?;
        for _ in &pages.0 {
            list.push(bindings::scatterlist::default(), GFP_KERNEL)?;
        }
        for (nth, page) in (0..).zip(&pages.0) {
            let memory = page.0.as_ptr().cast();
            // SAFETY: the list has `count` entries; the memory is ours.
            unsafe {
                bindings::kping_set_sg(list.as_mut_ptr(), count, nth, memory, PAGE_SIZE as u32);
            }
        }
        // SAFETY: by the caller's promise.
        let mr = unsafe {
            bindings::ib_alloc_mr(pd.as_ptr(), bindings::ib_mr_type_IB_MR_TYPE_MEM_REG, count)
        };
        let mr = NonNull::new(from_err_ptr(mr)?).ok_or(ENOMEM)?;
        let mapped =
            // SAFETY: as above.
            unsafe { bindings::kping_map_sg(device.as_ptr(), list.as_mut_ptr(), count) };
        if u32::try_from(mapped) != Ok(count) {
            // SAFETY: nobody uses it.
            unsafe { bindings::kping_dereg_mr(mr.as_ptr()) };
            return Err(ENOMEM);
        }
        Ok(Self { pages, device, list, mr })
    }

    /// Makes the region's page list that of the pages, for a registration that is posted next.
    pub(crate) fn prepare(&mut self) -> Result<NonNull<bindings::ib_mr>> {
        let count = i32::try_from(self.list.len())?;
        // SAFETY: a live region and a mapped list; nothing is posted meanwhile, as `self` is borrowed.
        let mapped = unsafe {
            bindings::ib_map_mr_sg(
                self.mr.as_ptr(),
                self.list.as_mut_ptr(),
                count,
                core::ptr::null_mut(),
                PAGE_SIZE as u32,
            )
        };
        if mapped == count { Ok(self.mr) } else { Err(EINVAL) }
    }

    /// First byte, as the peer names it.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: a live region.
        unsafe { (*self.mr.as_ptr()).iova }
    }

    /// The key of the last registration.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: a live region.
        unsafe { (*self.mr.as_ptr()).rkey }
    }
}

impl core::ops::Deref for Region {
    type Target = Pages;

    fn deref(&self) -> &Pages {
        &self.pages
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // CAST: it was made from a u32.
        let count = self.list.len() as u32;
        // SAFETY: nobody uses the region any more, by the promise to `new`.
        unsafe {
            bindings::kping_dereg_mr(self.mr.as_ptr());
            bindings::kping_unmap_sg(self.device.as_ptr(), self.list.as_mut_ptr(), count);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Device memory that a process may map: the core hands out an offset for each area and finds
//! the area again when the process calls mmap with it.

use core::{ops::RangeInclusive, ptr::NonNull};

use kernel::{
    device::{self, Bound},
    error::to_result,
    new_mutex,
    page::PAGE_SHIFT,
    pci,
    prelude::*,
    sync::Mutex,
};

use crate::bindings;

/// An area of a BAR, mapped uncached: each access goes out by itself, in order.
///
/// # Invariants
///
/// Whole pages of a memory BAR of `device`, to which a driver is bound for `'a`: nothing that the
/// kernel keeps data in.
#[derive(Clone, Copy)]
pub(crate) struct IoArea<'a> {
    device: &'a device::Device<Bound>,
    pages: Pages,
}

/// Consecutive pages of memory of a device.
#[derive(Clone, Copy)]
struct Pages {
    /// Physical address.
    address: u64,
    /// Number of bytes.
    length: usize,
}

/// An object that keeps an area mappable. It is dropped when the last mapping goes, while the lock
/// of a process's memory (`mmap_lock`) and the lock of a context's mappings (`umap_lock`) are held.
///
/// The drop must not wait for anything that may wait for these locks: it must not access or unmap
/// memory of a process, remove a key for mmap, or take the RTNL.
pub(crate) trait Keeps: Send {}

impl<'a> IoArea<'a> {
    /// `length` bytes at `offset` of a BAR.
    ///
    /// # Errors
    ///
    /// `EINVAL` if these are not whole pages of it.
    pub(crate) fn new(
        pdev: &'a pci::Device<Bound>,
        bar: u32,
        offset: u64,
        length: u64,
    ) -> Result<Self> {
        let (start, size) = (pdev.resource_start(bar)?, pdev.resource_len(bar)?);
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        let address = start.checked_add(offset).ok_or(EINVAL)?;
        let page = (1u64 << PAGE_SHIFT) - 1;
        if length == 0 || end > size || (address | length) & page != 0 {
            return Err(EINVAL);
        }
        // INVARIANT: checked above.
        Ok(Self { device: pdev.as_ref(), pages: Pages { address, length: length.try_into()? } })
    }

    /// Returns the pages for a key of this context. The core ends all mappings of a context before
    /// the driver is unbound from the parent of the context's device, so they must be its own.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages of another device.
    ///
    /// # Safety
    ///
    /// `context` must be a live context.
    unsafe fn pages_for(&self, context: *mut bindings::ib_ucontext) -> Result<Pages> {
        // SAFETY: the caller passes a live context, whose device does not change.
        let ib = unsafe { (*context).device };
        // SAFETY: the device lives as long as its contexts. This view of the union is its own
        // `struct device`, whose parent does not change.
        let parent = unsafe { (*ib).__bindgen_anon_1.dev.parent };
        // The wrapper is transparent.
        let own = core::ptr::from_ref(self.device).cast::<bindings::device>();
        if core::ptr::eq(parent, own) { Ok(self.pages) } else { Err(EINVAL) }
    }
}

/// A key in the core's table: the core's struct first.
///
/// # Invariants
///
/// An entry is in a box of its own, which the core gives back to [`free`].
#[repr(C)]
struct Entry {
    core: bindings::rdma_user_mmap_entry,
    pages: Pages,
    /// Dropped with the entry, which the last mapping keeps.
    _owner: Option<KBox<dyn Keeps>>,
}

const _: () = assert!(core::mem::offset_of!(Entry, core) == 0);

/// A key that this driver has not given back.
///
/// # Invariants
///
/// The entry is in the core's table, and its context alive.
struct Owned(NonNull<Entry>);

// SAFETY: the entry is reference counted by the core and may be put on any thread.
unsafe impl Send for Owned {}

impl Owned {
    /// Returns the offset for mmap.
    fn offset(&self) -> u64 {
        // SAFETY: the entry is alive by the type's invariants; the field does not change.
        let pgoff = unsafe { (*self.0.as_ptr()).core.start_pgoff };
        // CAST: to a type that is at least as wide.
        (pgoff as u64) << PAGE_SHIFT
    }

    /// Gives the key back.
    fn remove(self) {
        // SAFETY: by the type's invariants the entry is in the core's table, and its context alive.
        unsafe { bindings::rdma_user_mmap_entry_remove(self.0.cast().as_ptr()) };
    }
}

/// The mmap keys of one context.
#[pin_data]
pub(in crate::rdma) struct MmapKeys {
    #[pin]
    owned: Mutex<KVec<Owned>>,
}

impl MmapKeys {
    pub(in crate::rdma) fn new() -> impl PinInit<Self> {
        pin_init!(Self { owned <- new_mutex!(KVec::new(), "rdma::MmapKeys") })
    }

    /// Adds a key for `area`; returns its offset.
    ///
    /// # Safety
    ///
    /// `context` must be alive until [`Self::remove_all`] has been called.
    pub(in crate::rdma) unsafe fn add(
        &self,
        context: *mut bindings::ib_ucontext,
        area: IoArea<'_>,
    ) -> Result<u64> {
        // SAFETY: the caller promises that the context is alive until the keys are removed.
        unsafe { self.insert(context, area, None, 0..=u32::MAX) }
    }

    /// Adds a key for `area` with this offset. `owner` is dropped when the key and all mappings
    /// have gone.
    ///
    /// # Safety
    ///
    /// `context` must be alive until [`Self::remove_all`] has been called.
    pub(in crate::rdma) unsafe fn add_at(
        &self,
        context: *mut bindings::ib_ucontext,
        offset: u64,
        area: IoArea<'_>,
        owner: KBox<dyn Keeps>,
    ) -> Result {
        let page = u32::try_from(offset >> PAGE_SHIFT)?;
        // SAFETY: the caller promises that the context is alive until the keys are removed.
        unsafe { self.insert(context, area, Some(owner), page..=page) }.map(|_| ())
    }

    /// Adds a key for `area` whose offset, in pages, is one of `offsets`.
    ///
    /// # Safety
    ///
    /// `context` must be alive until [`Self::remove_all`] has been called.
    unsafe fn insert(
        &self,
        context: *mut bindings::ib_ucontext,
        area: IoArea<'_>,
        owner: Option<KBox<dyn Keeps>>,
        offsets: RangeInclusive<u32>,
    ) -> Result<u64> {
        // SAFETY: the caller passes a live context.
        let pages = unsafe { area.pages_for(context) }?;
        let mut owned = self.owned.lock();
        owned.reserve(1, GFP_KERNEL)?;
        let entry = KBox::new(
            Entry {
                // SAFETY: a plain C struct of numbers and pointers, for which zero is valid; the
                // core sets it on insertion.
                core: unsafe { core::mem::zeroed() },
                pages,
                _owner: owner,
            },
            GFP_KERNEL,
        )?;
        let entry = KBox::into_raw(entry);
        // SAFETY: the caller promises that the context is alive; the entry is freed by `free`,
        // which the core calls when the last mapping has gone.
        let inserted = to_result(unsafe {
            bindings::rdma_user_mmap_entry_insert_range(
                context,
                entry.cast(),
                pages.length,
                *offsets.start(),
                *offsets.end(),
            )
        });
        if let Err(error) = inserted {
            // SAFETY: made by `KBox::into_raw` above, and the core did not take it.
            drop(unsafe { KBox::from_raw(entry) });
            return Err(error);
        }
        // SAFETY: the pointer was made by `KBox::into_raw` above, which gives none that are null.
        let entry = unsafe { NonNull::new_unchecked(entry) };
        // INVARIANT: the entry was inserted just now; the caller promises that the context is
        // alive.
        let key = Owned(entry);
        let offset = key.offset();
        owned.push(key, GFP_KERNEL)?;
        Ok(offset)
    }

    /// Removes the key with this offset.
    pub(in crate::rdma) fn remove(&self, offset: u64) {
        let mut owned = self.owned.lock();
        if let Some(index) = owned.iter().position(|key| key.offset() == offset) {
            if let Ok(key) = owned.remove(index) {
                key.remove();
            }
        }
    }

    /// Removes all keys.
    pub(in crate::rdma) fn remove_all(&self) {
        let mut owned = self.owned.lock();
        while let Some(key) = owned.pop() {
            key.remove();
        }
    }
}

/// Maps the area that the process names by the VMA's offset.
///
/// # Safety
///
/// `context` must be a live context and `vma` the area that mmap is setting up.
pub(in crate::rdma) unsafe fn map(
    context: *mut bindings::ib_ucontext,
    vma: *mut bindings::vm_area_struct,
) -> Result {
    // SAFETY: the caller promises that both are alive. The core checks that the VMA is shared and
    // as long as the area, and returns a counted reference.
    let entry = unsafe { bindings::rdma_user_mmap_entry_get(context, vma) };
    let entry = NonNull::new(entry.cast::<Entry>()).ok_or(EINVAL)?;
    // SAFETY: all keys of this driver's contexts are `Entry`s.
    let Pages { address, length } = unsafe { entry.as_ref() }.pages;
    let core = entry.cast().as_ptr();
    let result = usize::try_from(address >> PAGE_SHIFT).map_err(Error::from).and_then(|pfn| {
        // SAFETY: the caller promises that context and VMA are alive, and the reference keeps the
        // entry. It was made of an `IoArea` of the context's device, in whole pages, which has not
        // been unbound: the core ends the mappings and calls of its contexts before.
        to_result(unsafe { bindings::rdma_helper_mmap_uncached(context, vma, pfn, length, core) })
    });
    // SAFETY: the reference was taken above; the mapping has one of its own.
    unsafe { bindings::rdma_user_mmap_entry_put(core) };
    result
}

/// Frees a key whose last mapping has gone.
///
/// # Safety
///
/// `entry` must be a key made by [`MmapKeys::add`] that no code uses any more.
pub(in crate::rdma) unsafe fn free(entry: *mut bindings::rdma_user_mmap_entry) {
    // SAFETY: the caller passes a key that `MmapKeys::add` has made by `KBox::into_raw`, and that
    // no code uses any more.
    drop(unsafe { KBox::from_raw(entry.cast::<Entry>()) });
}

// SPDX-License-Identifier: GPL-2.0
//! Memory of a process, pinned and mapped for DMA.

use core::{ffi::c_void, marker::PhantomData, mem::MaybeUninit, ptr::NonNull};

use kernel::{
    current, device,
    error::{from_err_ptr, to_result},
    ffi::{c_int, c_ulong},
    prelude::*,
    sync::{Arc, aref::ARef},
};

use crate::bindings;
use crate::rdma::{device::Device, driver::Driver};

/// The use that the device makes of pinned memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The device only reads.
    Read,
    /// The device writes, too.
    Write,
}

/// A part of a DMA buffer, for a region.
pub(crate) struct DmabufPart {
    /// The file of the buffer.
    pub(crate) fd: i32,
    /// First byte in the buffer.
    pub(crate) offset: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// The rights of the region (`enum ib_access_flags`).
    pub(crate) access: u32,
}

/// A function of the core that pins a part of a DMA buffer.
type PinPart = unsafe extern "C" fn(
    *mut bindings::ib_device,
    c_ulong,
    usize,
    c_int,
    c_int,
) -> *mut bindings::ib_umem_dmabuf;

impl DmabufPart {
    /// Pins it by a function of the core, either `ib_umem_dmabuf_get_pinned` or
    /// `ib_umem_dmabuf_get_pinned_revocable_and_lock`.
    fn get<T: Driver>(
        &self,
        device: &Device<T>,
        pin: PinPart,
    ) -> Result<*mut bindings::ib_umem_dmabuf> {
        let (offset, length) = (self.offset.try_into()?, self.length.try_into()?);
        let (device, access) = (device.as_raw(), self.access.try_into()?);
        // SAFETY: the device is registered, as its operations run. Both functions check the rest.
        from_err_ptr(unsafe { pin(device, offset, length, self.fd, access) })
    }
}

/// An object that ends the device's access to a DMA buffer.
pub(crate) trait Revoke: Send + Sync {
    /// Ends the access. On return the device does not use the buffer any more, and never will.
    /// Sleeps. It is called once at most, with the lock of the buffer held: when the exporter takes
    /// the buffer back, or when the memory is dropped.
    fn revoke(&self);
}

/// Pinned memory; unpinned on drop.
///
/// C: `struct ib_umem`.
///
/// # Invariants
///
/// The pointer refers to a umem of the core, which this type owns. Its callback, if it has one,
/// gets a pointer to the contents of `_revoker`.
pub(crate) struct Umem {
    raw: NonNull<bindings::ib_umem>,
    _revoker: Option<Arc<dyn Revoke>>,
    /// The RDMA device, of which the umem's release reads fields. The memory of an object that the
    /// adapter refused to destroy may be kept until after the device has been unregistered.
    _device: ARef<device::Device>,
}

// SAFETY: the core allows any thread to look at a umem and to release it.
unsafe impl Send for Umem {}

// SAFETY: shared operations only read what does not change after pinning.
unsafe impl Sync for Umem {}

impl Umem {
    /// Pins `length` bytes at `address` of the calling process.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty or wrapping range, and if the caller is a kernel thread; `ENOMEM`
    /// beyond RLIMIT_MEMLOCK, `EFAULT` if something is not mapped or not writable as asked.
    pub(crate) fn pin<T: Driver>(
        device: &Device<T>,
        address: u64,
        length: u64,
        usage: Use,
    ) -> Result<Self> {
        let access = match usage {
            Use::Read => 0,
            Use::Write => bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
        };
        Self::pin_for(device, address, length, access)
    }

    /// As [`Self::pin`], for a region with these access rights (`enum ib_access_flags`).
    ///
    /// # Errors
    ///
    /// As [`Self::pin`].
    pub(crate) fn pin_for<T: Driver>(
        device: &Device<T>,
        address: u64,
        length: u64,
        access: u32,
    ) -> Result<Self> {
        // `ib_umem_get` uses the memory of the calling task without a check that it has any.
        if current!().mm().is_none() {
            return Err(EINVAL);
        }
        // SAFETY: the device is registered, as its operations run, and the calling task has memory;
        // the callee checks the range.
        let raw = from_err_ptr(unsafe {
            bindings::ib_umem_get_attr_or_va(
                device.as_raw(),
                core::ptr::null(),
                0,
                address,
                length.try_into()?,
                access.try_into()?,
            )
        })?;
        Self::own(raw, device)
    }

    /// Pins a part of a DMA buffer.
    ///
    /// # Errors
    ///
    /// `EBADF` or `EINVAL` if there is no DMA buffer of that length, or if it cannot be pinned.
    pub(crate) fn pin_dmabuf<T: Driver>(device: &Device<T>, part: &DmabufPart) -> Result<Self> {
        let raw = part.get(device, bindings::ib_umem_dmabuf_get_pinned)?;
        // SAFETY: only the field's address is made. Releasing it releases the whole.
        Self::own(unsafe { &raw mut (*raw).umem }, device)
    }

    /// As [`Self::pin_dmabuf`], for a buffer that its exporter may take back. It cannot do so until
    /// the result is dropped or unlocked.
    ///
    /// # Errors
    ///
    /// As [`Self::pin_dmabuf`]; `ENODEV` if it has been taken back already.
    pub(crate) fn lock_dmabuf<T: Driver>(
        device: &Device<T>,
        part: &DmabufPart,
    ) -> Result<LockedDmabuf> {
        let raw = part.get(device, bindings::ib_umem_dmabuf_get_pinned_revocable_and_lock)?;
        // INVARIANT: the core has locked it just now, for the caller.
        let lock = DmabufLock(NonNull::new(raw).ok_or(ENOMEM)?);
        // SAFETY: only the field's address is made. Releasing it releases the whole.
        let umem = Self::own(unsafe { &raw mut (*raw).umem }, device)?;
        // INVARIANT: it is the same buffer.
        Ok(LockedDmabuf { lock, umem })
    }

    /// Takes over a umem that the core has made just now, for the caller.
    fn own<T: Driver>(raw: *mut bindings::ib_umem, device: &Device<T>) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: the caller passes a umem that is owned by nothing else, without a callback.
        Ok(Self { raw, _revoker: None, _device: device.reference() })
    }

    /// Returns whether a region of this memory may get these rights, or be `replaced` by other
    /// memory.
    ///
    /// # Errors
    ///
    /// `EACCES` if memory that was pinned for reading is to be written; `EOPNOTSUPP` for a DMA
    /// buffer.
    pub(crate) fn check_change(&self, access: u32, replaced: bool) -> Result {
        let moved = if replaced { bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS } else { 0 };
        let flags = bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS | moved;
        // SAFETY: the umem is alive by the type's invariants; the function only looks at it.
        to_result(unsafe {
            bindings::ib_umem_check_rereg(self.raw.as_ptr(), flags.try_into()?, access.try_into()?)
        })
    }

    /// Returns the memory in the largest of `page_sizes` (a bit each) in which it can be described,
    /// given that the device will know it by `iova`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it can be described in none.
    pub(crate) fn paged(&mut self, page_sizes: u64, iova: u64) -> Result<Paged<'_>> {
        let sizes = usize::try_from(page_sizes)?;
        // SAFETY: the umem is alive by the type's invariants, and borrowed only by this call,
        // which sets fields.
        let size = unsafe { bindings::ib_umem_find_best_pgsz(self.raw.as_ptr(), sizes, iova) };
        // INVARIANT: the callee has found it to be one.
        if size.is_power_of_two() { Ok(Paged { umem: self, size }) } else { Err(EINVAL) }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the type owns the umem by its invariants, and releases it once.
        unsafe { bindings::ib_umem_release(self.raw.as_ptr()) };
    }
}

/// The lock of a DMA buffer, which is unlocked on drop.
///
/// # Invariants
///
/// The pointer refers to a umem of a DMA buffer that lives longer than this, which owns the lock.
struct DmabufLock(NonNull<bindings::ib_umem_dmabuf>);

impl Drop for DmabufLock {
    fn drop(&mut self) {
        // SAFETY: the umem is alive, and this owns its lock, by the type's invariants.
        unsafe { bindings::ib_umem_dmabuf_revoke_unlock(self.0.as_ptr()) };
    }
}

/// A pinned DMA buffer that its exporter cannot take back at present. Both are undone on drop.
///
/// # Invariants
///
/// `lock` is the lock of `umem`, and is dropped first.
pub(crate) struct LockedDmabuf {
    lock: DmabufLock,
    umem: Umem,
}

impl LockedDmabuf {
    /// Returns the memory.
    pub(crate) fn umem(&mut self) -> &mut Umem {
        &mut self.umem
    }

    /// Lets the exporter take the buffer back from now on, for which it calls `revoker`. Returns
    /// the memory.
    pub(crate) fn unlock<R: Revoke + 'static>(self, revoker: Arc<R>) -> Umem {
        let Self { lock, mut umem } = self;
        let user = Arc::as_ptr(&revoker).cast_mut().cast();
        // SAFETY: the umem is alive and locked. The callback gets a pointer to `revoker`, which is
        // kept as long as the umem.
        unsafe {
            bindings::ib_umem_dmabuf_set_revoke_locked(lock.0.as_ptr(), Some(revoke::<R>), user);
        }
        // INVARIANT: the callback gets a pointer to its contents.
        umem._revoker = Some(revoker);
        drop(lock);
        umem
    }
}

/// The callback of a DMA buffer.
///
/// # Safety
///
/// `user` must point to a live `R`.
unsafe extern "C" fn revoke<R: Revoke>(user: *mut c_void) {
    // SAFETY: the core passes the pointer that it was given with the umem, which keeps its revoker.
    unsafe { &*user.cast_const().cast::<R>() }.revoke();
}

/// Memory as blocks of one size.
///
/// # Invariants
///
/// `size` is a power of two and one in which all of the memory can be described.
pub(crate) struct Paged<'a> {
    umem: &'a Umem,
    size: usize,
}

impl Paged<'_> {
    /// Returns log2 of the bytes of a block.
    pub(crate) fn shift(&self) -> u8 {
        // CAST: below 64.
        self.size.trailing_zeros() as u8
    }

    /// Returns the number of blocks.
    pub(crate) fn count(&self) -> usize {
        // SAFETY: the umem is alive, as it is borrowed; `size` is valid by the type's invariants.
        unsafe { bindings::rdma_helper_umem_num_dma_blocks(self.umem.raw.as_ptr(), self.size) }
    }

    /// Returns their DMA addresses.
    pub(crate) fn blocks(&self) -> Blocks<'_> {
        let mut iter = MaybeUninit::<bindings::ib_block_iter>::zeroed();
        let umem = self.umem.raw.as_ptr();
        // SAFETY: the umem is alive, as it is borrowed; `size` is valid by the type's invariants;
        // the callee initialises the iterator, for which zero is valid.
        unsafe {
            bindings::rdma_helper_umem_block_iter_start(iter.as_mut_ptr(), umem, self.size);
        }
        // SAFETY: the iterator was initialised above.
        // INVARIANT: it was.
        Blocks { iter: unsafe { iter.assume_init() }, _umem: PhantomData }
    }
}

/// Iterator over DMA addresses.
///
/// # Invariants
///
/// `iter` is an iterator over the blocks of a umem that is borrowed for `'a`.
pub(crate) struct Blocks<'a> {
    iter: bindings::ib_block_iter,
    _umem: PhantomData<&'a Umem>,
}

impl Iterator for Blocks<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // SAFETY: by the type's invariants the iterator is valid, and its umem alive.
        let is_there = unsafe { bindings::rdma_helper_umem_block_iter_next(&mut self.iter) };
        // SAFETY: by the type's invariants the iterator is valid, and its umem alive; there is a
        // current block.
        is_there.then(|| unsafe { bindings::rdma_helper_block_iter_dma_address(&mut self.iter) })
    }
}

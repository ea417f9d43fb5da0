// SPDX-License-Identifier: GPL-2.0
//! Memory regions: pages under a key by fast registration.

use core::ptr::NonNull;

use kernel::{
    error::from_err_ptr,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, Mutex},
};

use super::{
    memory::Memory,
    pd::{Pd, is_same},
    remote::Remote,
    request::{InUse, Request},
};
use crate::bindings;

/// The part of a key that is its owner's to choose.
const CHOSEN: u32 = 0xff;

/// The core's region of mapped pages; deregistered and unmapped on drop.
///
/// # Invariants
///
/// `mr` is a region in `pd` that this type owns. `list` has the pages of `memory`; unless `mapped`
/// is zero they are mapped for the device of `pd`.
struct Registered {
    mr: NonNull<bindings::ib_mr>,
    list: KVec<bindings::scatterlist>,
    mapped: i32,
    /// The request that registers it, or has.
    by: Option<Arc<Request>>,
    memory: Arc<Memory>,
    pd: Arc<Pd>,
}

// SAFETY: the core allows a region to be used and deregistered by any thread.
unsafe impl Send for Registered {}

impl Registered {
    /// Maps the list and allocates a region for it.
    fn new(
        pd: Arc<Pd>,
        memory: Arc<Memory>,
        mut list: KVec<bindings::scatterlist>,
    ) -> Result<Self> {
        let (device, count) = (pd.device().as_raw().as_ptr(), u32::try_from(list.len())?);
        let kind = bindings::ib_mr_type_IB_MR_TYPE_MEM_REG;
        // SAFETY: the domain is alive, as `pd` keeps it.
        let mr = from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, count) })?;
        let mr = NonNull::new(mr).ok_or(ENOMEM)?;
        // SAFETY: the device is registered, as the domain keeps it; the list has `count` entries.
        let mapped = unsafe { bindings::kclient_map_sg(device, list.as_mut_ptr(), count) };
        // From here on drop undoes it all.
        // INVARIANT: the region was allocated just now, and the list mapped if `mapped` is not
        // zero.
        let this = Self { mr, list, mapped, by: None, memory, pd };
        if mapped > 0 { Ok(this) } else { Err(ENOMEM) }
    }

    /// Fills the region's page list with its pages and chooses the next key, for the registration
    /// by `request`. Returns the key.
    fn renew(&mut self, request: &Arc<Request>) -> Result<u32> {
        if self.by.as_ref().is_some_and(|by| by.is_outstanding()) {
            return Err(EBUSY);
        }
        // CAST: a small constant.
        let page = PAGE_SIZE as u32;
        let (mr, null) = (self.mr.as_ptr(), core::ptr::null_mut());
        // SAFETY: by the type's invariants the region is alive and this type's own; the core does
        // not use it as long as no registration is outstanding, which was checked above.
        let region = unsafe { &mut *mr };
        let chosen = region.rkey.wrapping_add(1) & CHOSEN;
        region.rkey = region.rkey & !CHOSEN | chosen;
        region.lkey = region.lkey & !CHOSEN | chosen;
        let key = region.rkey;
        let list = self.list.as_mut_ptr();
        // SAFETY: by the type's invariants the region is alive and the list mapped. The device does
        // not read the region's list of pages, as no registration is outstanding.
        let mapped = unsafe { bindings::ib_map_mr_sg(mr, list, self.mapped, null, page) };
        if mapped != self.mapped {
            return Err(EINVAL);
        }
        self.by = Some(request.clone());
        Ok(key)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // CAST: it was made from a u32.
        let count = self.list.len() as u32;
        // SAFETY: by the type's invariants the region is this type's own. No request that registers
        // it is outstanding, as that would keep it.
        let status = unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), core::ptr::null_mut()) };
        if status != 0 {
            pr_err!("a region could not be deregistered: {status}\n");
            // The device may reach it still.
            core::mem::forget((self.memory.clone(), self.pd.clone()));
        } else if self.mapped > 0 {
            let device = self.pd.device().as_raw().as_ptr();
            // SAFETY: by the type's invariants the list is mapped for this device, which does not
            // reach it any more, as the region was deregistered.
            unsafe { bindings::kclient_unmap_sg(device, self.list.as_mut_ptr(), count) };
        }
    }
}

/// Pages that a peer reaches by one key, while it is registered by a work request.
#[pin_data]
pub struct Region {
    #[pin]
    registered: Mutex<Registered>,
    memory: Arc<Memory>,
    head: usize,
    tail: usize,
}

impl Region {
    /// Creates a region of some pages less the first `head` and the last `tail` bytes, not
    /// registered yet.
    ///
    /// # Errors
    ///
    /// `EINVAL` unless each piece of the memory is a page and the rest begins in the first and ends
    /// in the last.
    pub fn new(pd: Arc<Pd>, memory: Memory, head: usize, tail: usize) -> Result<Arc<Self>> {
        if memory.piece_len() != PAGE_SIZE
            || head.max(tail) >= PAGE_SIZE
            || memory.len() <= head + tail
        {
            return Err(EINVAL);
        }
        let memory = Arc::new(memory, GFP_KERNEL)?;
        let registered = Registered::new(pd, memory.clone(), scatter(&memory, head, tail)?)?;
        Arc::pin_init(
            pin_init!(Self {
                registered <- new_mutex!(registered, "kclient::Region"),
                memory,
                head,
                tail,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len() - self.head - self.tail
    }

    /// Returns its pages, as a whole.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the address of the first byte, as the peer names it.
    pub fn address(&self) -> u64 {
        // SAFETY: by the invariants of `Registered` the region is alive; it changes under this lock
        // alone.
        unsafe { (*self.registered.lock().mr.as_ptr()).iova }
    }

    /// Returns the key of the last registration.
    pub fn key(&self) -> u32 {
        // SAFETY: by the invariants of `Registered` the region is alive; it changes under this lock
        // alone.
        unsafe { (*self.registered.lock().mr.as_ptr()).rkey }
    }

    /// Returns its start, as a peer reaches it.
    pub fn remote(&self) -> Remote {
        Remote::new(self.address(), self.key())
    }

    /// Gives it a new key, and has `post` post the registration by `request`.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a registration is outstanding, `EINVAL` if the region is of another device than
    /// the domain `pd`.
    pub(super) fn register(
        &self,
        pd: &Pd,
        request: &Arc<Request>,
        post: impl FnOnce(NonNull<bindings::ib_mr>, u32) -> Result,
    ) -> Result {
        let mut registered = self.registered.lock();
        if !is_same(registered.pd.device(), pd.device()) {
            return Err(EINVAL);
        }
        let key = registered.renew(request)?;
        post(registered.mr, key)
    }
}

impl InUse for Region {}

/// Returns the list of the pages.
fn scatter(memory: &Memory, head: usize, tail: usize) -> Result<KVec<bindings::scatterlist>> {
    let pages = memory.len() / PAGE_SIZE;
    let count = u32::try_from(pages)?;
    let mut list = KVec::with_capacity(pages, GFP_KERNEL)?;
    for _ in 0..pages {
        list.push(bindings::scatterlist::default(), GFP_KERNEL)?;
    }
    for (nth, start) in (0..).zip(memory.starts()) {
        let skipped = if nth == 0 { head } else { 0 };
        let left = if nth + 1 == count { tail } else { 0 };
        let length = u32::try_from(PAGE_SIZE - skipped - left)?;
        let start = start.wrapping_add(skipped).cast();
        // SAFETY: the list has `count` entries, of which `nth` is one; `start` and `length` are a
        // part of a page of the memory.
        unsafe { bindings::kclient_set_sg(list.as_mut_ptr(), count, nth, start, length) };
    }
    Ok(list)
}

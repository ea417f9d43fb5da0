// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The allocator that a program has given to a parent domain (ibv_alloc_parent_domain(3); unsafe
//! code).

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::heap::Shared;

/// The page size, which is the alignment of rings and the multiple of their length.
pub(crate) const PAGE: usize = 4096;
/// What an allocator returns if the plugin is to take the memory as it does without one
/// (`IBV_ALLOCATOR_USE_DEFAULT`).
pub(crate) const USE_DEFAULT: usize = usize::MAX;

/// What memory is for: the numbers of `enum vrnicdv_res_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Resource {
    /// The send or the receive queue of a queue pair.
    Qp = 1,
    /// A completion queue.
    Cq = 2,
    /// A shared receive queue.
    Srq = 3,
    /// A work queue.
    Wq = 4,
}

/// The functions of a program that allocate and free memory. Their arguments are the parent
/// domain, the program's context, the length in bytes and the alignment, or the address, and the
/// number of a [`Resource`].
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Returns memory, null, or `IBV_ALLOCATOR_USE_DEFAULT`.
    pub alloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize, u64) -> *mut c_void,
    /// Frees memory.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, u64),
    /// The first argument of both.
    pub domain: *mut c_void,
    /// The second argument of both.
    pub context: *mut c_void,
}

/// The allocator of a parent domain. The domain is in use as long as it has other owners.
pub struct Allocator(Functions);

// SAFETY: the thread that creates or destroys an object calls the functions. A program that does
// so in several threads has written them for that, as for all other devices.
unsafe impl Send for Allocator {}
// SAFETY: as above; the value itself never changes.
unsafe impl Sync for Allocator {}

impl Allocator {
    /// Creates an allocator.
    ///
    /// # Safety
    /// The functions must obey ibv_alloc_parent_domain(3), and what they return must be memory
    /// that is used for nothing else until it is freed.
    #[must_use]
    pub unsafe fn new(functions: Functions) -> Self {
        Self(functions)
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Allocator").field(&self.0.context).finish()
    }
}

/// Memory from an allocator, freed on drop.
#[derive(Debug)]
pub(crate) struct Piece {
    base: NonNull<c_void>,
    len: usize,
    allocator: Shared<Allocator>,
    resource: Resource,
}

impl Piece {
    /// Allocates zeroed memory of at least `len` bytes. Returns none if the allocator leaves that
    /// to the plugin.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` if `len` is zero or the allocator disregards the alignment.
    pub(crate) fn allocate(
        allocator: &Shared<Allocator>,
        len: usize,
        resource: Resource,
    ) -> Result<Option<Self>, Errno> {
        let len = len.checked_next_multiple_of(PAGE).filter(|len| *len > 0).ok_or(Errno::INVAL)?;
        let Functions { alloc, domain, context, .. } = allocator.0;
        // SAFETY: the creator of the allocator has promised that this may be called so.
        let memory = unsafe { alloc(domain, context, len, PAGE, resource as u64) };
        if memory.addr() == USE_DEFAULT {
            return Ok(None);
        }
        let base = NonNull::new(memory).ok_or(Errno::NOMEM)?;
        let piece = Self { base, len, allocator: allocator.clone(), resource };
        if !memory.addr().is_multiple_of(PAGE) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the allocator has returned that many bytes, which nothing else uses.
        unsafe { ptr::write_bytes(memory.cast::<u8>(), 0, len) };
        Ok(Some(piece))
    }

    /// Returns the address and the length in bytes.
    pub(crate) fn area(&self) -> (NonNull<u8>, usize) {
        (self.base.cast(), self.len)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.base.as_ptr().addr().is_multiple_of(PAGE) {
            // Later users of the memory expect that children inherit it.
            // SAFETY: whole pages that the allocator has returned; the advice affects only child
            // processes.
            let advised = unsafe { madvise(self.base.as_ptr(), self.len, Advice::LinuxDoFork) };
            // Otherwise, children do not inherit it, which harms no ring.
            let _kept = advised;
        }
        let Functions { free, domain, context, .. } = self.allocator.0;
        // SAFETY: the creator of the allocator has promised that this may be called so; the
        // memory comes from it, and is freed once.
        unsafe { free(domain, context, self.base.as_ptr(), self.resource as u64) };
    }
}

//! Protection domains and memory regions.
//!
//! | module | what |
//! | --- | --- |
//! | [`buffer`] | memory that the device and this process share |
//! | `dmabuf` | DMA buffers of ordinary memory |
//! | [`allocator`] | memory for rings from the program's own allocator |

pub mod allocator;
pub mod buffer;
mod dmabuf;

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::context::Context;
use super::{check, ffi, missing, object};
use crate::model::Change;
use buffer::Buffer;

/// A protection domain.
pub struct Pd {
    pub(crate) raw: NonNull<ffi::ibv_pd>,
}

impl Pd {
    /// Allocates a PD.
    pub fn new(context: &Context) -> io::Result<Self> {
        // SAFETY: the context is open.
        Ok(Self { raw: object(unsafe { ffi::ibv_alloc_pd(context.raw()) })? })
    }

    /// Creates a parent domain of this PD, for QPs that one thread uses. With `allocating`, the
    /// rings of its objects have memory from [`allocator`].
    pub fn parent(&self, context: &Context, thread: &Td, allocating: bool) -> io::Result<Self> {
        // SAFETY: all-zero is valid for this struct of integers, null pointers and no functions.
        let mut attr: ffi::ibv_parent_domain_init_attr = unsafe { std::mem::zeroed() };
        (attr.pd, attr.td) = (self.raw(), thread.raw());
        if allocating {
            attr.comp_mask = ffi::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
            attr.alloc = Some(allocator::allocate);
            attr.free = Some(allocator::free);
        }
        // SAFETY: the context is open, the handles are live, and the struct complete.
        let raw = unsafe {
            let alloc = ffi::extended(context.raw()).alloc_parent_domain.ok_or_else(missing)?;
            alloc(context.raw(), &raw mut attr)
        };
        Ok(Self { raw: object(raw)? })
    }
}

/// A thread domain: the promise that only one thread uses the objects in it.
pub struct Td {
    pub(crate) raw: NonNull<ffi::ibv_td>,
}

impl Td {
    /// Allocates a thread domain.
    pub fn new(context: &Context) -> io::Result<Self> {
        let mut attr = ffi::ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and the struct complete.
        let raw = unsafe {
            let alloc = ffi::extended(context.raw()).alloc_td.ok_or_else(missing)?;
            alloc(context.raw(), &raw mut attr)
        };
        Ok(Self { raw: object(raw)? })
    }
}

/// A memory region.
pub struct Mr {
    pub(crate) raw: NonNull<ffi::ibv_mr>,
}

impl Mr {
    /// Registers a range of this process' address space, which need not be mapped.
    pub fn new(pd: &Pd, addr: u64, length: u64, access: u32) -> io::Result<Self> {
        let (addr, length) = (addr as *mut _, length as usize);
        // SAFETY: the PD is live. Registering does not access the range through this process; the
        // device may write only memory there that this process accesses by raw copies (see
        // `buffer`).
        let raw = unsafe { ffi::ibv_reg_mr(pd.raw(), addr, length, access as i32) };
        Ok(Self { raw: object(raw)? })
    }

    /// Allocates a region without memory.
    pub fn null(pd: &Pd) -> io::Result<Self> {
        // SAFETY: the PD and its context are live.
        let raw = unsafe {
            let alloc = ffi::extended((*pd.raw()).context).alloc_null_mr.ok_or_else(missing)?;
            alloc(pd.raw())
        };
        Ok(Self { raw: object(raw)? })
    }

    /// Registers a whole buffer through its DMA buffer, with the buffer's own address.
    pub fn of_dmabuf(pd: &Pd, buffer: &Buffer, access: u32) -> io::Result<Self> {
        let Some((fd, offset)) = buffer.dmabuf() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let (len, iova, access) = (buffer.length(), buffer.addr(), access as i32);
        // SAFETY: the PD and the descriptor are live; as to the memory, see `new`.
        let raw =
            unsafe { ffi::ibv_reg_dmabuf_mr(pd.raw(), offset, len, iova, fd.as_raw_fd(), access) };
        Ok(Self { raw: object(raw)? })
    }

    /// Changes the attributes that `change` names.
    pub fn change(&self, pd: Option<&Pd>, change: &Change) -> io::Result<()> {
        let pd = pd.map_or(std::ptr::null_mut(), Pd::raw);
        let (addr, length) = (change.addr as *mut _, change.length as usize);
        // SAFETY: the handles are live; as to the memory, see `new`.
        let done = unsafe {
            ffi::ibv_rereg_mr(
                self.raw(),
                change.what as i32,
                pd,
                addr,
                length,
                change.access as i32,
            )
        };
        // A negative code (`enum ibv_rereg_mr_err_code`) names the step that failed, errno the
        // reason.
        if done < 0 { Err(io::Error::last_os_error()) } else { check(done) }
    }

    /// Returns the local and the remote key.
    pub fn keys(&self) -> (u32, u32) {
        // SAFETY: the handle is live, and both fields are constant.
        unsafe { ((*self.raw()).lkey, (*self.raw()).rkey) }
    }
}

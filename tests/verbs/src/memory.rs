//! Protection domains and memory regions.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::buffer::Buffer;
use super::context::Context;
use super::{check, ffi, object};
use crate::model::Change;

/// A protection domain.
pub struct Pd {
    raw: NonNull<ffi::ibv_pd>,
}

impl Pd {
    /// Allocates one.
    pub fn new(context: &Context) -> io::Result<Self> {
        // SAFETY: the context is open.
        Ok(Self { raw: object(unsafe { ffi::ibv_alloc_pd(context.raw()) })? })
    }

    /// A parent domain of this one, for QPs that one thread uses.
    pub fn parent(&self, context: &Context, thread: &Td) -> io::Result<Self> {
        let thread = thread.raw.as_ptr();
        // SAFETY: the context is open, the handles are live.
        let raw = unsafe { ffi::alloc_parent_domain(context.raw(), self.raw(), thread) };
        Ok(Self { raw: object(raw)? })
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_pd {
        self.raw.as_ptr()
    }

    /// Frees it, or gives it back with the error (EBUSY while objects use it).
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live; on success no reference to it is left. The kernel refuses
        // while regions or QPs hold it, so their pointers to it stay good.
        check(unsafe { ffi::ibv_dealloc_pd(self.raw()) }).map_err(|e| (self, e))
    }
}

/// A thread domain: the promise that one thread uses what is made in it.
pub struct Td {
    raw: NonNull<ffi::ibv_td>,
}

impl Td {
    /// Allocates one.
    pub fn new(context: &Context) -> io::Result<Self> {
        // SAFETY: the context is open.
        Ok(Self { raw: object(unsafe { ffi::alloc_td(context.raw()) })? })
    }

    /// Frees it, or gives it back with the error (EBUSY while a parent domain holds it).
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live; on success no reference to it is left.
        check(unsafe { ffi::dealloc_td(self.raw.as_ptr()) }).map_err(|e| (self, e))
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
        // SAFETY: the PD is live. Registering does not access the range through this process; what
        // the device may write there is memory that only raw copies touch (see `buffer`).
        let raw = unsafe { ffi::ibv_reg_mr(pd.raw(), addr, length, access as i32) };
        Ok(Self { raw: object(raw)? })
    }

    /// Registers all of a buffer by its DMA buffer, at its own address.
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

    pub(crate) fn raw(&self) -> *mut ffi::ibv_mr {
        self.raw.as_ptr()
    }

    /// Changes what `change` names.
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
        // Negative codes (`enum ibv_rereg_mr_err_code`) say which step failed, errno why.
        if done < 0 { Err(io::Error::last_os_error()) } else { check(done) }
    }

    /// The local and the remote key.
    pub fn keys(&self) -> (u32, u32) {
        // SAFETY: the handle is live, and both fields are constant.
        unsafe { ((*self.raw.as_ptr()).lkey, (*self.raw.as_ptr()).rkey) }
    }

    /// Deregisters it, or gives it back with the error.
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live; on success no reference to it is left.
        check(unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) }).map_err(|e| (self, e))
    }
}

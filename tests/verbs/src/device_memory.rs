//! Memory of the device (`ibv_alloc_dm(3)`).

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::context::Context;
use super::memory::{Mr, Pd};
use super::{check, ffi, missing, object};

/// Memory of the device.
pub struct DeviceMemory {
    pub(crate) raw: NonNull<ffi::ibv_dm>,
}

impl DeviceMemory {
    /// Allocates `length` bytes whose address is a multiple of `1 << log_align`.
    pub fn new(context: &Context, length: u64, log_align: u32) -> io::Result<Self> {
        let (length, comp_mask) = (length as usize, 0);
        let mut attr = ffi::ibv_alloc_dm_attr { length, log_align_req: log_align, comp_mask };
        // SAFETY: the context is open, and the struct complete.
        let raw = unsafe {
            let alloc = ffi::extended(context.raw()).alloc_dm.ok_or_else(missing)?;
            alloc(context.raw(), &raw mut attr)
        };
        Ok(Self { raw: object(raw)? })
    }

    /// Returns the maximum number of bytes that the device reports.
    pub fn largest(context: &Context) -> io::Result<u64> {
        let mut attr = MaybeUninit::<ffi::ibv_device_attr_ex>::zeroed();
        // SAFETY: the context is open, and the struct has the given size.
        let done = unsafe {
            let query = ffi::extended(context.raw()).query_device_ex.ok_or_else(missing)?;
            let size = size_of::<ffi::ibv_device_attr_ex>();
            query(context.raw(), std::ptr::null(), attr.as_mut_ptr(), size)
        };
        check(done)?;
        // SAFETY: the struct was zeroed and then filled; any bytes are valid numbers.
        Ok(unsafe { attr.assume_init() }.max_dm_size)
    }

    /// Copies bytes into the memory.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the handle is live, and there are as many bytes.
        check(unsafe {
            let copy = (*self.raw()).memcpy_to_dm.ok_or_else(missing)?;
            copy(self.raw(), offset, bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Copies bytes out of the memory.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        // SAFETY: the handle is live, and there is as much room.
        check(unsafe {
            let copy = (*self.raw()).memcpy_from_dm.ok_or_else(missing)?;
            copy(into.as_mut_ptr().cast(), self.raw(), offset, into.len())
        })
    }

    /// Registers a part of the memory.
    pub fn register(&self, pd: &Pd, offset: u64, length: u64, access: u32) -> io::Result<Mr> {
        // SAFETY: the PD and the handle are live.
        let raw = unsafe {
            let register = ffi::extended((*pd.raw()).context).reg_dm_mr.ok_or_else(missing)?;
            register(pd.raw(), self.raw(), offset, length as usize, access)
        };
        Ok(Mr { raw: object(raw)? })
    }
}

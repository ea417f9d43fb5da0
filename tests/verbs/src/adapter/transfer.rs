//! Address ranges and marks for direct transfers, of the vrnic adapter.

use std::io;
use std::ptr::{self, NonNull};

pub use vrnic_abi::direct::RANGES;
use vrnicdv::transfer::{self, Await, RangeState, Transfer, TransferFlags, Transfers};

use crate::check;
use crate::device_memory::DeviceMemory;
use crate::model::flags;
use crate::qp::Qp;

/// A range of the adapter's window.
pub struct Range {
    raw: NonNull<transfer::Range>,
}

fn functions() -> io::Result<Transfers> {
    Transfers::load().ok_or_else(|| io::Error::other("the device's plugin has no direct transfers"))
}

impl Range {
    /// Allocates a range for a QP.
    pub fn new(qp: &Qp) -> io::Result<Self> {
        // SAFETY: the handle is live.
        let raw = unsafe { functions()?.alloc_range(qp.raw().cast()) };
        raw.map(|raw| Self { raw }).ok_or_else(io::Error::last_os_error)
    }

    /// Returns a range that no call has allocated: the plugin's functions send the kernel commands
    /// about range `number` of this QP.
    pub fn forged(qp: &Qp, number: u32) -> Self {
        let range = transfer::Range { qp: qp.raw().cast(), window: ptr::null_mut(), number };
        // The plugin frees only ranges that the kernel has freed.
        Self { raw: NonNull::from(Box::leak(Box::new(range))) }
    }

    /// Arms the range for `length` bytes of device memory.
    pub fn arm(
        &self,
        memory: &DeviceMemory,
        (offset, length): (u64, u32),
        time_limit_ms: u32,
        (write, mapped): (bool, bool),
    ) -> io::Result<()> {
        let mut flags = TransferFlags::empty();
        flags.set(TransferFlags::WRITE, write);
        flags.set(TransferFlags::MAPPED, mapped);
        let dm = memory.raw().cast();
        let wanted = Transfer { dm, offset, length, time_limit_ms, flags };
        // SAFETY: the handles are live.
        check(unsafe { functions()?.arm_range(self.raw, &wanted) })
    }

    /// Posts the request that completes when the range's transfer ends.
    pub fn post(&self, wr_id: u64) -> io::Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { functions()?.post_transfer(self.raw, wr_id, flags::SIGNALED) })
    }

    /// Reports that all bytes of a mapped transfer have been moved.
    pub fn done(&self) -> io::Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { functions()?.range_done(self.raw) })
    }

    /// Returns the state of the range.
    pub fn state(&self) -> io::Result<RangeState> {
        // SAFETY: the handle is live.
        unsafe { functions()?.query_range(self.raw) }.map_err(io::Error::from_raw_os_error)
    }

    /// Frees the range, or returns it with the error.
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live; on success no reference to it is left.
        let freed = functions().and_then(|all| check(unsafe { all.free_range(self.raw) }));
        freed.map_err(|error| (self, error))
    }
}

impl Qp {
    /// Posts an AWAIT of a mark in one of the QP's words.
    pub fn post_await(
        &self,
        wr_id: u64,
        (word, mark): (u32, u32),
        time_limit_ms: u32,
    ) -> io::Result<()> {
        let wanted = Await { wr_id, send_flags: flags::SIGNALED, word, mark, time_limit_ms };
        // SAFETY: the handle is live.
        check(unsafe { functions()?.post_await(self.raw().cast(), &wanted) })
    }

    /// Stores a mark.
    pub fn mark(&self, word: u32, mark: u32, failed: bool) -> io::Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { functions()?.mark(self.raw().cast(), word, mark, failed) })
    }
}

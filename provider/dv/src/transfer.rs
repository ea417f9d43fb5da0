//! Address ranges and marks, for direct transfers (docs/direct.md).

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use bitflags::bitflags;
use vrnic_abi as abi;

use crate::Plugin;

/// The number of the words for marks of a queue pair.
pub const MARKS: u32 = abi::direct::MARKS;

/// A range of the adapter's window: `struct vrnicdv_range`.
#[derive(Debug)]
#[repr(C)]
pub struct Range {
    /// The queue pair, a `struct ibv_qp`.
    pub qp: *mut c_void,
    /// 4,096 bytes. The adapter sees each access to them.
    pub window: *mut c_void,
    /// The number of the range.
    pub number: u32,
}

impl Range {
    /// Returns a segment (`struct ibv_sge`) of a range that is armed for a transfer through a
    /// block.
    #[must_use]
    pub fn segment(&self, offset: u32, length: u32) -> abi::sq::Sge {
        let addr = u64::from(self.number) * u64::from(abi::direct::RANGE_LEN) + u64::from(offset);
        abi::sq::Sge { addr: addr.into(), length: length.into(), lkey: abi::Key::WINDOW }
    }
}

bitflags! {
    /// The way in which the data of a transfer is moved.
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TransferFlags: u32 {
        /// An RDMA WRITE sends the data. Without this flag, a READ fetches it.
        const WRITE = 1 << 0;
        /// The data is moved in the device memory itself, and [`Transfers::range_done`] reports the
        /// end. Otherwise it is moved in the window, and the adapter counts the bytes.
        const MAPPED = 1 << 1;
        /// The packet memory is a block of the adapter. Work requests name the range by
        /// [`Range::segment`], and [`Transfers::post_transfer`] follows them.
        const BLOCK = 1 << 2;
    }
}

/// The parameters that a range is armed with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Transfer {
    /// The packet memory, a `struct ibv_dm` of the queue pair's context. Null with
    /// [`TransferFlags::BLOCK`].
    pub dm: *mut c_void,
    /// The first byte in it.
    pub offset: u64,
    /// Bytes: from 1 to 4,096, or to 16 MiB if it is mapped, or a READ through a block.
    pub length: u32,
    /// Milliseconds until it fails, 1 to 60,000.
    pub time_limit_ms: u32,
    /// The way in which the data is moved.
    pub flags: TransferFlags,
}

/// The state of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RangeState {
    /// Bytes that have been moved.
    pub count: u32,
    /// 1 if bytes may be moved.
    pub pci_valid: u8,
    /// 1 if data is awaited, or all bytes have been moved and the work request has not ended.
    pub adapter_valid: u8,
    /// The cause of a failure by the numbers of `vendor_err`, or 0.
    pub failure: u8,
    /// Zero.
    pub reserved: u8,
}

/// A work request that ends when a word of its queue pair has a mark.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Await {
    /// An opaque value that comes back with the completion.
    pub wr_id: u64,
    /// `IBV_SEND_SIGNALED`, `IBV_SEND_FENCE`.
    pub send_flags: u32,
    /// The number of the word, below [`MARKS`].
    pub word: u32,
    /// The mark: from 1 to 0x7fffffff.
    pub mark: u32,
    /// Milliseconds from its start until it fails, 1 to 60,000.
    pub time_limit_ms: u32,
}

type AllocRange = unsafe extern "C" fn(*mut c_void) -> *mut Range;
type OnRange = unsafe extern "C" fn(*mut Range) -> c_int;
type ArmRange = unsafe extern "C" fn(*mut Range, *const Transfer) -> c_int;
type QueryRange = unsafe extern "C" fn(*mut Range, *mut RangeState) -> c_int;
type PostTransfer = unsafe extern "C" fn(*mut Range, u64, u32) -> c_int;
type PostAwait = unsafe extern "C" fn(*mut c_void, *const Await) -> c_int;
type Mark = unsafe extern "C" fn(*mut c_void, u32, u32, bool) -> c_int;

/// The functions of the loaded plugin for direct transfers.
#[derive(Clone, Copy, Debug)]
pub struct Transfers {
    alloc_range: AllocRange,
    free_range: OnRange,
    arm_range: ArmRange,
    query_range: QueryRange,
    range_done: OnRange,
    post_transfer: PostTransfer,
    post_await: PostAwait,
    mark: Mark,
}

impl Transfers {
    /// Returns the functions, if libibverbs has loaded the plugin and the plugin is new enough.
    #[must_use]
    pub fn load() -> Option<Self> {
        let plugin = Plugin::find()?;
        let symbol = |name: &CStr| plugin.symbol(name);
        let alloc_range = symbol(c"vrnicdv_alloc_range")?;
        let free_range = symbol(c"vrnicdv_free_range")?;
        let arm_range = symbol(c"vrnicdv_arm_range")?;
        let query_range = symbol(c"vrnicdv_query_range")?;
        let range_done = symbol(c"vrnicdv_range_done")?;
        let post_transfer = symbol(c"vrnicdv_post_transfer")?;
        let post_await = symbol(c"vrnicdv_post_await")?;
        let mark = symbol(c"vrnicdv_mark")?;
        // SAFETY: the plugin's functions of these names have these types (vrnicdv.h).
        unsafe {
            Some(Self {
                alloc_range: transmute::<*mut c_void, AllocRange>(alloc_range),
                free_range: transmute::<*mut c_void, OnRange>(free_range),
                arm_range: transmute::<*mut c_void, ArmRange>(arm_range),
                query_range: transmute::<*mut c_void, QueryRange>(query_range),
                range_done: transmute::<*mut c_void, OnRange>(range_done),
                post_transfer: transmute::<*mut c_void, PostTransfer>(post_transfer),
                post_await: transmute::<*mut c_void, PostAwait>(post_await),
                mark: transmute::<*mut c_void, Mark>(mark),
            })
        }
    }

    /// Takes a range for a queue pair of type RC or UC, or returns `None` with errno set.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn alloc_range(&self, qp: *mut c_void) -> Option<NonNull<Range>> {
        // SAFETY: the caller passes a live queue pair.
        NonNull::new(unsafe { (self.alloc_range)(qp) })
    }

    /// Ends the transfer of a range and gives the range back. Returns zero or an errno.
    ///
    /// # Safety
    /// `range` and its queue pair must be live. If this succeeds, `range` is never used again.
    #[must_use]
    pub unsafe fn free_range(&self, range: NonNull<Range>) -> c_int {
        // SAFETY: the caller passes a range that is live, as is its queue pair, and that is not
        // used again on success.
        unsafe { (self.free_range)(range.as_ptr()) }
    }

    /// Arms a range for one transfer. Returns zero or an errno.
    ///
    /// # Safety
    /// `range`, its queue pair and the device memory must be live.
    #[must_use]
    pub unsafe fn arm_range(&self, range: NonNull<Range>, transfer: &Transfer) -> c_int {
        // SAFETY: the caller passes a live range, whose queue pair is live, and live device memory.
        unsafe { (self.arm_range)(range.as_ptr(), transfer) }
    }

    /// Returns the state of a range, or an errno.
    ///
    /// # Errors
    /// The errno.
    ///
    /// # Safety
    /// `range` and its queue pair must be live.
    pub unsafe fn query_range(&self, range: NonNull<Range>) -> Result<RangeState, c_int> {
        let mut state = RangeState::default();
        // SAFETY: the caller passes a live range, whose queue pair is live; there is room for the
        // state.
        match unsafe { (self.query_range)(range.as_ptr(), &raw mut state) } {
            0 => Ok(state),
            error => Err(error),
        }
    }

    /// Reports that all bytes of a mapped transfer have been moved. Returns zero or an errno.
    ///
    /// # Safety
    /// `range` and its queue pair must be live.
    #[must_use]
    pub unsafe fn range_done(&self, range: NonNull<Range>) -> c_int {
        // SAFETY: the caller passes a live range, whose queue pair is live.
        unsafe { (self.range_done)(range.as_ptr()) }
    }

    /// Posts the work request that ends with the range's transfer. Returns zero or an errno.
    ///
    /// # Safety
    /// `range` and its queue pair must be live.
    #[must_use]
    pub unsafe fn post_transfer(&self, range: NonNull<Range>, wr_id: u64, flags: u32) -> c_int {
        // SAFETY: the caller passes a live range, whose queue pair is live.
        unsafe { (self.post_transfer)(range.as_ptr(), wr_id, flags) }
    }

    /// Posts the work request that ends when a word has a mark. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn post_await(&self, qp: *mut c_void, wanted: &Await) -> c_int {
        // SAFETY: the caller passes a live queue pair; the description is borrowed, so it is valid.
        unsafe { (self.post_await)(qp, wanted) }
    }

    /// Stores a mark. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn mark(&self, qp: *mut c_void, word: u32, mark: u32, failed: bool) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.mark)(qp, word, mark, failed) }
    }
}

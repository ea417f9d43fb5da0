//! Completion queues and completion channels.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::context::Context;
use super::{check, extended, ffi, missing, object, readable};
use crate::model::Wc;

/// Maximum number of entries that one poll takes.
const BATCH: usize = 16;

/// A completion channel.
pub struct Channel {
    pub(crate) raw: NonNull<ffi::ibv_comp_channel>,
}

impl Channel {
    /// Opens a completion channel.
    pub fn new(context: &Context) -> io::Result<Self> {
        // SAFETY: the context is open.
        Ok(Self { raw: object(unsafe { ffi::ibv_create_comp_channel(context.raw()) })? })
    }

    /// Waits for an event and acknowledges it. Returns the identity of its CQ, or `None` if none
    /// comes in time.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<usize>> {
        // SAFETY: the handle is live.
        if !readable(unsafe { (*self.raw()).fd }, timeout)? {
            return Ok(None);
        }
        let (mut cq, mut user) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the handle is live; the call fills both pointers.
        check(unsafe { ffi::ibv_get_cq_event(self.raw(), &raw mut cq, &raw mut user) })?;
        // SAFETY: the event came from this CQ, which still exists: destroying it waits for the
        // acknowledgement.
        unsafe { ffi::ibv_ack_cq_events(cq, 1) };
        Ok(Some(cq as usize))
    }
}

/// A completion queue.
pub struct Cq {
    pub(crate) raw: NonNull<ffi::ibv_cq>,
    /// True if it is polled with the extended interface.
    pub(crate) extended: bool,
}

impl Cq {
    /// Creates a CQ with at least `cqe` entries.
    pub fn new(
        context: &Context,
        cqe: i32,
        channel: Option<&Channel>,
        vector: i32,
        extended: bool,
    ) -> io::Result<Self> {
        let channel = channel.map_or(ptr::null_mut(), Channel::raw);
        if extended {
            let raw = extended::create_cq(context, cqe, channel, vector)?;
            return Ok(Self { raw, extended });
        }
        // SAFETY: the context is open and the channel live or null; the user pointer is unused.
        let raw =
            unsafe { ffi::ibv_create_cq(context.raw(), cqe, ptr::null_mut(), channel, vector) };
        Ok(Self { raw: object(raw)?, extended })
    }

    /// Creates a CQ with at least `cqe` entries that loses completions when it is full.
    pub fn overrunning(context: &Context, cqe: i32) -> io::Result<Self> {
        Ok(Self { raw: extended::create_overrunning_cq(context, cqe)?, extended: true })
    }

    /// Creates a CQ with at least `cqe` entries that one thread uses at a time.
    pub fn single_threaded(
        context: &Context,
        cqe: i32,
        channel: Option<&Channel>,
    ) -> io::Result<Self> {
        let channel = channel.map_or(ptr::null_mut(), Channel::raw);
        let raw = extended::create_single_threaded_cq(context, cqe, channel)?;
        Ok(Self { raw, extended: true })
    }

    /// Begins to take completions one by one, if there are any. Returns the first one.
    pub fn begin_series(&mut self) -> io::Result<Option<Wc>> {
        self.needs_extended()?;
        // SAFETY: the handle is live, and was created for this interface; programs begin one series
        // at a time.
        unsafe { extended::begin(self.raw()) }
    }

    /// Takes the next completion of the series that has begun.
    pub fn next_of_series(&mut self) -> io::Result<Option<Wc>> {
        self.needs_extended()?;
        // SAFETY: the handle is live, and was created for this interface; programs begin first.
        unsafe { extended::next(self.raw()) }
    }

    /// Ends the series that has begun.
    pub fn end_series(&mut self) -> io::Result<()> {
        self.needs_extended()?;
        // SAFETY: the handle is live, and was created for this interface; programs begin first.
        unsafe { extended::end(self.raw()) }
    }

    fn needs_extended(&self) -> io::Result<()> {
        if self.extended { Ok(()) } else { Err(missing()) }
    }

    /// Returns the identity that events of this CQ contain.
    pub fn identity(&self) -> usize {
        self.raw() as usize
    }

    /// Returns the number of entries.
    pub fn capacity(&self) -> u32 {
        // SAFETY: the handle is live.
        u32::try_from(unsafe { (*self.raw()).cqe }).unwrap_or(0)
    }

    /// Takes completions, at most `limit` and at most [`BATCH`].
    pub fn poll(&self, limit: usize) -> io::Result<Vec<Wc>> {
        if self.extended {
            // SAFETY: the handle is live, and was created for this interface.
            return unsafe { extended::poll(self.raw(), limit.min(BATCH)) };
        }
        // SAFETY: all-zero is valid for these structs of integers.
        let mut raw: [ffi::ibv_wc; BATCH] = unsafe { mem::zeroed() };
        let limit = limit.min(BATCH) as i32;
        // SAFETY: the handle is live and the array has at least `limit` entries.
        let count = unsafe { ffi::poll_cq(self.raw(), limit, raw.as_mut_ptr()) };
        let count = usize::try_from(count)
            .map_err(|_| io::Error::other(format!("ibv_poll_cq returned {count}")))?;
        Ok(raw.iter().take(count).map(completion).collect())
    }

    /// Arms the CQ for the next completion, or the next solicited one.
    pub fn arm(&self, solicited_only: bool) -> io::Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { ffi::req_notify_cq(self.raw(), i32::from(solicited_only)) })
    }

    /// Sets the moderation of events: a number of completions, and a time in µs.
    pub fn moderate(&self, cq_count: u16, cq_period: u16) -> io::Result<()> {
        let mut attr = ffi::ibv_modify_cq_attr {
            attr_mask: ffi::IBV_CQ_ATTR_MODERATE,
            moderate: ffi::ibv_moderate_cq { cq_count, cq_period },
        };
        // SAFETY: the handle is live, and so is its context; the attributes outlive the call.
        check(unsafe {
            let modify = ffi::extended((*self.raw()).context).modify_cq.ok_or_else(missing)?;
            modify(self.raw(), &raw mut attr)
        })
    }

    /// Resizes the CQ to at least `cqe` entries.
    pub fn resize(&self, cqe: i32) -> io::Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { ffi::ibv_resize_cq(self.raw(), cqe) })
    }
}

fn completion(raw: &ffi::ibv_wc) -> Wc {
    let success = raw.status == ffi::IBV_WC_SUCCESS;
    let has_imm = success && raw.wc_flags & ffi::IBV_WC_WITH_IMM != 0;
    Wc {
        wr_id: raw.wr_id,
        status: raw.status,
        // If a work request has failed, only wr_id, status, qp_num and vendor_err are defined.
        opcode: if success { raw.opcode } else { 0 },
        vendor_err: raw.vendor_err,
        byte_len: if success { raw.byte_len } else { 0 },
        // SAFETY: every bit pattern is valid for either member of the union.
        imm: has_imm.then_some(unsafe { raw.__bindgen_anon_1.imm_data }),
        invalidated: success && raw.wc_flags & ffi::IBV_WC_WITH_INV != 0,
        // SAFETY: every bit pattern is valid for either member of the union.
        key: if success { unsafe { raw.__bindgen_anon_1.invalidated_rkey } } else { 0 },
        qpn: raw.qp_num,
        src_qpn: if success { raw.src_qp } else { 0 },
        header: success && raw.wc_flags & ffi::IBV_WC_GRH != 0,
        checksums: success && raw.wc_flags & ffi::IBV_WC_IP_CSUM_OK != 0,
        timestamp: 0,
        wallclock: 0,
    }
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The extended interface of completion queues: it returns completions one by one, and each field
//! by a separate call.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_queues::clock::Sample;
use vrnic_queues::completion::Completion;
use vrnic_queues::lock::Sharing;

use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::cq::{self, CqExtras, CqInit, poll};
use crate::ffi::pointer;

/// The fields that a program may request, in addition to the fields that every queue has.
const FIELDS: u32 = c::IBV_WC_EX_WITH_BYTE_LEN
    | c::IBV_WC_EX_WITH_IMM
    | c::IBV_WC_EX_WITH_QP_NUM
    | c::IBV_WC_EX_WITH_SRC_QP
    | c::IBV_WC_EX_WITH_SLID
    | c::IBV_WC_EX_WITH_SL
    | c::IBV_WC_EX_WITH_DLID_PATH_BITS
    | c::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | c::IBV_WC_EX_WITH_CVLAN
    | c::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
/// Attributes that may be given.
const ATTRIBUTES: u32 = c::IBV_CQ_INIT_ATTR_MASK_FLAGS | c::IBV_CQ_INIT_ATTR_MASK_PD;

/// Implements `create_cq_ex`.
pub(in crate::ffi) unsafe extern "C" fn create(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_cq_init_attr_ex,
) -> *mut c::ibv_cq_ex {
    // SAFETY: the arguments are libibverbs' own.
    pointer(unsafe { try_create(context, &mut *attr, CqSettings::default()) })
}

/// The known flags.
const FLAGS: u32 = c::IBV_CREATE_CQ_ATTR_SINGLE_THREADED | c::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

/// Settings that verbs do not have.
#[derive(Clone, Copy, Default)]
pub(in crate::ffi) struct CqSettings {
    /// Lets the driver choose the completion vector.
    pub(in crate::ffi) any_vector: bool,
    /// For a holding CQ, the number of free entries at which few are left.
    pub(in crate::ffi) holding: Option<u32>,
}

/// Creates a completion queue.
///
/// # Safety
/// The objects named must be live.
pub(in crate::ffi) unsafe fn try_create(
    context: *mut c::ibv_context,
    attr: &mut c::ibv_cq_init_attr_ex,
    CqSettings { any_vector, holding }: CqSettings,
) -> Result<*mut c::ibv_cq_ex, Errno> {
    let fields = u32::try_from(attr.wc_flags).map_err(|_| Errno::OPNOTSUPP)?;
    let flags = match attr.comp_mask & c::IBV_CQ_INIT_ATTR_MASK_FLAGS {
        0 => 0,
        _ => attr.flags,
    };
    let known = fields & !FIELDS == 0 && attr.comp_mask & !ATTRIBUTES == 0 && flags & !FLAGS == 0;
    if !known {
        return Err(Errno::OPNOTSUPP);
    }
    let sharing = if flags & c::IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        // SAFETY: this is what the flag promises.
        unsafe { Sharing::one_thread() }
    } else {
        Sharing::ANY
    };
    let extras = CqExtras { sharing, any_vector, holding };
    // SAFETY: the caller passes a live context and attributes whose objects are live.
    let cq = unsafe { cq::create_from(context, &CqInit::Extended(attr), extras) }?;
    let cq: *mut c::ibv_cq_ex = cq.cast();
    // SAFETY: just made, and no other code knows it.
    set_readers(unsafe { &mut *cq }, fields);
    Ok(cq)
}

/// Sets the functions for the fields that the program asked for. The others stay absent, as with
/// other devices.
fn set_readers(cq: &mut c::ibv_cq_ex, fields: u32) {
    /// Sets functions for the fields asked for.
    macro_rules! set {
        ($($field:ident: $reader:ident = $function:ident,)*) => {
            $(if fields & c::$field != 0 {
                cq.$reader = Some($function);
            })*
        };
    }
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    // Ethernet has no LIDs and path bits.
    set! {
        IBV_WC_EX_WITH_BYTE_LEN: read_byte_len = read_byte_len,
        IBV_WC_EX_WITH_IMM: read_imm_data = read_imm_data,
        IBV_WC_EX_WITH_QP_NUM: read_qp_num = read_qp_num,
        IBV_WC_EX_WITH_SRC_QP: read_src_qp = read_src_qp,
        IBV_WC_EX_WITH_SLID: read_slid = read_no_word,
        IBV_WC_EX_WITH_SL: read_sl = read_sl,
        IBV_WC_EX_WITH_DLID_PATH_BITS: read_dlid_path_bits = read_no_byte,
        IBV_WC_EX_WITH_CVLAN: read_cvlan = read_cvlan,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: read_completion_ts = read_timestamp,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: read_completion_wallclock_ns = read_wallclock,
    }
}

/// Stores a completion's fields for the program, or returns `ENOENT` if there is none.
fn show(cq: *mut c::ibv_cq_ex, completion: Option<&Completion>) -> c_int {
    let Some(completion) = completion else { return Errno::NOENT.raw_os_error() };
    // SAFETY: live by libibverbs' promise, and these fields are of the thread that polls.
    unsafe {
        // CAST: the numbers are libibverbs'; see `poll`.
        (*cq).status = completion.status as u32;
        (*cq).wr_id = completion.wr_id;
    }
    0
}

/// Returns a sample of the clocks.
///
/// # Safety
/// `cq` and its context must be live.
unsafe fn clocks(cq: *mut c::ibv_cq_ex) -> Option<Sample> {
    // SAFETY: the caller passes a live queue of a live context.
    unsafe { Context::of((*cq).context) }.ok()?.clock.sample()
}

unsafe extern "C" fn start_poll(cq: *mut c::ibv_cq_ex, attr: *mut c::ibv_poll_cq_attr) -> c_int {
    // SAFETY: valid by libibverbs' promise.
    let (own, mask) = unsafe { (cq::whole(cq.cast()), (*attr).comp_mask) };
    let Some(own) = own.filter(|_| mask == 0) else { return Errno::INVAL.raw_os_error() };
    if own.queue.is_handed_over() {
        return Errno::PERM.raw_os_error();
    }
    // The sample is taken here, because the queue's lock is held from `start_poll` to `end_poll`.
    // While there is nothing to poll, the adapter is not asked for its clock.
    let clocks = match own.polling.reads_day() {
        true if own.queue.is_idle() => return show(cq, None),
        // SAFETY: live by libibverbs' promise, and the context as long as the queue.
        true => unsafe { clocks(cq) },
        false => None,
    };
    // SAFETY: queues live, at one place, until they are destroyed, which is not between these
    // calls.
    show(cq, unsafe { own.polling.start(&own.queue, clocks) })
}

unsafe extern "C" fn next_poll(cq: *mut c::ibv_cq_ex) -> c_int {
    // SAFETY: live by libibverbs' promise, and `start_poll` comes first.
    show(cq, unsafe { cq::whole(cq.cast()).and_then(|own| own.polling.next()) })
}

unsafe extern "C" fn end_poll(cq: *mut c::ibv_cq_ex) {
    // SAFETY: live by libibverbs' promise, and `start_poll` comes first.
    if let Some(own) = unsafe { cq::whole(cq.cast()) } {
        // SAFETY: `start_poll` comes first, by the promise of libibverbs.
        unsafe { own.polling.end() };
    }
}

/// Reads a field of the current completion; returns the default if there is none.
///
/// # Safety
/// `cq` must be live, and this thread polling it.
unsafe fn current<T: Default>(cq: *mut c::ibv_cq_ex, read: impl FnOnce(&Completion) -> T) -> T {
    // SAFETY: the caller passes a live queue, which this thread polls.
    unsafe { cq::whole(cq.cast()).and_then(|own| own.polling.current()) }
        .map(read)
        .unwrap_or_default()
}

/// Defines functions that read a field.
macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident -> $type:ty, $read:expr;)*) => {
        $($(#[$doc])*
        unsafe extern "C" fn $name(cq: *mut c::ibv_cq_ex) -> $type {
            // SAFETY: programs call this between `start_poll` and `end_poll`.
            unsafe { current(cq, $read) }
        })*
    };
}

readers! {
    read_opcode -> c::ibv_wc_opcode, poll::opcode;
    read_vendor_err -> u32, |completion| completion.vendor_err;
    read_byte_len -> u32, |completion| completion.byte_len;
    /// Returns immediate data, or the key that the message invalidated.
    read_imm_data -> u32, |completion| poll::extra(completion).0;
    read_qp_num -> u32, |completion| completion.qpn;
    read_src_qp -> u32, |completion| completion.src_qpn;
    read_wc_flags -> u32, poll::flags;
    read_no_word -> u32, |_| 0;
    read_no_byte -> u8, |_| 0;
    read_sl -> u8, poll::sl;
    read_cvlan -> u16, |completion| completion.vlan.unwrap_or(0);
    read_timestamp -> u64, |completion| completion.timestamp;
}

unsafe extern "C" fn read_wallclock(cq: *mut c::ibv_cq_ex) -> u64 {
    // SAFETY: programs call this between `start_poll` and `end_poll`, and get no references.
    unsafe { cq::whole(cq.cast()).map_or(0, |own| own.polling.time_of_day(|| clocks(cq))) }
}

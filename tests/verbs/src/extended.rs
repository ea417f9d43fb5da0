//! Creation with the extended interfaces, completions one by one, and the device's clock.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};

use super::context::Context;
use super::{check, ffi, missing, object};
use crate::model::Wc;

/// The fields of completions.
const FIELDS: u32 = ffi::IBV_WC_EX_WITH_BYTE_LEN
    | ffi::IBV_WC_EX_WITH_IMM
    | ffi::IBV_WC_EX_WITH_QP_NUM
    | ffi::IBV_WC_EX_WITH_SRC_QP
    | ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | ffi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
/// Operations that all QPs have.
const SENDS: u32 = ffi::IBV_QP_EX_WITH_SEND | ffi::IBV_QP_EX_WITH_SEND_WITH_IMM;
/// Operations of connections.
const WRITES: u32 = SENDS
    | ffi::IBV_QP_EX_WITH_RDMA_WRITE
    | ffi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | ffi::IBV_QP_EX_WITH_LOCAL_INV
    | ffi::IBV_QP_EX_WITH_BIND_MW;
/// Operations of QPs of raw packets.
const RAW: u32 = ffi::IBV_QP_EX_WITH_SEND | ffi::IBV_QP_EX_WITH_TSO;
/// Operations of XRC initiators.
const INITIATOR: u32 = SENDS
    | ffi::IBV_QP_EX_WITH_RDMA_WRITE
    | ffi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | ffi::IBV_QP_EX_WITH_RDMA_READ
    | ffi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | ffi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
/// Operations of reliable connections.
const ALL: u32 = WRITES
    | ffi::IBV_QP_EX_WITH_RDMA_READ
    | ffi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | ffi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | ffi::IBV_QP_EX_WITH_SEND_WITH_INV;

/// Operations that not all devices with reliable connections have.
const OPTIONAL: u32 = ffi::IBV_QP_EX_WITH_ATOMIC_WRITE | ffi::IBV_QP_EX_WITH_FLUSH;

/// `ibv_create_cq_ex`. The result is also an `ibv_cq`.
pub(crate) fn create_cq(
    context: &Context,
    cqe: i32,
    channel: *mut ffi::ibv_comp_channel,
    vector: i32,
) -> io::Result<NonNull<ffi::ibv_cq>> {
    create_cq_from(context, cq_attr(cqe, channel, vector)?)
}

/// Creates a queue that may overrun, by `ibv_create_cq_ex`.
pub(crate) fn create_overrunning_cq(
    context: &Context,
    cqe: i32,
) -> io::Result<NonNull<ffi::ibv_cq>> {
    let mut attr = cq_attr(cqe, ptr::null_mut(), 0)?;
    attr.comp_mask = ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = ffi::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    create_cq_from(context, attr)
}

/// Creates a queue that one thread uses at a time, by `ibv_create_cq_ex`.
pub(crate) fn create_single_threaded_cq(
    context: &Context,
    cqe: i32,
    channel: *mut ffi::ibv_comp_channel,
) -> io::Result<NonNull<ffi::ibv_cq>> {
    let mut attr = cq_attr(cqe, channel, 0)?;
    attr.comp_mask = ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = ffi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    create_cq_from(context, attr)
}

/// Creates a queue with these attributes, whose channel is live or null.
fn create_cq_from(
    context: &Context,
    mut attr: ffi::ibv_cq_init_attr_ex,
) -> io::Result<NonNull<ffi::ibv_cq>> {
    // SAFETY: the context is open; the channel is live or null.
    let raw = unsafe {
        let create = ffi::extended(context.raw()).create_cq_ex.ok_or_else(missing)?;
        create(context.raw(), &raw mut attr)
    };
    Ok(object(raw)?.cast())
}

/// Returns the attributes of a CQ with all fields.
pub(crate) fn cq_attr(
    cqe: i32,
    channel: *mut ffi::ibv_comp_channel,
    vector: i32,
) -> io::Result<ffi::ibv_cq_init_attr_ex> {
    let invalid = |_| io::Error::from_raw_os_error(rustix::io::Errno::INVAL.raw_os_error());
    // SAFETY: all-zero is valid for this struct of integers and null pointers.
    let mut attr: ffi::ibv_cq_init_attr_ex = unsafe { mem::zeroed() };
    attr.cqe = u32::try_from(cqe).map_err(invalid)?;
    attr.channel = channel;
    attr.comp_vector = u32::try_from(vector).map_err(invalid)?;
    attr.wc_flags = FIELDS.into();
    Ok(attr)
}

/// Takes at most `limit` completions in one series.
///
/// # Safety
/// `cq` must be live, and created by a function of this module.
pub(crate) unsafe fn poll(cq: *mut ffi::ibv_cq, limit: usize) -> io::Result<Vec<Wc>> {
    let mut done = Vec::new();
    if limit == 0 {
        return Ok(done);
    }
    // SAFETY: as the caller promises; the series ends if it has begun.
    unsafe {
        let Some(first) = begin(cq)? else { return Ok(done) };
        done.push(first);
        while done.len() < limit
            && let Some(more) = next(cq)?
        {
            done.push(more);
        }
        end(cq)?;
    }
    Ok(done)
}

/// Begins a series, if there is a completion. Returns the first one.
///
/// # Safety
/// The conditions of [`poll`] apply, and no series may have begun.
pub(crate) unsafe fn begin(cq: *mut ffi::ibv_cq) -> io::Result<Option<Wc>> {
    let cq: *mut ffi::ibv_cq_ex = cq.cast();
    let mut attr = ffi::ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: as the caller promises; a queue that was created with all fields has all functions.
    unsafe {
        let begun = (*cq).start_poll.ok_or_else(missing)?(cq, &raw mut attr);
        found(cq, begun)
    }
}

/// Returns the next completion of a series.
///
/// # Safety
/// The conditions of [`poll`] apply, within a series.
pub(crate) unsafe fn next(cq: *mut ffi::ibv_cq) -> io::Result<Option<Wc>> {
    let cq: *mut ffi::ibv_cq_ex = cq.cast();
    // SAFETY: as the caller promises.
    unsafe {
        let more = (*cq).next_poll.ok_or_else(missing)?(cq);
        found(cq, more)
    }
}

/// Ends a series.
///
/// # Safety
/// The conditions of [`poll`] apply, within a series.
pub(crate) unsafe fn end(cq: *mut ffi::ibv_cq) -> io::Result<()> {
    let cq: *mut ffi::ibv_cq_ex = cq.cast();
    // SAFETY: as the caller promises.
    unsafe { (*cq).end_poll.ok_or_else(missing)?(cq) };
    Ok(())
}

/// Returns the current completion, if the last call has found one.
///
/// # Safety
/// The conditions of [`poll`] apply, within a series if the last call has succeeded.
unsafe fn found(cq: *mut ffi::ibv_cq_ex, result: i32) -> io::Result<Option<Wc>> {
    const NONE: i32 = 2; // ENOENT
    match result {
        // SAFETY: as the caller promises.
        0 => unsafe { completion(cq) }.map(Some),
        NONE => Ok(None),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns the current completion of a series.
///
/// # Safety
/// The conditions of [`poll`] apply, within a series.
unsafe fn completion(cq: *mut ffi::ibv_cq_ex) -> io::Result<Wc> {
    /// Reads a field.
    macro_rules! read {
        ($field:ident) => {
            (*cq).$field.ok_or_else(missing)?(cq)
        };
    }
    // SAFETY: as the caller promises.
    unsafe {
        let success = (*cq).status == ffi::IBV_WC_SUCCESS;
        let flags = read!(read_wc_flags);
        let has = |flag| success && flags & flag != 0;
        let word = read!(read_imm_data);
        Ok(Wc {
            wr_id: (*cq).wr_id,
            status: (*cq).status,
            opcode: if success { read!(read_opcode) } else { 0 },
            vendor_err: read!(read_vendor_err),
            byte_len: if success { read!(read_byte_len) } else { 0 },
            imm: has(ffi::IBV_WC_WITH_IMM).then_some(word),
            invalidated: has(ffi::IBV_WC_WITH_INV),
            key: if success { word } else { 0 },
            qpn: read!(read_qp_num),
            src_qpn: if success { read!(read_src_qp) } else { 0 },
            header: has(ffi::IBV_WC_GRH),
            checksums: has(ffi::IBV_WC_IP_CSUM_OK),
            timestamp: read!(read_completion_ts),
            wallclock: read!(read_completion_wallclock_ns),
        })
    }
}

/// `ibv_create_qp_ex`, for all operations of its type that the device has.
///
/// # Safety
/// PD and CQs must be live.
pub(crate) unsafe fn create_qp(
    pd: *mut ffi::ibv_pd,
    init: &mut ffi::ibv_qp_init_attr,
) -> io::Result<NonNull<ffi::ibv_qp>> {
    let mut attr = qp_attr(pd, init);
    attr.comp_mask |= ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let operations = match init.qp_type {
        ffi::IBV_QPT_UD => SENDS,
        ffi::IBV_QPT_UC => WRITES,
        ffi::IBV_QPT_RAW_PACKET => RAW,
        ffi::IBV_QPT_XRC_SEND => INITIATOR,
        _ => ALL,
    };
    attr.send_ops_flags = operations.into();
    if matches!(init.qp_type, ffi::IBV_QPT_RC | ffi::IBV_QPT_XRC_SEND) {
        attr.send_ops_flags |= u64::from(OPTIONAL);
        // SAFETY: by the caller's promise.
        match unsafe { create_with(attr, init) } {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                attr.send_ops_flags = operations.into();
            }
            result => return result,
        }
    }
    // SAFETY: by the caller's promise.
    unsafe { create_with(attr, init) }
}

/// `ibv_create_qp_ex` for a QP of raw packets whose large TCP segments have headers of up to this
/// number of bytes. Its requests are posted call by call if `by_calls`.
///
/// # Safety
/// PD and CQs must be live.
pub(crate) unsafe fn create_raw_qp(
    pd: *mut ffi::ibv_pd,
    init: &mut ffi::ibv_qp_init_attr,
    max_headers: u16,
    by_calls: bool,
) -> io::Result<NonNull<ffi::ibv_qp>> {
    let mut attr = qp_attr(pd, init);
    attr.comp_mask |= ffi::IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    attr.max_tso_header = max_headers;
    if by_calls {
        attr.comp_mask |= ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = RAW.into();
    }
    // SAFETY: by the caller's promise.
    unsafe { create_with(attr, init) }
}

/// `ibv_create_qp_ex` for a QP whose datagrams to a group do not come back.
///
/// # Safety
/// PD and CQs must be live.
pub(crate) unsafe fn create_unlooped_qp(
    pd: *mut ffi::ibv_pd,
    init: &mut ffi::ibv_qp_init_attr,
) -> io::Result<NonNull<ffi::ibv_qp>> {
    let mut attr = qp_attr(pd, init);
    attr.comp_mask |= ffi::IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.create_flags = ffi::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
    // SAFETY: by the caller's promise.
    unsafe { create_with(attr, init) }
}

/// Returns the extended form of the parameters of a QP.
fn qp_attr(pd: *mut ffi::ibv_pd, init: &ffi::ibv_qp_init_attr) -> ffi::ibv_qp_init_attr_ex {
    // SAFETY: all-zero is valid for this struct of integers and null pointers.
    let mut attr: ffi::ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.srq) = (init.send_cq, init.recv_cq, init.srq);
    (attr.qp_type, attr.sq_sig_all, attr.cap) = (init.qp_type, init.sq_sig_all, init.cap);
    attr.comp_mask = ffi::IBV_QP_INIT_ATTR_PD;
    attr.pd = pd;
    attr
}

/// Creates a QP, and stores the sizes that it gets.
///
/// # Safety
/// The objects that the parameters name must be live.
unsafe fn create_with(
    mut attr: ffi::ibv_qp_init_attr_ex,
    init: &mut ffi::ibv_qp_init_attr,
) -> io::Result<NonNull<ffi::ibv_qp>> {
    // SAFETY: by the caller's promise.
    let raw = unsafe {
        let context = (*attr.pd).context;
        let create = ffi::extended(context).create_qp_ex.ok_or_else(missing)?;
        create(context, &raw mut attr)
    };
    let qp = object(raw)?;
    init.cap = attr.cap;
    Ok(qp)
}

impl Context {
    /// Returns the clock of completions.
    pub fn raw_clock(&self) -> io::Result<u64> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut values: ffi::ibv_values_ex = unsafe { mem::zeroed() };
        values.comp_mask = ffi::IBV_VALUES_MASK_RAW_CLOCK;
        // SAFETY: the context is open, and the struct is the one that the call fills.
        check(unsafe {
            let query = ffi::extended(self.raw()).query_rt_values.ok_or_else(missing)?;
            query(self.raw(), &raw mut values)
        })?;
        let (sec, nsec) = (values.raw_clock.tv_sec, values.raw_clock.tv_nsec);
        let total = sec.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(nsec));
        total.and_then(|ns| u64::try_from(ns).ok()).ok_or_else(|| io::Error::other("no clock"))
    }
}

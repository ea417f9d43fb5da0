//! The extended interfaces: completions one by one, requests built call by call, the device's
//! clock.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};

use super::address::Ah;
use super::context::Context;
use super::qp::Qp;
use super::wr::{Refused, segments};
use super::{check, ffi, missing, object};
use crate::model::{Op, SendWr, Wc, flags};

/// Fields that completions are asked for.
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

/// `ibv_create_cq_ex`; also an `ibv_cq`.
pub(crate) fn create_cq(
    context: &Context,
    cqe: i32,
    channel: *mut ffi::ibv_comp_channel,
    vector: i32,
) -> io::Result<NonNull<ffi::ibv_cq>> {
    let mut attr = cq_attr(cqe, channel, vector)?;
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

/// Takes at most `most` completions in one series.
///
/// # Safety
/// `cq` must be live, and made by [`create_cq`].
pub(crate) unsafe fn poll(cq: *mut ffi::ibv_cq, most: usize) -> io::Result<Vec<Wc>> {
    const NONE: i32 = 2; // ENOENT
    let cq: *mut ffi::ibv_cq_ex = cq.cast();
    let mut attr = ffi::ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: by the caller's promise; the functions are those of a queue that was asked for all
    // fields.
    unsafe {
        let start = (*cq).start_poll.ok_or_else(missing)?;
        let next = (*cq).next_poll.ok_or_else(missing)?;
        let end = (*cq).end_poll.ok_or_else(missing)?;
        if most == 0 {
            return Ok(Vec::new());
        }
        match start(cq, &raw mut attr) {
            0 => {}
            NONE => return Ok(Vec::new()),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let mut done = Vec::new();
        loop {
            done.push(completion(cq)?);
            if done.len() == most || next(cq) != 0 {
                break;
            }
        }
        end(cq);
        Ok(done)
    }
}

/// The completion that a series is at.
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
            timestamp: read!(read_completion_ts),
            wallclock: read!(read_completion_wallclock_ns),
        })
    }
}

/// `ibv_create_qp_ex`, for all operations of its type.
///
/// # Safety
/// PD and CQs must be live.
pub(crate) unsafe fn create_qp(
    pd: *mut ffi::ibv_pd,
    init: &mut ffi::ibv_qp_init_attr,
) -> io::Result<NonNull<ffi::ibv_qp>> {
    // SAFETY: all-zero is valid for this struct of integers and null pointers.
    let mut attr: ffi::ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.srq) = (init.send_cq, init.recv_cq, init.srq);
    (attr.qp_type, attr.sq_sig_all, attr.cap) = (init.qp_type, init.sq_sig_all, init.cap);
    attr.comp_mask = ffi::IBV_QP_INIT_ATTR_PD | ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd;
    let operations = match init.qp_type {
        ffi::IBV_QPT_UD => SENDS,
        ffi::IBV_QPT_UC => WRITES,
        ffi::IBV_QPT_XRC_SEND => INITIATOR,
        _ => ALL,
    };
    attr.send_ops_flags = operations.into();
    // SAFETY: by the caller's promise.
    let raw = unsafe {
        let create = ffi::extended((*pd).context).create_qp_ex.ok_or_else(missing)?;
        create((*pd).context, &raw mut attr)
    };
    let qp = object(raw)?;
    init.cap = attr.cap;
    Ok(qp)
}

impl Qp {
    /// Builds requests and posts them together, or drops them at the end if `abort` says so. On an
    /// error none is posted.
    pub fn post_together(&self, requests: &[SendWr], abort: bool) -> io::Result<()> {
        self.build_together(requests, &[], abort)
    }

    /// Builds requests; `paths` are the address handles of datagrams, as far as they have one.
    fn build_together(
        &self,
        requests: &[SendWr],
        paths: &[Option<&Ah>],
        abort: bool,
    ) -> io::Result<()> {
        let paths = paths.iter().copied().chain(std::iter::repeat(None));
        // SAFETY: the handle is live.
        let qp = object(unsafe { ffi::ibv_qp_to_qp_ex(self.raw()) })?.as_ptr();
        // SAFETY: the handle is live, and no other thread uses it; what the requests name outlives
        // the calls.
        unsafe {
            (*qp).wr_start.ok_or_else(missing)?(qp);
            let built = requests.iter().zip(paths).try_for_each(|(wr, path)| build(qp, wr, path));
            if abort || built.is_err() {
                (*qp).wr_abort.ok_or_else(missing)?(qp);
                return built;
            }
            check((*qp).wr_complete.ok_or_else(missing)?(qp))
        }
    }

    /// Posts as `ibv_post_send` does, with the newer interface: requests before a refused one are
    /// posted.
    pub(crate) fn build_and_post(
        &self,
        requests: &[SendWr],
        paths: &[Option<&Ah>],
    ) -> Result<(), Refused> {
        if self.build_together(requests, paths, false).is_ok() {
            return Ok(());
        }
        for (posted, request) in requests.iter().enumerate() {
            let path = paths.get(posted).copied().flatten();
            self.build_together(std::slice::from_ref(request), &[path], false)
                .map_err(|error| Refused { posted, error })?;
        }
        Ok(())
    }
}

/// Builds one request.
///
/// # Safety
/// `qp` must be live, after `wr_start`.
unsafe fn build(qp: *mut ffi::ibv_qp_ex, request: &SendWr, path: Option<&Ah>) -> io::Result<()> {
    let SendWr { rkey, raddr, imm, compare_add, .. } = *request;
    // SAFETY: as the caller promises.
    unsafe {
        (*qp).wr_id = request.wr_id;
        (*qp).wr_flags = request.flags & !flags::INLINE;
        match request.op {
            Op::Write => (*qp).wr_rdma_write.ok_or_else(missing)?(qp, rkey, raddr),
            Op::WriteImm => (*qp).wr_rdma_write_imm.ok_or_else(missing)?(qp, rkey, raddr, imm),
            Op::Send => (*qp).wr_send.ok_or_else(missing)?(qp),
            Op::SendImm => (*qp).wr_send_imm.ok_or_else(missing)?(qp, imm),
            Op::SendInv => (*qp).wr_send_inv.ok_or_else(missing)?(qp, rkey),
            Op::Read => (*qp).wr_rdma_read.ok_or_else(missing)?(qp, rkey, raddr),
            Op::CmpSwp => {
                let call = (*qp).wr_atomic_cmp_swp.ok_or_else(missing)?;
                call(qp, rkey, raddr, compare_add, request.swap);
            }
            Op::FetchAdd => {
                (*qp).wr_atomic_fetch_add.ok_or_else(missing)?(qp, rkey, raddr, compare_add);
            }
            Op::LocalInv => {
                (*qp).wr_local_inv.ok_or_else(missing)?(qp, rkey);
                return Ok(());
            }
            Op::Tso => return Err(missing()),
        }
        // The order of these two is free; both are used.
        if request.wr_id.is_multiple_of(2) {
            set_destination(qp, request, path)?;
            set_data(qp, request)
        } else {
            set_data(qp, request)?;
            set_destination(qp, request, path)
        }
    }
}

/// Says whom the request that was begun is for, if it is one of those that do.
///
/// # Safety
/// The conditions of [`build`] apply.
unsafe fn set_destination(
    qp: *mut ffi::ibv_qp_ex,
    request: &SendWr,
    path: Option<&Ah>,
) -> io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe {
        if let (Some(to), Some(path)) = (&request.to, path) {
            (*qp).wr_set_ud_addr.ok_or_else(missing)?(qp, path.raw(), to.qpn, to.qkey);
        }
        if let Some(number) = request.srq {
            (*qp).wr_set_xrc_srqn.ok_or_else(missing)?(qp, number);
        }
    }
    Ok(())
}

/// Gives the request that was begun its data, by the function for so many pieces.
///
/// # Safety
/// The conditions of [`build`] apply.
unsafe fn set_data(qp: *mut ffi::ibv_qp_ex, request: &SendWr) -> io::Result<()> {
    let sges = segments(&request.sges);
    // SAFETY: as the caller promises; the pieces outlive the calls.
    unsafe {
        if request.flags & flags::INLINE == 0 {
            match sges.as_slice() {
                [one] => (*qp).wr_set_sge.ok_or_else(missing)?(qp, one.lkey, one.addr, one.length),
                many => {
                    (*qp).wr_set_sge_list.ok_or_else(missing)?(qp, many.len(), many.as_ptr());
                }
            }
            return Ok(());
        }
        let address = |sge: &ffi::ibv_sge| ptr::with_exposed_provenance_mut(sge.addr as usize);
        match sges.as_slice() {
            [one] => {
                let call = (*qp).wr_set_inline_data.ok_or_else(missing)?;
                call(qp, address(one), one.length as usize);
            }
            many => {
                let buffers: Vec<_> = many
                    .iter()
                    .map(|sge| ffi::ibv_data_buf {
                        addr: address(sge),
                        length: sge.length as usize,
                    })
                    .collect();
                let call = (*qp).wr_set_inline_data_list.ok_or_else(missing)?;
                call(qp, buffers.len(), buffers.as_ptr());
            }
        }
    }
    Ok(())
}

impl Context {
    /// The clock of completions.
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

//! Queue pairs.

use std::io;
use std::mem;
use std::ptr::NonNull;

use super::context::PORT;
use super::cq::Cq;
#[cfg(feature = "vrnic")]
use super::direct::{self, QpExtras};
use super::memory::Pd;
use super::srq::Srq;
use super::{check, extended, ffi, object};
use crate::model::{QpAttr, QpCap};

/// The attribute bits that verbs defined before extensions began; drivers refuse others.
const ALL: i32 = (1 << 21) - 1;

/// A queue pair.
pub struct Qp {
    raw: NonNull<ffi::ibv_qp>,
    /// True if it is posted to by the newer interface.
    pub(crate) extended: bool,
}

/// Parameters of a QP.
pub enum Kind {
    /// By `ibv_create_qp`.
    Plain,
    /// By `ibv_create_qp_ex`, for the newer interface.
    Extended,
    /// By a direct verb.
    #[cfg(feature = "vrnic")]
    Direct(QpExtras),
}

impl Qp {
    /// Creates one. Also gives the sizes granted.
    pub fn new(
        pd: &Pd,
        send: &Cq,
        recv: &Cq,
        qp_type: u32,
        cap: QpCap,
        signal_all: bool,
        (srq, kind): (Option<&Srq>, Kind),
    ) -> io::Result<(Self, QpCap)> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut init: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        init.send_cq = send.raw();
        init.recv_cq = recv.raw();
        init.srq = srq.map_or(std::ptr::null_mut(), Srq::raw);
        init.qp_type = qp_type;
        init.sq_sig_all = i32::from(signal_all);
        init.cap = ffi::ibv_qp_cap {
            max_send_wr: cap.send_wr,
            max_recv_wr: cap.recv_wr,
            max_send_sge: cap.send_sge,
            max_recv_sge: cap.recv_sge,
            max_inline_data: cap.inline,
        };
        let raw = match kind {
            // SAFETY: PD and CQs are live, and `init` is complete.
            Kind::Plain => object(unsafe { ffi::ibv_create_qp(pd.raw(), &raw mut init) })?,
            // SAFETY: as above.
            Kind::Extended => unsafe { extended::create_qp(pd.raw(), &mut init) }?,
            // SAFETY: as above.
            #[cfg(feature = "vrnic")]
            Kind::Direct(extras) => unsafe { direct::create_qp(pd.raw(), &mut init, &extras) }?,
        };
        let extended = matches!(kind, Kind::Extended);
        Ok((Self { raw, extended }, granted(&init.cap)))
    }

    /// An XRC target. Nothing is posted to it.
    pub(crate) fn of_target(raw: NonNull<ffi::ibv_qp>) -> Self {
        Self { raw, extended: false }
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_qp {
        self.raw.as_ptr()
    }

    /// Returns the name that events have for this QP.
    pub fn identity(&self) -> usize {
        self.raw.as_ptr() as usize
    }

    /// The QP number.
    pub fn number(&self) -> u32 {
        // SAFETY: the handle is live, and the number is constant.
        unsafe { (*self.raw()).qp_num }
    }

    /// Sets the attributes that `mask` names.
    pub fn modify(&self, attr: &QpAttr, mask: u32) -> io::Result<()> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut raw: ffi::ibv_qp_attr = unsafe { mem::zeroed() };
        raw.qp_state = attr.state;
        raw.cur_qp_state = attr.cur_state;
        raw.qkey = attr.qkey;
        raw.path_mig_state = attr.path_mig_state;
        raw.qp_access_flags = attr.access;
        raw.pkey_index = attr.pkey_index;
        raw.port_num = attr.port;
        raw.path_mtu = attr.path_mtu;
        raw.dest_qp_num = attr.dest_qpn;
        raw.rq_psn = attr.rq_psn;
        raw.sq_psn = attr.sq_psn;
        raw.max_rd_atomic = attr.max_rd_atomic;
        raw.max_dest_rd_atomic = attr.max_dest_rd_atomic;
        raw.min_rnr_timer = attr.min_rnr_timer;
        raw.timeout = attr.timeout;
        raw.retry_cnt = attr.retry_cnt;
        raw.rnr_retry = attr.rnr_retry;
        raw.en_sqd_async_notify = attr.en_sqd_async_notify;
        raw.ah_attr.is_global = 1;
        raw.ah_attr.port_num = PORT;
        raw.ah_attr.grh.dgid = ffi::ibv_gid { raw: attr.dgid };
        raw.ah_attr.grh.sgid_index = attr.sgid_index;
        raw.ah_attr.grh.hop_limit = attr.hop_limit;
        // SAFETY: the handle is live and the struct complete.
        check(unsafe { ffi::ibv_modify_qp(self.raw(), &raw mut raw, mask as i32) })
    }

    /// Reads all attributes back.
    pub fn query(&self) -> io::Result<QpAttr> {
        // SAFETY: all-zero is valid for both structs of integers and null pointers.
        let (mut raw, mut init): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) =
            unsafe { mem::zeroed() };
        // SAFETY: the handle is live and the call fills both structs.
        check(unsafe { ffi::ibv_query_qp(self.raw(), &raw mut raw, ALL, &raw mut init) })?;
        Ok(QpAttr {
            state: raw.qp_state,
            cur_state: raw.cur_qp_state,
            qkey: raw.qkey,
            path_mig_state: raw.path_mig_state,
            access: raw.qp_access_flags,
            pkey_index: raw.pkey_index,
            port: raw.port_num,
            path_mtu: raw.path_mtu,
            dest_qpn: raw.dest_qp_num,
            rq_psn: raw.rq_psn,
            sq_psn: raw.sq_psn,
            max_rd_atomic: raw.max_rd_atomic,
            max_dest_rd_atomic: raw.max_dest_rd_atomic,
            min_rnr_timer: raw.min_rnr_timer,
            timeout: raw.timeout,
            retry_cnt: raw.retry_cnt,
            rnr_retry: raw.rnr_retry,
            en_sqd_async_notify: raw.en_sqd_async_notify,
            sq_draining: raw.sq_draining,
            // SAFETY: every bit pattern is a valid raw GID.
            dgid: unsafe { raw.ah_attr.grh.dgid.raw },
            sgid_index: raw.ah_attr.grh.sgid_index,
            hop_limit: raw.ah_attr.grh.hop_limit,
            cap: granted(&init.cap),
        })
    }

    /// Destroys it, or gives it back with the error.
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live; on success no reference to it is left.
        check(unsafe { ffi::ibv_destroy_qp(self.raw()) }).map_err(|e| (self, e))
    }
}

fn granted(cap: &ffi::ibv_qp_cap) -> QpCap {
    QpCap {
        send_wr: cap.max_send_wr,
        recv_wr: cap.max_recv_wr,
        send_sge: cap.max_send_sge,
        recv_sge: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}

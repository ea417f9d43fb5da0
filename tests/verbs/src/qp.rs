//! Queue pairs.

use std::io;
use std::mem;
use std::ptr::NonNull;

use super::context::PORT;
use super::cq::Cq;
use super::memory::Pd;
use super::srq::Srq;
use super::{check, extended, ffi, missing, object};
use crate::model::{QpAttr, QpCap, qp_type};

/// The attribute bits that verbs had before the extensions. Drivers refuse others.
const ALL: i32 = (1 << 21) - 1;

/// A queue pair.
pub struct Qp {
    pub(crate) raw: NonNull<ffi::ibv_qp>,
    /// True if requests are posted with the extended interface.
    pub(crate) extended: bool,
}

/// Parameters of a QP (`struct ibv_qp_init_attr`).
#[derive(Clone, Copy)]
pub struct InitAttr<'a> {
    pub pd: &'a Pd,
    pub send_cq: &'a Cq,
    pub recv_cq: &'a Cq,
    pub srq: Option<&'a Srq>,
    pub qp_type: u32,
    pub cap: QpCap,
    pub signal_all: bool,
}

impl<'a> InitAttr<'a> {
    /// Returns the parameters of an RC QP with one CQ. Only signaled sends complete.
    pub fn new(pd: &'a Pd, cq: &'a Cq, cap: QpCap) -> Self {
        let (srq, signal_all) = (None, false);
        Self { pd, send_cq: cq, recv_cq: cq, srq, qp_type: qp_type::RC, cap, signal_all }
    }

    /// Creates a QP with a call that takes the PD and the struct. The call also writes the granted
    /// sizes into the struct.
    pub(crate) fn create(
        &self,
        call: impl FnOnce(
            *mut ffi::ibv_pd,
            &mut ffi::ibv_qp_init_attr,
        ) -> io::Result<NonNull<ffi::ibv_qp>>,
    ) -> io::Result<(Qp, QpCap)> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut raw: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        (raw.send_cq, raw.recv_cq) = (self.send_cq.raw(), self.recv_cq.raw());
        raw.srq = self.srq.map_or(std::ptr::null_mut(), Srq::raw);
        (raw.qp_type, raw.sq_sig_all) = (self.qp_type, i32::from(self.signal_all));
        raw.cap = ffi::ibv_qp_cap {
            max_send_wr: self.cap.send_wr,
            max_recv_wr: self.cap.recv_wr,
            max_send_sge: self.cap.send_sge,
            max_recv_sge: self.cap.recv_sge,
            max_inline_data: self.cap.inline,
        };
        let qp = call(self.pd.raw(), &mut raw)?;
        Ok((Qp { raw: qp, extended: false }, granted(&raw.cap)))
    }
}

impl Qp {
    /// Creates a QP with `ibv_create_qp`. Also returns the granted sizes.
    pub fn new(init: &InitAttr<'_>) -> io::Result<(Self, QpCap)> {
        // SAFETY: the PD and what the struct names are live, and the struct is complete.
        init.create(|pd, raw| object(unsafe { ffi::ibv_create_qp(pd, raw) }))
    }

    /// Creates a QP with `ibv_create_qp_ex`, to which work requests are posted call by call. Also
    /// returns the granted sizes.
    pub fn extended(init: &InitAttr<'_>) -> io::Result<(Self, QpCap)> {
        // SAFETY: the PD and what the struct names are live.
        let (qp, cap) = init.create(|pd, raw| unsafe { extended::create_qp(pd, raw) })?;
        Ok((Self { extended: true, ..qp }, cap))
    }

    /// Creates a QP whose datagrams to a group do not come back. Also returns the granted sizes.
    pub fn unlooped(init: &InitAttr<'_>) -> io::Result<(Self, QpCap)> {
        // SAFETY: the PD and what the struct names are live.
        init.create(|pd, raw| unsafe { extended::create_unlooped_qp(pd, raw) })
    }

    /// Returns an XRC target, to which nothing can be posted.
    pub(crate) fn of_target(raw: NonNull<ffi::ibv_qp>) -> Self {
        Self { raw, extended: false }
    }

    /// Returns the identity that events of this QP contain.
    pub fn identity(&self) -> usize {
        self.raw() as usize
    }

    /// Returns the QP number.
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

    /// Queries all attributes.
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
}

impl Qp {
    /// Limits the rate at which the send queue begins messages, in kbit/s; 0 is no limit. `burst`
    /// is the longest burst in bytes, if it is limited.
    pub fn limit_rate(&self, kilobits: u32, burst: u32) -> io::Result<()> {
        let mut limit = ffi::ibv_qp_rate_limit_attr {
            rate_limit: kilobits,
            max_burst_sz: burst,
            typical_pkt_sz: 0,
            comp_mask: 0,
        };
        // SAFETY: the handle is live, its context is open, and the struct complete.
        check(unsafe {
            let modify = ffi::extended((*self.raw()).context).modify_qp_rate_limit;
            modify.ok_or_else(missing)?(self.raw(), &raw mut limit)
        })
    }

    /// Queries the attributes that no device on Ethernet without path migration has: the alternate
    /// path, and the attributes of a path that belong to InfiniBand.
    pub fn query_absent(&self) -> io::Result<Vec<u64>> {
        // SAFETY: all-zero is valid for both structs of integers and null pointers.
        let (mut raw, mut init): (ffi::ibv_qp_attr, ffi::ibv_qp_init_attr) =
            unsafe { mem::zeroed() };
        // SAFETY: the handle is live and the call fills both structs.
        check(unsafe { ffi::ibv_query_qp(self.raw(), &raw mut raw, ALL, &raw mut init) })?;
        let (path, other) = (&raw.ah_attr, &raw.alt_ah_attr);
        let mut found: Vec<u64> = vec![
            path.dlid.into(),
            path.src_path_bits.into(),
            path.static_rate.into(),
            raw.alt_pkey_index.into(),
            raw.alt_port_num.into(),
            raw.alt_timeout.into(),
            other.grh.flow_label.into(),
            other.grh.sgid_index.into(),
            other.grh.hop_limit.into(),
            other.grh.traffic_class.into(),
            other.dlid.into(),
            other.sl.into(),
            other.src_path_bits.into(),
            other.static_rate.into(),
            other.is_global.into(),
            other.port_num.into(),
        ];
        // SAFETY: every bit pattern is a valid raw GID.
        found.extend(unsafe { other.grh.dgid.raw }.map(u64::from));
        Ok(found)
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

// SPDX-License-Identifier: GPL-2.0
//! Attributes of queue pairs.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::prelude::*;

use super::ah::{AhAttr, AhValues};
use crate::bindings;

/// The type of a queue pair (`enum ib_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct QpType(pub(super) bindings::ib_qp_type);

impl QpType {
    /// Reliable connection.
    pub(crate) const RC: Self = Self(bindings::ib_qp_type_IB_QPT_RC);
    /// Unreliable connection.
    pub(crate) const UC: Self = Self(bindings::ib_qp_type_IB_QPT_UC);
    /// Unreliable datagram.
    pub(crate) const UD: Self = Self(bindings::ib_qp_type_IB_QPT_UD);
    /// General services: the datagram queue pair of the management agents.
    pub(crate) const GSI: Self = Self(bindings::ib_qp_type_IB_QPT_GSI);

    /// Raw packets: sends are frames, and flows select the frames that it receives.
    pub(crate) const RAW_PACKET: Self = Self(bindings::ib_qp_type_IB_QPT_RAW_PACKET);
    /// A type of the driver's own.
    pub(crate) const DRIVER: Self = Self(bindings::ib_qp_type_IB_QPT_DRIVER);
    /// XRC initiator.
    pub(crate) const XRC_INI: Self = Self(bindings::ib_qp_type_IB_QPT_XRC_INI);
    /// XRC target.
    pub(crate) const XRC_TGT: Self = Self(bindings::ib_qp_type_IB_QPT_XRC_TGT);

    /// Returns the number (`enum ib_qp_type`).
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns whether each send names its own destination.
    pub(crate) fn is_datagram(self) -> bool {
        self == Self::UD || self == Self::GSI
    }
}

/// The state of a queue pair (IBTA volume 1, 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpState {
    Reset = bindings::ib_qp_state_IB_QPS_RESET,
    Init = bindings::ib_qp_state_IB_QPS_INIT,
    ReadyToReceive = bindings::ib_qp_state_IB_QPS_RTR,
    ReadyToSend = bindings::ib_qp_state_IB_QPS_RTS,
    SendQueueDrained = bindings::ib_qp_state_IB_QPS_SQD,
    SendQueueError = bindings::ib_qp_state_IB_QPS_SQE,
    Error = bindings::ib_qp_state_IB_QPS_ERR,
}

impl TryFrom<u32> for QpState {
    type Error = Error;

    fn try_from(raw: u32) -> Result<Self> {
        Ok(match raw {
            bindings::ib_qp_state_IB_QPS_RESET => Self::Reset,
            bindings::ib_qp_state_IB_QPS_INIT => Self::Init,
            bindings::ib_qp_state_IB_QPS_RTR => Self::ReadyToReceive,
            bindings::ib_qp_state_IB_QPS_RTS => Self::ReadyToSend,
            bindings::ib_qp_state_IB_QPS_SQD => Self::SendQueueDrained,
            bindings::ib_qp_state_IB_QPS_SQE => Self::SendQueueError,
            bindings::ib_qp_state_IB_QPS_ERR => Self::Error,
            _ => return Err(EINVAL),
        })
    }
}

/// Names attributes of a queue pair (`enum ib_qp_attr_mask`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpAttrMask(u32);

impl QpAttrMask {
    /// The mask has [`QpAttr::state`].
    pub(crate) const STATE: Self = Self(bindings::ib_qp_attr_mask_IB_QP_STATE);
    /// The mask has [`QpAttr::cur_state`].
    pub(crate) const CUR_STATE: Self = Self(bindings::ib_qp_attr_mask_IB_QP_CUR_STATE);
    /// The mask has [`QpAttr::av`].
    pub(crate) const AV: Self = Self(bindings::ib_qp_attr_mask_IB_QP_AV);
    /// [`QpValues::port`].
    pub(crate) const PORT: Self = Self(bindings::ib_qp_attr_mask_IB_QP_PORT);
    /// [`QpValues::rate_limit`].
    pub(crate) const RATE_LIMIT: Self = Self(bindings::ib_qp_attr_mask_IB_QP_RATE_LIMIT);
    /// [`QpValues::max_rd_atomic`] and [`QpValues::max_dest_rd_atomic`].
    pub(crate) const DEPTHS: Self = Self(
        bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC
            | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC,
    );
    /// The attributes of the specification.
    const STANDARD: u32 = bindings::ib_qp_attr_mask_IB_QP_ATTR_STANDARD_BITS;

    /// Converts the C mask, if it names only attributes of the specification and the rate limit.
    pub(super) fn from_raw(raw: i32) -> Result<Self> {
        // CAST: a bit mask.
        let raw = raw as u32;
        if raw & !(Self::STANDARD | Self::RATE_LIMIT.0) != 0 {
            return Err(EOPNOTSUPP);
        }
        Ok(Self(raw))
    }

    /// Returns the bits of the C mask.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Returns these without `other`.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether none is named.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all of `other` are named.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Returns whether the specification allows the transition with exactly these attributes (IBTA
/// volume 1, 11.2.5.2).
#[must_use]
pub(crate) fn transition_is_ok(from: QpState, to: QpState, kind: QpType, mask: QpAttrMask) -> bool {
    // CAST: the enums' values are those of the C enums.
    // SAFETY: a pure function of numbers.
    unsafe { bindings::ib_modify_qp_is_ok(from as u32, to as u32, kind.0, mask.0) }
}

/// Attributes to set.
///
/// C: `struct ib_qp_attr`. Callers leave fields that they do not name uninitialised
/// (`iwcm_modify_qp_err` in `drivers/infiniband/core/iwcm.c`), so no other field is read.
///
/// # Invariants
///
/// `raw` is a struct that does not change during `'a`, and whose fields that `mask` names are
/// initialised.
pub(crate) struct QpAttr<'a> {
    raw: NonNull<bindings::ib_qp_attr>,
    mask: QpAttrMask,
    _call: PhantomData<&'a bindings::ib_qp_attr>,
}

/// Reads a field of a [`QpAttr`], or returns the default of its type if the mask does not name it.
macro_rules! field {
    ($attr:ident, $name:ident: $field:ident) => {
        if $attr.mask.0 & bindings::$name != 0 {
            // SAFETY: by the type's invariants the struct does not change, and the field is
            // initialised, as the mask names it.
            unsafe { (&raw const (*$attr.raw.as_ptr()).$field).read() }
        } else {
            Default::default()
        }
    };
}

impl<'a> QpAttr<'a> {
    /// # Safety
    ///
    /// `raw` must point to a struct that does not change during `'a`, and whose fields that `mask`
    /// names are initialised.
    pub(super) unsafe fn new(raw: NonNull<bindings::ib_qp_attr>, mask: QpAttrMask) -> Self {
        // INVARIANT: the caller passes a struct that does not change and is initialised so far.
        Self { raw, mask, _call: PhantomData }
    }

    /// Returns the state to go to, which the mask must name.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no state.
    pub(crate) fn state(&self) -> Result<QpState> {
        QpState::try_from(field!(self, ib_qp_attr_mask_IB_QP_STATE: qp_state))
    }

    /// Returns the state that the caller believes the queue pair is in. The mask must name it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no state.
    pub(crate) fn cur_state(&self) -> Result<QpState> {
        QpState::try_from(field!(self, ib_qp_attr_mask_IB_QP_CUR_STATE: cur_qp_state))
    }

    /// Returns the destination, if the mask names it.
    pub(crate) fn av(&self) -> Option<&'a AhAttr> {
        if !self.mask.contains(QpAttrMask::AV) {
            return None;
        }
        // SAFETY: by the type's invariants the struct is alive; only the field's address is made.
        let av = unsafe { &raw const (*self.raw.as_ptr()).ah_attr };
        // SAFETY: by the type's invariants the field is initialised, as the mask names it, and does
        // not change during `'a`.
        Some(unsafe { AhAttr::from_raw(av) })
    }

    /// Returns the numbers among the attributes; those that the mask does not name are zero.
    pub(crate) fn values(&self) -> QpValues {
        let access: i32 = field!(self, ib_qp_attr_mask_IB_QP_ACCESS_FLAGS: qp_access_flags);
        let notify: u8 =
            field!(self, ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify);
        QpValues {
            path_mtu: field!(self, ib_qp_attr_mask_IB_QP_PATH_MTU: path_mtu),
            path_mig_state: field!(self, ib_qp_attr_mask_IB_QP_PATH_MIG_STATE: path_mig_state),
            // CAST: a bit mask.
            access: access as u32,
            qkey: field!(self, ib_qp_attr_mask_IB_QP_QKEY: qkey),
            rq_psn: field!(self, ib_qp_attr_mask_IB_QP_RQ_PSN: rq_psn),
            sq_psn: field!(self, ib_qp_attr_mask_IB_QP_SQ_PSN: sq_psn),
            dest_qpn: field!(self, ib_qp_attr_mask_IB_QP_DEST_QPN: dest_qp_num),
            port: field!(self, ib_qp_attr_mask_IB_QP_PORT: port_num),
            pkey_index: field!(self, ib_qp_attr_mask_IB_QP_PKEY_INDEX: pkey_index),
            en_sqd_async_notify: notify != 0,
            // Only queries have it.
            sq_draining: false,
            max_rd_atomic: field!(self, ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC: max_rd_atomic),
            max_dest_rd_atomic: field!(
                self,
                ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic
            ),
            min_rnr_timer: field!(self, ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER: min_rnr_timer),
            timeout: field!(self, ib_qp_attr_mask_IB_QP_TIMEOUT: timeout),
            retry_cnt: field!(self, ib_qp_attr_mask_IB_QP_RETRY_CNT: retry_cnt),
            rnr_retry: field!(self, ib_qp_attr_mask_IB_QP_RNR_RETRY: rnr_retry),
            rate_limit: field!(self, ib_qp_attr_mask_IB_QP_RATE_LIMIT: rate_limit),
        }
    }
}

/// Attributes that are plain numbers; the fields are those of `struct ib_qp_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpValues {
    /// `enum ib_mtu`.
    pub(crate) path_mtu: u32,
    /// `enum ib_mig_state`.
    pub(crate) path_mig_state: u32,
    /// The rights of the peer (`enum ib_access_flags`).
    pub(crate) access: u32,
    /// Queue key.
    pub(crate) qkey: u32,
    /// First PSN expected.
    pub(crate) rq_psn: u32,
    /// First PSN sent.
    pub(crate) sq_psn: u32,
    /// The peer's queue pair.
    pub(crate) dest_qpn: u32,
    pub(crate) port: u32,
    pub(crate) pkey_index: u16,
    /// Ask for the event that the send queue is drained.
    pub(crate) en_sqd_async_notify: bool,
    /// The send queue is draining.
    pub(crate) sq_draining: bool,
    /// READs and atomics outstanding as requester.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics accepted at a time as responder.
    pub(crate) max_dest_rd_atomic: u8,
    /// RNR timer code.
    pub(crate) min_rnr_timer: u8,
    /// ACK timeout code.
    pub(crate) timeout: u8,
    /// Transport retries.
    pub(crate) retry_cnt: u8,
    /// The number of RNR retries.
    pub(crate) rnr_retry: u8,
    /// Maximum rate of the send queue in kbit/s; 0 is no limit.
    pub(crate) rate_limit: u32,
}

/// Sizes of a queue pair's queues.
///
/// C: `struct ib_qp_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QpCap {
    /// Send work requests outstanding.
    pub(crate) max_send_wr: u32,
    /// Receive work requests outstanding.
    pub(crate) max_recv_wr: u32,
    /// Scatter/gather entries of a send work request.
    pub(crate) max_send_sge: u32,
    /// Scatter/gather entries of a receive work request.
    pub(crate) max_recv_sge: u32,
    /// Bytes of inline data.
    pub(crate) max_inline_data: u32,
}

impl QpCap {
    pub(super) fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }

    pub(super) fn write_to(&self, out: &mut bindings::ib_qp_cap) {
        out.max_send_wr = self.max_send_wr;
        out.max_recv_wr = self.max_recv_wr;
        out.max_send_sge = self.max_send_sge;
        out.max_recv_sge = self.max_recv_sge;
        out.max_inline_data = self.max_inline_data;
    }
}

/// The answer to a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpQuery {
    /// The state it is in.
    pub(crate) state: QpState,
    /// The attributes that are numbers.
    pub(crate) values: QpValues,
    /// The destination of the queue pair.
    pub(crate) av: AhValues,
    /// The sizes of its queues.
    pub(crate) cap: QpCap,
    /// True if all send work requests are signaled.
    pub(crate) sq_sig_all: bool,
}

impl QpQuery {
    /// Fills the core's structs, which start zeroed.
    pub(super) fn write_to(
        &self,
        attr: &mut bindings::ib_qp_attr,
        init: &mut bindings::ib_qp_init_attr,
    ) {
        // CAST: the enums' values are those of the C enums, here and below.
        attr.qp_state = self.state as u32;
        attr.cur_qp_state = self.state as u32;
        let values = &self.values;
        attr.path_mtu = values.path_mtu;
        attr.path_mig_state = values.path_mig_state;
        attr.qp_access_flags = values.access as i32;
        attr.qkey = values.qkey;
        attr.rq_psn = values.rq_psn;
        attr.sq_psn = values.sq_psn;
        attr.dest_qp_num = values.dest_qpn;
        attr.port_num = values.port;
        attr.pkey_index = values.pkey_index;
        attr.en_sqd_async_notify = u8::from(values.en_sqd_async_notify);
        attr.sq_draining = u8::from(values.sq_draining);
        attr.max_rd_atomic = values.max_rd_atomic;
        attr.max_dest_rd_atomic = values.max_dest_rd_atomic;
        attr.min_rnr_timer = values.min_rnr_timer;
        attr.timeout = values.timeout;
        attr.retry_cnt = values.retry_cnt;
        attr.rnr_retry = values.rnr_retry;
        attr.rate_limit = values.rate_limit;
        self.av.write_to(&mut attr.ah_attr);
        self.cap.write_to(&mut attr.cap);
        self.cap.write_to(&mut init.cap);
        init.sq_sig_type = if self.sq_sig_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
    }
}

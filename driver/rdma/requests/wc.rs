// SPDX-License-Identifier: GPL-2.0
//! Completions for kernel clients.

use core::mem::{ManuallyDrop, MaybeUninit};

use crate::bindings;
use crate::rdma::event::QpLink;

/// The status of a completion (IBTA volume 1, 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WcStatus {
    Success = bindings::ib_wc_status_IB_WC_SUCCESS,
    LocalLength = bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
    LocalQpOperation = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
    LocalProtection = bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
    Flushed = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
    WindowBind = bindings::ib_wc_status_IB_WC_MW_BIND_ERR,
    BadResponse = bindings::ib_wc_status_IB_WC_BAD_RESP_ERR,
    LocalAccess = bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR,
    RemoteInvalidRequest = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR,
    RemoteAccess = bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
    RemoteOperation = bindings::ib_wc_status_IB_WC_REM_OP_ERR,
    RetryExceeded = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
    RnrRetryExceeded = bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
    RemoteAborted = bindings::ib_wc_status_IB_WC_REM_ABORT_ERR,
    Fatal = bindings::ib_wc_status_IB_WC_FATAL_ERR,
    General = bindings::ib_wc_status_IB_WC_GENERAL_ERR,
}

/// The operation that completed.
///
/// C: `enum ib_wc_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WcOpcode(u32);

impl WcOpcode {
    pub(crate) const SEND: Self = Self(bindings::ib_wc_opcode_IB_WC_SEND);
    /// A fast registration.
    pub(crate) const REG_MR: Self = Self(bindings::ib_wc_opcode_IB_WC_REG_MR);
    /// A receive.
    pub(crate) const RECV: Self = Self(bindings::ib_wc_opcode_IB_WC_RECV);

    /// Returns the operation with this number: of `enum ib_uverbs_wc_opcode`, of a receive, or one
    /// that the driver gives to requests of its own.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// A completion.
///
/// C: `struct ib_wc`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wc {
    /// From the work request.
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
    /// The operation.
    pub(crate) opcode: WcOpcode,
    /// The vendor error of the device.
    pub(crate) vendor_err: u32,
    /// Bytes received, read or swapped.
    pub(crate) byte_len: u32,
    /// Immediate data as it stood in the packet.
    pub(crate) imm: Option<[u8; 4]>,
    /// The key that the message has invalidated.
    pub(crate) invalidated: Option<u32>,
    /// The driver's own flags and word.
    pub(crate) own: Option<OwnWc>,
    /// The port of the queue pair.
    pub(crate) port: u32,
    /// The sender's queue pair.
    pub(crate) src_qp: u32,
    /// Of a datagram: where it came from; its network header stands at the start of the receive.
    pub(crate) origin: Option<WcOrigin>,
}

/// The flags and the word of a completion that verbs have no place for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnWc {
    /// Bits of `wc_flags` that the core does not use.
    pub(crate) flags: u32,
    /// A word, in `ex.invalidate_rkey`.
    pub(crate) word: u32,
}

/// The source of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WcOrigin {
    /// True if the network header is IPv4.
    pub(crate) ipv4: bool,
    /// MAC of the sender.
    pub(crate) smac: [u8; 6],
    /// VLAN id, if there is one.
    pub(crate) vlan: Option<u16>,
}

impl WcOrigin {
    /// Fills the core's struct, which starts zeroed.
    fn write_to(&self, out: &mut bindings::ib_wc) {
        let mut flags = bindings::ib_wc_flags_IB_WC_GRH
            | bindings::ib_wc_flags_IB_WC_WITH_SMAC
            | bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE;
        let network = if self.ipv4 {
            bindings::rdma_network_type_RDMA_NETWORK_IPV4
        } else {
            bindings::rdma_network_type_RDMA_NETWORK_IPV6
        };
        // CAST: a small enum, and flags of one, here and below.
        out.network_hdr_type = network as u8;
        out.smac = self.smac;
        if let Some(vlan) = self.vlan {
            out.vlan_id = vlan;
            flags |= bindings::ib_wc_flags_IB_WC_WITH_VLAN;
        }
        out.wc_flags |= flags as i32;
    }
}

impl Wc {
    /// Creates a request that was not carried out because its queue had failed.
    pub(crate) fn flushed(wr_id: u64, opcode: WcOpcode, port: u32) -> Self {
        let status = WcStatus::Flushed;
        Self {
            wr_id,
            status,
            opcode,
            vendor_err: 0,
            byte_len: 0,
            imm: None,
            invalidated: None,
            own: None,
            port,
            src_qp: 0,
            origin: None,
        }
    }
}

/// The array that a poll fills.
pub(crate) struct Completions<'a> {
    slots: &'a mut [MaybeUninit<bindings::ib_wc>],
    filled: usize,
}

impl<'a> Completions<'a> {
    pub(in crate::rdma) fn new(slots: &'a mut [MaybeUninit<bindings::ib_wc>]) -> Self {
        Self { slots, filled: 0 }
    }

    /// Returns whether no more fit.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.slots.len()
    }

    /// Returns the number of completions that were pushed.
    pub(in crate::rdma) fn len(&self) -> usize {
        self.filled
    }

    /// Adds a completion of the queue pair that `qp` names; one of a queue pair that has gone is
    /// dropped. The array must not be full.
    pub(crate) fn push(&mut self, qp: &QpLink, wc: &Wc) {
        let Some(slot) = self.slots.get_mut(self.filled) else { return };
        let Some(qp) = qp.with(|qp| qp.as_ptr()) else { return };
        // SAFETY: a plain C struct, for which zero is a valid value.
        let mut raw: bindings::ib_wc = unsafe { core::mem::zeroed() };
        raw.__bindgen_anon_1.wr_id = ManuallyDrop::new(wc.wr_id);
        // CAST: the enum's values are those of the C enum.
        raw.status = wc.status as u32;
        raw.opcode = wc.opcode.0;
        raw.vendor_err = wc.vendor_err;
        raw.byte_len = wc.byte_len;
        raw.qp = qp;
        if let Some(imm) = wc.imm {
            // The field is big-endian: these bytes in memory.
            raw.ex.imm_data = ManuallyDrop::new(u32::from_ne_bytes(imm));
            // CAST: a flag of a small enum.
            raw.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM as i32;
        }
        if let Some(origin) = &wc.origin {
            origin.write_to(&mut raw);
        }
        if let Some(key) = wc.invalidated {
            raw.ex.invalidate_rkey = ManuallyDrop::new(key);
            raw.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;
        }
        if let Some(own) = wc.own {
            raw.ex.invalidate_rkey = ManuallyDrop::new(own.word);
            // CAST: bits of a mask.
            raw.wc_flags |= own.flags as i32;
        }
        raw.src_qp = wc.src_qp;
        raw.port_num = wc.port;
        slot.write(raw);
        self.filled += 1;
    }
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The completion queue: 64-byte entries that the device writes. An entry is valid if its stamp
//! matches.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Key, Qpn, Srqn};

/// Length of a [`Cqe`] in bytes.
pub const CQE_LEN: u32 = 64;
/// Largest log2 of the entries of a CQ.
pub const LOG_CQES_MAX: u32 = 20;

wire_enum! {
    /// The type of the work request of a completion.
    pub enum Opcode: u8 {
        /// A SEND, with or without immediate data or invalidation.
        Send = 1,
        /// An RDMA WRITE, with or without immediate data.
        Write = 3,
        /// An RDMA READ.
        Read = 5,
        /// An atomic compare and swap.
        CmpSwp = 6,
        /// An atomic fetch and add.
        FetchAdd = 7,
        /// A LOCAL_INV.
        LocalInv = 9,
        /// A REG_MR.
        RegMr = 10,
        /// A BIND_MW.
        BindMw = 11,
        /// A SEND_CMD. [`Cqe::key`] is the key that the command carried.
        SendCmd = 12,
        /// A TRANSFER, which moves bytes through address ranges.
        Transfer = 14,
        /// A SEGMENT.
        Segment = 16,
        /// A FLUSH.
        Flush = 17,
        /// An ATOMIC_WRITE.
        AtomicWrite = 18,
        /// A receive of a SEND. With [`Flags::INVALIDATED`], the SEND invalidated [`Cqe::key`].
        Recv = 0x80,
        /// A receive that an RDMA WRITE with immediate data consumed.
        RecvWriteImm = 0x81,
    }
}

impl Opcode {
    /// Returns whether the work request was in a receive queue.
    #[must_use]
    pub const fn is_recv(self) -> bool {
        self as u8 & 0x80 != 0
    }

    /// Returns the number in verbs (`enum ib_uverbs_wc_opcode`, or `enum ib_wc_opcode` for
    /// receives). Returns `None` for a REG_MR and a TRANSFER, whose numbers each kernel version
    /// chooses for kernel clients.
    #[must_use]
    pub const fn wc_opcode(self) -> Option<u32> {
        Some(match self {
            Self::Send | Self::SendCmd => 0,
            Self::Write => 1,
            Self::Read => 2,
            Self::CmpSwp => 3,
            Self::FetchAdd => 4,
            Self::BindMw => 5,
            Self::LocalInv => 6,
            Self::Segment => 7,
            Self::Flush => 8,
            Self::AtomicWrite => 9,
            Self::RegMr | Self::Transfer => return None,
            Self::Recv => 0x80,
            Self::RecvWriteImm => 0x81,
        })
    }
}

wire_enum! {
    /// Completion statuses, numbered as `enum ibv_wc_status` and `enum ib_wc_status`
    /// (IBTA volume 1, 11.6.2, "Completion Return Status").
    #[allow(missing_docs)]
    pub enum Status: u8 {
        Success = 0,
        LocLenErr = 1,
        LocQpOpErr = 2,
        LocProtErr = 4,
        WrFlushErr = 5,
        /// "Memory management operation error": a LOCAL_INV, REG_MR, BIND_MW, SEND_CMD, TRANSFER
        /// or AWAIT was refused.
        MwBindErr = 6,
        BadRespErr = 7,
        LocAccessErr = 8,
        RemInvReqErr = 9,
        RemAccessErr = 10,
        RemOpErr = 11,
        RetryExcErr = 12,
        RnrRetryExcErr = 13,
        RemAbortErr = 16,
        FatalErr = 19,
        GeneralErr = 21,
    }
}

bitflags! {
    /// Bits of [`Cqe::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u16 {
        /// [`Cqe::imm`] holds immediate data.
        const IMM = 1 << 0;
        /// The sender asked for a solicited event.
        const SOLICITED = 1 << 1;
        /// The receive begins with a network header ([`crate::qp::GRH_LEN`]), and [`Cqe::smac`]
        /// identifies the sender.
        const GRH = 1 << 2;
        /// The network header is an IPv4 header; otherwise it is an IPv6 header.
        const IPV4 = 1 << 3;
        /// [`Cqe::vlan`] contains the VLAN.
        const VLAN = 1 << 4;
        /// The message has invalidated [`Cqe::key`], because it was a SEND_INV or the response to a
        /// command.
        const INVALIDATED = 1 << 5;
        /// The checksums of IPv4 and of TCP or UDP in a received raw packet are right
        /// (`IBV_WC_IP_CSUM_OK`).
        const IP_CSUM_OK = 1 << 6;
        /// The PDU belongs to the command whose Command ID is in [`Cqe::imm`], little-endian, and
        /// the device has executed it; see docs/adapter.md, "iSCSI".
        const COMMAND = 1 << 7;
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cqe {
    /// The `wr_id` of the WQE.
    pub wr_id: U64,
    /// The QP whose work request completed.
    pub qpn: Qpn,
    /// Number of bytes received (including the network header of a datagram), read, or swapped (8);
    /// zero for SEND, WRITE and errors.
    pub byte_len: U32,
    /// Immediate data as the peer gave it; see [`Flags::IMM`].
    pub imm: [u8; 4],
    /// The sender's QP.
    pub src_qpn: Qpn,
    /// Device time at which the entry was written, in nanoseconds.
    pub timestamp: U64,
    /// Index of the WQE in its queue or SRQ. All entries of this queue up to and including this one
    /// are free again.
    pub wqe_index: U32,
    /// In case of an error, the number of the check that failed; see docs/adapter.md.
    pub vendor_err: U32,
    /// The sender's MAC, for a datagram.
    pub smac: [u8; 6],
    /// The VLAN id, for a datagram with [`Flags::VLAN`].
    pub vlan: U16,
    /// The SRQ of a receive by an XRC target; otherwise zero.
    pub srqn: Srqn,
    /// The key that was invalidated ([`Flags::INVALIDATED`]), or that a SEND_CMD carried.
    pub key: Key,
    /// The operation that has completed: an [`Opcode`].
    pub opcode: u8,
    /// The result of the operation: a [`Status`].
    pub status: u8,
    /// Bits of [`Flags`].
    pub flags: U16,
    /// [`crate::stamp`] of the entry's index; stored last.
    pub stamp: U32,
}

/// Offset of [`Cqe::stamp`].
pub const STAMP_OFFSET: u32 = 60;

/// Returns how many entries of a CQ wait, without reading all of them: the device writes entries in
/// order. `written` says whether the entry at this distance from the next one has been written; it
/// is asked for distances below `size`, the number of entries of the ring, and at most about twice
/// as often as the answer has binary digits.
///
/// # Errors
/// The errors of `written`.
#[inline]
pub fn waiting<E>(size: u32, written: impl Fn(u32) -> Result<bool, E>) -> Result<u32, E> {
    // The entries in front of `count` have been written, and the one at `end`, if there is one, has
    // not.
    let (mut count, mut end) = (0, size);
    while count < end {
        // Twice as far each time until one has not been written, then half-way between.
        let distance = match end == size {
            true => (end - 1).min(count * 2),
            false => count + (end - count) / 2,
        };
        match written(distance)? {
            true => count = distance + 1,
            false => end = distance,
        }
    }
    Ok(count)
}

const _: () = assert!(size_of::<Cqe>() == CQE_LEN as usize);
const _: () = assert!(core::mem::offset_of!(Cqe, stamp) == STAMP_OFFSET as usize);

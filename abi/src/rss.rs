// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Receive side scaling: how a QP of raw packets spreads the frames of its flow rules over others.
//!
//! A QP with [`crate::admin::QpFlags::SPREADS`] has no queues of its own. Each frame that one of
//! its rules takes goes to a QP of its table, a *work queue*: the adapter computes the Toeplitz
//! hash of the frame's [`Fields`], and the lowest bits of the hash are the index in the table. The
//! hash is that of a string of the source address, the destination address, the source port and the
//! destination port, in network byte order, as far as the fields name them and the frame has them.
//! So the frames of one connection go to one work queue. A frame without any of them has the hash
//! zero. Ports of fragments count as absent, because only the first fragment has them.

use bitflags::bitflags;
use zerocopy::little_endian::U32;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Qpn;

/// Number of bytes of a key.
pub const KEY_LEN: usize = 40;
/// log2 of the largest number of entries of a table.
pub const LOG_ENTRIES_MAX: u8 = 7;
/// The largest number of entries of a table.
pub const ENTRIES_MAX: usize = 1 << LOG_ENTRIES_MAX;

bitflags! {
    /// The fields that are hashed, numbered as `enum ibv_rx_hash_fields`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Fields: u32 {
        /// `IBV_RX_HASH_SRC_IPV4`.
        const SRC_IPV4 = 1 << 0;
        /// `IBV_RX_HASH_DST_IPV4`.
        const DST_IPV4 = 1 << 1;
        /// `IBV_RX_HASH_SRC_IPV6`.
        const SRC_IPV6 = 1 << 2;
        /// `IBV_RX_HASH_DST_IPV6`.
        const DST_IPV6 = 1 << 3;
        /// `IBV_RX_HASH_SRC_PORT_TCP`.
        const SRC_PORT_TCP = 1 << 4;
        /// `IBV_RX_HASH_DST_PORT_TCP`.
        const DST_PORT_TCP = 1 << 5;
        /// `IBV_RX_HASH_SRC_PORT_UDP`.
        const SRC_PORT_UDP = 1 << 6;
        /// `IBV_RX_HASH_DST_PORT_UDP`.
        const DST_PORT_UDP = 1 << 7;
    }
}

/// The table of a QP that spreads, as CREATE_QP reads it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Spread {
    /// The fields that are hashed: bits of [`Fields`].
    pub fields: U32,
    /// log2 of the number of entries, at most [`LOG_ENTRIES_MAX`].
    pub log_entries: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// The key of the hash.
    pub key: [u8; KEY_LEN],
    /// The work queues: QPs of raw packets with a receive queue and without a send queue, of the
    /// same PD. One may be named several times. None of them can be destroyed before the QP that
    /// spreads. Entries after the number are zero.
    pub entries: [Qpn; ENTRIES_MAX],
}

const _: () = assert!(size_of::<Spread>() == 560);

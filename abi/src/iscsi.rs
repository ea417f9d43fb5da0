// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The iSCSI mode of [`crate::qp::Type::Toe`] QPs: their stream consists of PDUs, as an initiator
//! sends and receives them after login (RFC 7143).

use bitflags::bitflags;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Key, Qpn};

bitflags! {
    /// Options that both ends have negotiated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IscsiFlags: u8 {
        /// `HeaderDigest` is CRC32C.
        const HEADER_DIGEST = 1 << 0;
        /// `DataDigest` is CRC32C.
        const DATA_DIGEST = 1 << 1;
    }
}

wire_enum! {
    /// The kind of the device at the other end.
    pub enum Device: u8 {
        /// The operations of commands are not checked.
        Any = 0,
        /// A disk: commands with operations of tapes are refused, and those that read or write
        /// must have the direction of their operation.
        Disk = 1,
    }
}

/// Parameters of SET_ISCSI.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetIscsi {
    /// The QP: of type [`crate::qp::Type::Toe`] and context 0, in the state INIT.
    pub qpn: Qpn,
    /// `MaxRecvDataSegmentLength` of this end: 512 to 16,777,215, as all lengths.
    pub max_receive: U32,
    /// `MaxRecvDataSegmentLength` of the target.
    pub max_send: U32,
    /// `MaxBurstLength`.
    pub max_burst: U32,
    /// [`IscsiFlags`].
    pub flags: u8,
    /// The type of the target's device: a [`Device`].
    pub device: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// Parameters of END_COMMAND.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EndCommand {
    /// The QP that has sent the command.
    pub qpn: Qpn,
    /// The key that the command has carried.
    pub key: Key,
}

impl EndCommand {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, key: impl Into<Key>) -> Self {
        Self { qpn: qpn.into(), key: key.into() }
    }
}

/// The counters of a QP in the iSCSI mode, in the private data of the answer to QUERY_CONNECTION.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IscsiCounters {
    /// PDUs that have arrived.
    pub received: U64,
    /// PDUs that went to a receive with all of their bytes.
    pub whole: U64,
    /// R2Ts that were answered.
    pub served: U64,
    /// Data-Out PDUs that were made for them.
    pub data_out: U64,
    /// Data-In PDUs whose data was placed in the buffer of their command.
    pub placed: U64,
    /// Commands that a response has ended.
    pub ended: U64,
    /// R2T and Data-In PDUs that have failed a check.
    pub refused: U64,
    /// Responses that named no command of the QP, and were dropped.
    pub dropped: U64,
    /// Data-Out PDUs with zeros, because their command had ended.
    pub zeroed: U64,
    /// PDUs whose data did not fit into their receive.
    pub truncated: U64,
    /// Streams that have ended at a header with a wrong digest.
    pub header_digest_errors: U64,
    /// Streams that have ended at data with a wrong digest.
    pub data_digest_errors: U64,
    /// Streams that have ended at a PDU that was longer than agreed.
    pub too_long: U64,
}

const _: () = assert!(size_of::<SetIscsi>() == 20 && size_of::<EndCommand>() == 8);
const _: () = assert!(size_of::<IscsiCounters>() <= crate::connection::PRIVATE_MAX);

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shared receive queues (IBTA volume 1, 10.2.9), and those of XRC (annex A14).

use zerocopy::little_endian::U32;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqn, Pdn, SlotIndex, Srqn, UarIndex, Xrcdn};

use super::Pages;

wire_enum! {
    /// The QPs that take receives from an SRQ.
    pub enum SrqType: u8 {
        /// QPs that name it at their creation; the receives complete to the CQ of the QP.
        Basic = 0,
        /// All XRC targets of an XRC domain, as each message names the SRQ; the receives complete
        /// to the CQ of the SRQ.
        Xrc = 1,
    }
}

/// Parameters of CREATE_SRQ. The ring holds entries as a receive queue does ([`crate::rq`]).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateSrq {
    /// Memory of the ring.
    pub pages: Pages,
    /// The PD, whose regions the receives name; it need not be that of the QPs.
    pub pdn: Pdn,
    /// The UAR in which the SRQ gets its slot.
    pub uar: UarIndex,
    /// Of [`SrqType::Xrc`]: the XRC domain; else zero.
    pub xrcdn: Xrcdn,
    /// Of [`SrqType::Xrc`]: the CQ; else zero.
    pub cqn: Cqn,
    /// log2 of the entries, 0 to [`crate::sq::LOG_WQES_MAX`].
    pub log_size: u8,
    /// log2 of the stride: 5 to 9.
    pub log_stride: u8,
    /// A [`SrqType`].
    pub srq_type: u8,
}

/// Result of CREATE_SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqResult {
    /// The SRQ, 24 bits, not zero.
    pub srqn: Srqn,
    /// Its slot in the UAR.
    pub slot: SlotIndex,
}

impl SrqResult {
    /// A result; see the fields.
    #[must_use]
    pub const fn new(srqn: u32, slot: u32) -> Self {
        Self { srqn: Srqn::new(srqn), slot: SlotIndex::new(slot) }
    }
}

/// Parameters of MODIFY_SRQ: arms the limit event ([`crate::eq::Kind::SrqLimit`]), once.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifySrq {
    /// The SRQ.
    pub srqn: Srqn,
    /// The event is due when fewer receives than this are posted, at once if that is so already.
    /// Not more than the entries; zero disarms.
    pub limit: U32,
}

impl ModifySrq {
    /// Parameters; see the fields.
    #[must_use]
    pub fn new(srqn: impl Into<Srqn>, limit: u32) -> Self {
        Self { srqn: srqn.into(), limit: U32::new(limit) }
    }
}

/// Result of QUERY_SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqStatus {
    /// The armed limit; zero when the event has been raised, or none was asked for.
    pub limit: U32,
    /// Receives posted and not taken.
    pub posted: U32,
    /// Not zero when the SRQ has failed.
    pub failed: U32,
}

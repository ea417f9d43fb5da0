// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shared receive queues (IBTA volume 1, 10.2.9), and those of XRC (annex A14).

use zerocopy::little_endian::U32;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Cqn, Pdn, SlotIndex, Srqn, UarIndex, Xrcdn};

use super::Pages;

wire_enum! {
    /// The type of an SRQ: the QPs that take receives from it.
    pub enum SrqType: u8 {
        /// QPs that name it at their creation. The receives complete to the CQ of the QP.
        Basic = 0,
        /// All XRC targets of an XRC domain, because each message names its SRQ. The receives
        /// complete to the CQ of the SRQ.
        Xrc = 1,
    }
}

/// Parameters of CREATE_SRQ. The ring has the same entries as a receive queue ([`crate::rq`]).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CreateSrq {
    /// Memory of the ring.
    pub pages: Pages,
    /// The PD of the regions in its receives. It may differ from that of the QPs.
    pub pdn: Pdn,
    /// The UAR in which the SRQ gets its slot.
    pub uar: UarIndex,
    /// The XRC domain for [`SrqType::Xrc`]; otherwise zero.
    pub xrcdn: Xrcdn,
    /// The CQ for [`SrqType::Xrc`]; otherwise zero.
    pub cqn: Cqn,
    /// log2 of the entries, 0 to [`crate::sq::LOG_WQES_MAX`].
    pub log_size: u8,
    /// log2 of the stride: 5 to 9.
    pub log_stride: u8,
    /// The type of the SRQ: a [`SrqType`].
    pub srq_type: u8,
}

/// Result of CREATE_SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqResult {
    /// The number of the SRQ: 24 bits, not zero.
    pub srqn: Srqn,
    /// The SRQ's slot in the UAR.
    pub slot: SlotIndex,
}

impl SrqResult {
    /// Returns a result with these values.
    #[must_use]
    pub const fn new(srqn: Srqn, slot: SlotIndex) -> Self {
        Self { srqn, slot }
    }
}

/// Parameters of MODIFY_SRQ: arms the limit event ([`crate::eq::Kind::SrqLimit`]), once.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ModifySrq {
    /// The SRQ.
    pub srqn: Srqn,
    /// The event is raised when fewer receives than this are posted, or at once if this is already
    /// so. At most the number of entries; zero disarms the event.
    pub limit: U32,
}

impl ModifySrq {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(srqn: impl Into<Srqn>, limit: u32) -> Self {
        Self { srqn: srqn.into(), limit: U32::new(limit) }
    }
}

/// Parameters of RESIZE_SRQ: another ring, of another size and the same stride, for an SRQ in use.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResizeSrq {
    /// Memory of the new ring. It contains all posted receives already, at their indices.
    pub pages: Pages,
    /// The SRQ. No receive is posted to it until the command has completed.
    pub srqn: Srqn,
    /// log2 of the entries, 0 to [`crate::sq::LOG_WQES_MAX`]. The ring has room for the receives
    /// that are posted, and as many entries as the armed limit.
    pub log_size: u8,
}

impl ResizeSrq {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(srqn: impl Into<Srqn>, log_size: u8, pages: Pages) -> Self {
        Self { pages, srqn: srqn.into(), log_size }
    }
}

/// Result of QUERY_SRQ.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SrqStatus {
    /// The armed limit; zero if the event has been raised, or was not armed.
    pub limit: U32,
    /// Number of receives that are posted and not taken.
    pub posted: U32,
    /// Not zero if the SRQ has failed.
    pub failed: U32,
}

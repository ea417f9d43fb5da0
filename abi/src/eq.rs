// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Event queues: 16-byte entries that the device writes. An entry is valid if its stamp matches.
//! Registers set up the asynchronous event queue, and admin commands the completion event queues.
//!
//! An armed CQ raises one event and is then disarmed. While this event has not been consumed
//! ([`crate::uar::EqSlot`]), a further event of the same CQ is merged with it. No event is dropped
//! because a queue is full: the device holds it until there is room.

use zerocopy::little_endian::{U16, U32};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Length of an [`Eqe`] in bytes.
pub const EQE_LEN: u32 = 16;
/// Largest log2 of the entries of an EQ.
pub const LOG_SIZE_MAX: u32 = 16;

wire_enum! {
    /// The kind of an event.
    pub enum Kind: u8 {
        /// An armed CQ has a completion; `id` is the CQ.
        Completion = 1,
        /// A CQ has overflowed, or its memory is not accessible; `id` is the CQ
        /// (`IB_EVENT_CQ_ERR`).
        CqError = 2,
        /// A QP has moved to the error state because of an error of its own; `id` is the QP
        /// (`IB_EVENT_QP_FATAL`).
        QpFatal = 3,
        /// A malformed WQE or packet for the QP `id` (`IB_EVENT_QP_REQ_ERR`).
        QpRequestError = 4,
        /// The peer of QP `id` has violated an access right (`IB_EVENT_QP_ACCESS_ERR`).
        QpAccessError = 5,
        /// The first message arrived on the QP `id` while in RTR (`IB_EVENT_COMM_EST`).
        CommEstablished = 6,
        /// The send queue of QP `id` is drained (`IB_EVENT_SQ_DRAINED`).
        SqDrained = 7,
        /// The port got a link (`IB_EVENT_PORT_ACTIVE`).
        PortUp = 8,
        /// The port lost its link (`IB_EVENT_PORT_ERR`).
        PortDown = 9,
        /// The device has failed (`IB_EVENT_DEVICE_FATAL`); `id` is a [`crate::regs::FatalCode`].
        DeviceFatal = 10,
        /// The SRQ `id` has fewer receives than its limit (`IB_EVENT_SRQ_LIMIT_REACHED`).
        SrqLimit = 11,
        /// The SRQ `id` has failed: its index or memory is faulty (`IB_EVENT_SRQ_ERR`).
        SrqError = 12,
        /// The QP `id`, in the error state, takes no more receives from its SRQ
        /// (`IB_EVENT_QP_LAST_WQE_REACHED`).
        QpLastWqe = 13,
        /// The TCP connection of the QP `id` has changed ([`crate::connection::Stage`]).
        ConnectionChanged = 14,
        /// The holding CQ `id` is full, and the QPs that need an entry wait. Raised once until
        /// MODIFY_CQ or RESIZE_CQ.
        CqFull = 17,
        /// Few entries of the holding CQ `id` are free. Raised once until MODIFY_CQ or RESIZE_CQ.
        CqFew = 18,
        /// A message waits for pages of the region whose key is `id`
        /// ([`crate::admin::PageRequest`]). Raised once until all requests have been returned.
        PageFault = 19,
    }
}

impl Kind {
    /// Returns whether `id` is a QP.
    #[must_use]
    pub const fn is_of_qp(self) -> bool {
        matches!(
            self,
            Self::QpFatal
                | Self::QpRequestError
                | Self::QpAccessError
                | Self::CommEstablished
                | Self::SqDrained
                | Self::QpLastWqe
                | Self::ConnectionChanged
        )
    }

    /// Returns whether `id` is a CQ.
    #[must_use]
    pub const fn is_of_cq(self) -> bool {
        matches!(self, Self::Completion | Self::CqError | Self::CqFull | Self::CqFew)
    }
}

/// An event queue entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Eqe {
    /// What has happened: a [`Kind`].
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// Zero.
    pub reserved2: U16,
    /// The number of the object, as described for the kind.
    pub id: U32,
    /// Zero.
    pub reserved3: U32,
    /// [`crate::stamp`] of the entry's index; stored last.
    pub stamp: U32,
}

impl Eqe {
    /// Returns an entry for ring position `index`.
    #[must_use]
    pub const fn new(kind: Kind, id: u32, index: u32) -> Self {
        Self {
            kind: kind as u8,
            reserved: 0,
            reserved2: U16::ZERO,
            id: U32::new(id),
            reserved3: U32::ZERO,
            stamp: U32::new(crate::stamp(index)),
        }
    }
}

const _: () = assert!(size_of::<Eqe>() == EQE_LEN as usize);

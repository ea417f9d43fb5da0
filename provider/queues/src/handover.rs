// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues that were handed over to another poster: a process or a device that writes entries, rings
//! the doorbell and reads completions without this library. The library then leaves these queues
//! alone.

use vrnic_abi::{Qpn, UarIndex};

use crate::layout::WqeHeader;
use crate::mapping::Area;
use crate::ring::Ring;
use crate::send::Place;

/// The place of a bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BellPlace {
    /// The UAR.
    pub page: Area,
    /// The page of the register that wakes the adapter.
    pub kick: Area,
    /// The number of the UAR, which is written to that register.
    pub number: UarIndex,
    /// The bit of the slot's group in [`vrnic_abi::uar::Control::summary`].
    pub bit: u64,
}

/// The place and the progress of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// The memory that begins with the first entry.
    pub memory: Area,
    /// The memory decides how an entry is posted.
    pub place: Place,
    /// Number of entries, a power of two.
    pub entries: u32,
    /// Number of bytes of an entry.
    pub stride: u32,
    /// The offset in the UAR of the ring's index.
    pub word: u32,
    /// The index of the next entry to write, or to read.
    pub next: u32,
    /// The index below which entries have completed.
    pub freed: u32,
}

impl RingPlace {
    /// Returns the place of a ring whose next entry is `next`, and whose index is at offset `word`
    /// of the UAR. No entry is outstanding.
    pub(crate) fn of(ring: &Ring, place: Place, word: u32, next: u32) -> Self {
        let (memory, entries, stride) = (ring.area(), ring.size(), ring.stride());
        Self { memory, place, entries, stride, word, next, freed: next }
    }
}

/// The queues of a QP that were handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpHandover {
    /// The QP.
    pub qpn: Qpn,
    /// The header of each send WQE.
    pub header: WqeHeader,
    /// The place of the doorbell.
    pub bell: BellPlace,
    /// The send queue, if it was handed over.
    pub send: Option<RingPlace>,
    /// The receive queue, if it was handed over.
    pub recv: Option<RingPlace>,
}

/// A completion queue that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqHandover {
    /// The place of the doorbell.
    pub bell: BellPlace,
    /// The queue.
    pub ring: RingPlace,
    /// The last arm request, which is stored with each consumer index.
    pub arm: u32,
    /// True if the adapter may hold entries back. The doorbell must then be rung when there is
    /// room.
    pub holding: bool,
}

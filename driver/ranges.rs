// SPDX-License-Identifier: GPL-2.0
//! The owners of the adapter's address ranges ([`abi::direct`]).

use abi::{Qpn, RangeNumber, admin::NONE, direct::RANGES};
use kernel::{
    debugfs::Writer,
    fmt, new_mutex,
    prelude::*,
    sync::{
        Arc, Mutex,
        atomic::{Atomic, Relaxed},
    },
};

use crate::hw::p2p::PeerMemory;

/// The owner of a range that a process still has mapped, but that belongs to no queue pair.
const MAPPED: u32 = NONE - 1;

/// The queue pairs that have the ranges.
#[pin_data]
pub(crate) struct Ranges {
    /// By the number of the range: the number of a queue pair, [`MAPPED`], or [`NONE`] for a free
    /// range.
    owners: [Atomic<u32>; RANGES as usize],
    /// Device memory of processes in which ranges have their packet memory. It stays allocated
    /// until nothing can be moved into it by the range.
    #[pin]
    memory: Mutex<KVec<(RangeNumber, Arc<PeerMemory>)>>,
}

impl Ranges {
    /// Creates a list in which all ranges are free.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let owners = [const { Atomic::new(NONE) }; RANGES as usize];
        let new = pin_init!(Self { owners, memory <- new_mutex!(KVec::new(), "vrnic::Ranges") });
        Arc::pin_init(new, GFP_KERNEL)
    }

    /// Gives a free range to a queue pair, if there is one.
    pub(crate) fn take(&self, qpn: Qpn) -> Option<RangeNumber> {
        let free =
            |(_, owner): &(u32, &Atomic<u32>)| owner.cmpxchg(NONE, qpn.get(), Relaxed).is_ok();
        (0..).zip(&self.owners).find(free).map(|(number, _)| number.into())
    }

    /// Gives a free range to the queue pair of a process, which may map it.
    pub(crate) fn lease(self: &Arc<Self>, qpn: Qpn) -> Option<Lease> {
        self.take(qpn).map(|range| Lease { ranges: self.clone(), range })
    }

    /// Returns whether a range belongs to a queue pair.
    pub(crate) fn is_of(&self, range: RangeNumber, qpn: Qpn) -> bool {
        self.owner(range).is_some_and(|owner| owner.load(Relaxed) == qpn.get())
    }

    /// Takes a range from a queue pair.
    pub(crate) fn give_back(&self, range: RangeNumber, qpn: Qpn) {
        self.replace(range, qpn, NONE);
    }

    /// Takes a range from the queue pair of a process. It is free when its lease has gone. Nothing
    /// is moved into its packet memory any more.
    pub(crate) fn retire(&self, range: RangeNumber, qpn: Qpn) {
        if self.replace(range, qpn, MAPPED) {
            self.memory.lock().retain(|(of, _)| *of != range);
        }
    }

    /// Arms a range by `arm`. It keeps the device memory until it is armed again or retired.
    pub(crate) fn arm_in(
        &self,
        range: RangeNumber,
        memory: Arc<PeerMemory>,
        arm: impl FnOnce() -> Result,
    ) -> Result {
        let mut kept = self.memory.lock();
        kept.reserve(1, GFP_KERNEL)?;
        arm()?;
        kept.retain(|(of, _)| *of != range);
        Ok(kept.push((range, memory), GFP_KERNEL)?)
    }

    fn owner(&self, range: RangeNumber) -> Option<&Atomic<u32>> {
        // CAST: to the wider type.
        self.owners.get(range.get() as usize)
    }

    /// Replaces the owner of a range, if it is this queue pair. Returns whether it was.
    fn replace(&self, range: RangeNumber, qpn: Qpn, by: u32) -> bool {
        self.owner(range).is_some_and(|owner| owner.cmpxchg(qpn.get(), by, Relaxed).is_ok())
    }
}

/// A range of a process. On drop nobody has it mapped any more, and it is free.
pub(crate) struct Lease {
    ranges: Arc<Ranges>,
    range: RangeNumber,
}

impl Lease {
    /// Returns its number.
    pub(crate) fn range(&self) -> RangeNumber {
        self.range
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(owner) = self.ranges.owner(self.range) {
            owner.store(NONE, Relaxed);
        }
    }
}

/// The owners as their debugfs file shows them: a line for each range that has one.
pub(crate) struct Owners(pub(crate) Arc<Ranges>);

impl Writer for Owners {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, owner) in self.0.owners.iter().enumerate() {
            match owner.load(Relaxed) {
                NONE => {}
                MAPPED => f.write_fmt(fmt!("range {number} mapped\n"))?,
                qpn => f.write_fmt(fmt!("range {number} qp {qpn}\n"))?,
            }
        }
        Ok(())
    }
}

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

use crate::{direct::quota::Counted, hw::p2p::PeerMemory, rdma::user::mmap::Keeps};

/// The owner of a range that belongs to no queue pair, but is not free: it is about to be given to
/// one, its queue pair is being destroyed, or a process still has it mapped.
const HELD: u32 = NONE - 1;

/// The blocks of the adapter that processes may have at a time, all of them together. The others
/// are left to kernel clients.
const BLOCKS_OF_PROCESSES: usize = RANGES as usize / 2;

/// The packet memory of a process's range.
enum Packets {
    /// Device memory of the process. It stays allocated until nothing can be moved into it by the
    /// range.
    Memory {
        /// Dropped with the rest.
        _memory: Arc<Counted<PeerMemory>>,
    },
    /// A block of the adapter, which may have been given back already.
    Block,
}

/// The queue pairs that have the ranges.
#[pin_data]
pub(crate) struct Ranges {
    /// By the number of the range: the number of a queue pair, [`HELD`], or [`NONE`] for a free
    /// range.
    owners: [Atomic<u32>; RANGES as usize],
    /// The packet memory of processes' ranges, from the time at which they are armed until they are
    /// armed again or retired.
    #[pin]
    packets: Mutex<KVec<(RangeNumber, Packets)>>,
}

impl Ranges {
    /// Creates a list in which all ranges are free.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let owners = [const { Atomic::new(NONE) }; RANGES as usize];
        let new = pin_init!(Self { owners, packets <- new_mutex!(KVec::new(), "vrnic::Ranges") });
        Arc::pin_init(new, GFP_KERNEL)
    }

    /// Gives a free range to a queue pair, if there is one.
    pub(crate) fn take(&self, qpn: Qpn) -> Option<RangeNumber> {
        self.take_for(qpn.get())
    }

    /// Takes a free range, if there is one, for a process, which may map it. No queue pair has it
    /// before [`Self::grant`].
    pub(crate) fn lease(self: &Arc<Self>) -> Option<Lease> {
        self.take_for(HELD).map(|range| Lease { ranges: self.clone(), range })
    }

    /// Gives a range that is leased to the queue pair of a process.
    pub(crate) fn grant(&self, range: RangeNumber, qpn: Qpn) {
        self.set(range, qpn.get());
    }

    fn take_for(&self, owner: u32) -> Option<RangeNumber> {
        let free = |(_, place): &(u32, &Atomic<u32>)| place.cmpxchg(NONE, owner, Relaxed).is_ok();
        (0..).zip(&self.owners).find(free).map(|(number, _)| number.into())
    }

    /// Returns whether a range belongs to a queue pair.
    pub(crate) fn is_of(&self, range: RangeNumber, qpn: Qpn) -> bool {
        self.owner(range).is_some_and(|owner| owner.load(Relaxed) == qpn.get())
    }

    /// Takes a range from a queue pair.
    pub(crate) fn give_back(&self, range: RangeNumber, qpn: Qpn) {
        self.replace(range, qpn, NONE);
    }

    /// Runs `run`, which checks the owner of a range, while no process can give a range back.
    pub(crate) fn locked<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<R> {
        let _packets = self.packets.lock();
        run()
    }

    /// Takes a range from the queue pair of a process, if `end` succeeds, which checks the owner
    /// and ends the transfer. The range is free when its lease has gone. Nothing is moved into its
    /// packet memory any more.
    pub(crate) fn retire(
        &self,
        range: RangeNumber,
        qpn: Qpn,
        end: impl FnOnce() -> Result,
    ) -> Result {
        let mut kept = self.packets.lock();
        end()?;
        if self.replace(range, qpn, HELD) {
            kept.retain(|(of, _)| *of != range);
        }
        Ok(())
    }

    /// Takes all ranges from a queue pair that is about to be destroyed, because another queue pair
    /// may then get its number. They are not free yet.
    pub(crate) fn hold(&self, qpn: Qpn) -> Held {
        let ranges = (0..RANGES).filter(|range| self.replace((*range).into(), qpn, HELD));
        Held(ranges.fold(0, |set, range| set | 1 << range))
    }

    /// Gives ranges back to their queue pair, which has not been destroyed.
    pub(crate) fn resume(&self, held: &Held, qpn: Qpn) {
        held.ranges().for_each(|range| self.set(range, qpn.get()));
    }

    /// Frees ranges of a kernel client, whose queue pair has been destroyed.
    pub(crate) fn free(&self, held: &Held) {
        held.ranges().for_each(|range| self.set(range, NONE));
    }

    /// Frees the packet memory of a range that is held.
    pub(crate) fn forget_memory(&self, range: RangeNumber) {
        self.packets.lock().retain(|(of, _)| *of != range);
    }

    /// Arms a range by `arm`, which checks the owner. The range keeps the device memory until it is
    /// armed again or retired.
    pub(crate) fn arm_in(
        &self,
        range: RangeNumber,
        memory: Arc<Counted<PeerMemory>>,
        arm: impl FnOnce() -> Result,
    ) -> Result {
        let packets = Packets::Memory { _memory: memory };
        Self::keep(&mut self.packets.lock(), range, packets, arm)
    }

    /// Arms a range of a process for a transfer through a block by `arm`, which checks the owner.
    /// The block counts as one of processes until the range is armed again or retired.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if processes have as many blocks as they may have, and the errors of `arm`.
    pub(crate) fn arm_through(&self, range: RangeNumber, arm: impl FnOnce() -> Result) -> Result {
        let mut kept = self.packets.lock();
        let of_others =
            |kept: &&(RangeNumber, Packets)| kept.0 != range && matches!(kept.1, Packets::Block);
        if kept.iter().filter(of_others).count() >= BLOCKS_OF_PROCESSES {
            return Err(ENOSPC);
        }
        Self::keep(&mut kept, range, Packets::Block, arm)
    }

    /// Arms a range by `arm`, and keeps its packet memory in place of the one before.
    fn keep(
        kept: &mut KVec<(RangeNumber, Packets)>,
        range: RangeNumber,
        packets: Packets,
        arm: impl FnOnce() -> Result,
    ) -> Result {
        kept.reserve(1, GFP_KERNEL)?;
        arm()?;
        kept.retain(|(of, _)| *of != range);
        Ok(kept.push((range, packets), GFP_KERNEL)?)
    }

    fn owner(&self, range: RangeNumber) -> Option<&Atomic<u32>> {
        // CAST: to the wider type.
        self.owners.get(range.get() as usize)
    }

    fn set(&self, range: RangeNumber, owner: u32) {
        if let Some(place) = self.owner(range) {
            place.store(owner, Relaxed);
        }
    }

    /// Replaces the owner of a range, if it is this queue pair. Returns whether it was.
    fn replace(&self, range: RangeNumber, qpn: Qpn, by: u32) -> bool {
        self.owner(range).is_some_and(|owner| owner.cmpxchg(qpn.get(), by, Relaxed).is_ok())
    }
}

/// The ranges of a queue pair that is being destroyed: bit n is set for range n.
pub(crate) struct Held(u32);

impl Held {
    /// Returns the numbers of the ranges.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = RangeNumber> {
        let set = self.0;
        (0..RANGES).filter(move |range| set & 1 << range != 0).map(RangeNumber::new)
    }
}

const _: () = assert!(RANGES <= u32::BITS);

/// A range of a process. It is dropped when no process has the range mapped any more, and the range
/// is then free.
pub(crate) struct Lease {
    ranges: Arc<Ranges>,
    range: RangeNumber,
}

impl Lease {
    /// Returns the number of the leased range.
    pub(crate) fn range(&self) -> RangeNumber {
        self.range
    }
}

/// Dropping a lease stores a number.
impl Keeps for Lease {}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ranges.set(self.range, NONE);
    }
}

/// The owners as their debugfs file shows them: a line for each range that has one.
pub(crate) struct Owners(pub(crate) Arc<Ranges>);

impl Writer for Owners {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, owner) in self.0.owners.iter().enumerate() {
            match owner.load(Relaxed) {
                NONE => {}
                HELD => f.write_fmt(fmt!("range {number} held\n"))?,
                qpn => f.write_fmt(fmt!("range {number} qp {qpn}\n"))?,
            }
        }
        Ok(())
    }
}

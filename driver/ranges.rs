// SPDX-License-Identifier: GPL-2.0
//! The owners of the adapter's address ranges ([`abi::direct`]).

use abi::{Qpn, RangeNumber, admin::NONE, direct::RANGES};
use kernel::{
    debugfs::Writer,
    fmt,
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

/// The queue pairs that have the ranges.
pub(crate) struct Ranges {
    /// By the number of the range: the number of a queue pair, or [`NONE`] for a free range.
    owners: [Atomic<u32>; RANGES as usize],
}

impl Ranges {
    /// Creates a list in which all ranges are free.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self { owners: [const { Atomic::new(NONE) }; RANGES as usize] }, GFP_KERNEL)?)
    }

    /// Gives a free range to a queue pair, if there is one.
    pub(crate) fn take(&self, qpn: Qpn) -> Option<RangeNumber> {
        let free =
            |(_, owner): &(u32, &Atomic<u32>)| owner.cmpxchg(NONE, qpn.get(), Relaxed).is_ok();
        (0..).zip(&self.owners).find(free).map(|(number, _)| number.into())
    }

    /// Returns whether a range belongs to a queue pair.
    pub(crate) fn is_of(&self, range: RangeNumber, qpn: Qpn) -> bool {
        // CAST: to the wider type.
        let owner = self.owners.get(range.get() as usize);
        owner.is_some_and(|owner| owner.load(Relaxed) == qpn.get())
    }

    /// Takes a range from a queue pair.
    pub(crate) fn give_back(&self, range: RangeNumber, qpn: Qpn) {
        // CAST: to the wider type.
        if let Some(owner) = self.owners.get(range.get() as usize) {
            // One of somebody else stays theirs.
            let _ = owner.cmpxchg(qpn.get(), NONE, Relaxed);
        }
    }

    /// Takes all ranges from a queue pair.
    pub(crate) fn give_back_all(&self, qpn: Qpn) {
        (0..RANGES).for_each(|number| self.give_back(number.into(), qpn));
    }
}

/// The owners as their debugfs file shows them: a line for each range that has one.
pub(crate) struct Owners(pub(crate) Arc<Ranges>);

impl Writer for Owners {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, owner) in self.0.owners.iter().enumerate() {
            match owner.load(Relaxed) {
                NONE => {}
                qpn => f.write_fmt(fmt!("range {number} qp {qpn}\n"))?,
            }
        }
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The MACs with which frames leave through the network card of an iWARP adapter: that of the card
//! and those of the network devices on top of it, whatever addresses they have. The adapter must
//! know them, or the host drops such frames.

use kernel::prelude::*;

use super::port::Port;
use crate::{bindings, rdma::port::netdev::NetdevRef};

/// The MACs that the adapter knows, by the index of their entries in its table.
pub(super) struct Macs {
    entries: KVec<Option<[u8; 6]>>,
    /// True if there were more than the table has room for, so that this is said once.
    overflows: bool,
}

impl Macs {
    /// Returns an empty table with this number of entries.
    pub(super) fn new(room: usize) -> Result<Self> {
        Ok(Self { entries: KVec::from_elem(None, room, GFP_KERNEL)?, overflows: false })
    }

    /// Tells the adapter of the present MACs of `card` and of the network devices on top of it.
    /// The adapter knows its own MAC. May sleep.
    pub(super) fn follow(&mut self, card: Option<&NetdevRef>, port: &Port) -> Result {
        let present = match card {
            Some(card) => macs_of(card, self.entries.len() + 1)?,
            None => KVec::new(),
        };
        let is_present = |mac: &[u8; 6]| present.iter().any(|other| other.mac == *mac);
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.is_some_and(|mac| !is_present(&mac)) {
                port.set_mac(index, None);
                *entry = None;
            }
        }
        let mut room = true;
        for bindings::pairing_mac { mac, .. } in present {
            if mac == port.mac() || self.entries.contains(&Some(mac)) {
                continue;
            }
            let free = self.entries.iter_mut().enumerate().find(|(_, entry)| entry.is_none());
            match free {
                Some((index, entry)) if port.set_mac(index, Some(mac)) => *entry = Some(mac),
                Some(_) => {}
                None => room = false,
            }
        }
        if !room && !self.overflows {
            port.warn_of_macs(self.entries.len());
        }
        self.overflows = !room;
        Ok(())
    }
}

/// Returns the MACs of a network card and of the network devices on top of it, at most `room`.
fn macs_of(card: &NetdevRef, room: usize) -> Result<KVec<bindings::pairing_mac>> {
    let mut macs = KVec::with_capacity(room, GFP_KERNEL)?;
    for _ in 0..room {
        macs.push(bindings::pairing_mac { mac: [0; 6], net: core::ptr::null() }, GFP_KERNEL)?;
    }
    // SAFETY: the card is alive, as it is referred to; there is room for this many MACs.
    let count = unsafe { bindings::pairing_macs(card.as_raw(), macs.as_mut_ptr(), room) };
    macs.truncate(count);
    Ok(macs)
}

//! The driver's rings, in its own memory: the admin queue and event queues.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use rustix::io::Errno;
use vrnic_abi::admin::{Completion, PARAMS_LEN, Pages, Submission};
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::{EQE_LEN, Eqe, Kind};
use vrnic_abi::{GuestAddr, SlotIndex, UarIndex, stamp};
use vrnic_adapter::host::DoorbellBar;
use zerocopy::{FromBytes, IntoBytes};

use super::host::ProcessHost;
use crate::memory::words;

/// The places of stamps in entries.
const COMPLETION_STAMP: u32 = offset_of!(Completion, stamp) as u32;
const EVENT_STAMP: u32 = offset_of!(Eqe, stamp) as u32;

/// A ring at an address of the driver's memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    /// The address.
    pub addr: u64,
    /// log2 of the number of entries.
    pub log: u8,
}

impl Ring {
    /// Returns its description for the adapter.
    #[must_use]
    pub fn pages(self) -> Pages {
        Pages::new(self.addr, 12, 0)
    }

    /// Returns the address of an entry of `len` bytes.
    fn entry(self, index: u32, len: u64) -> u64 {
        self.addr + u64::from(index & ((1 << self.log) - 1)) * len
    }

    /// Returns whether the stamp of the entry with this index, of `len` bytes, shows that the
    /// adapter has written the entry.
    pub(super) fn has_arrived(
        self,
        host: &ProcessHost,
        index: u32,
        len: u32,
        stamp_offset: u32,
    ) -> bool {
        let at = self.entry(index, len.into()) + u64::from(stamp_offset);
        let mut found = [0; 4];
        words::read(host.driver(), at, &mut found).is_some()
            && u32::from_le_bytes(found) == stamp(index)
    }

    /// Returns the entry with this index, if the adapter has written it.
    pub(super) fn arrived<T: FromBytes + IntoBytes>(
        self,
        host: &ProcessHost,
        index: u32,
        stamp_offset: u32,
    ) -> Option<T> {
        let len = u32::try_from(size_of::<T>()).ok()?;
        if !self.has_arrived(host, index, len, stamp_offset) {
            return None;
        }
        let mut entry = T::new_zeroed();
        words::read(host.driver(), self.entry(index, len.into()), entry.as_mut_bytes())?;
        Some(entry)
    }
}

/// The admin queue.
#[derive(Debug)]
pub struct AdminQueue {
    /// The commands.
    pub commands: Ring,
    /// The completions.
    pub completions: Ring,
    /// Number of commands that were posted, and of completions that were taken.
    next: u32,
}

impl AdminQueue {
    /// Returns the queue with these rings, which are zeroed.
    #[must_use]
    pub fn new(commands: Ring, completions: Ring) -> Self {
        Self { commands, completions, next: 0 }
    }

    /// Writes a command. Returns the producer index that starts it. No other command may be
    /// outstanding.
    ///
    /// # Errors
    /// `EIO` if the ring is outside of the driver's memory.
    pub fn post(
        &self,
        host: &ProcessHost,
        opcode: u16,
        params: [u8; PARAMS_LEN],
    ) -> Result<u32, Errno> {
        let command =
            Submission { opcode: opcode.into(), flags: 0.into(), id: self.next.into(), params };
        let at = self.commands.entry(self.next, size_of::<Submission>() as u64);
        words::write(host.driver(), at, command.as_bytes()).ok_or(Errno::IO)?;
        Ok(self.next.wrapping_add(1))
    }

    /// Takes the completion of the command, if it has arrived.
    pub fn poll(&mut self, host: &ProcessHost) -> Option<Completion> {
        let completion = self.completions.arrived(host, self.next, COMPLETION_STAMP)?;
        self.next = self.next.wrapping_add(1);
        Some(completion)
    }
}

/// An event queue, whose slot is in UAR 0.
#[derive(Debug)]
pub struct EventQueue {
    ring: Ring,
    slot: SlotIndex,
    next: u32,
}

impl EventQueue {
    /// Length in bytes of the ring of a queue of `1 << log` entries.
    #[must_use]
    pub const fn len(log: u8) -> u64 {
        (EQE_LEN as u64) << log
    }

    /// Returns the queue with this ring, which is zeroed.
    #[must_use]
    pub fn new(ring: Ring, slot: SlotIndex) -> Self {
        Self { ring, slot, next: 0 }
    }

    /// Takes the next event, if there is one. Events of kinds that this driver does not know are
    /// left out.
    pub fn poll(&mut self, host: &ProcessHost) -> Option<(Kind, u32)> {
        loop {
            let event: Eqe = self.ring.arrived(host, self.next, EVENT_STAMP)?;
            self.next = self.next.wrapping_add(1);
            let seen = Doorbell::new(UarIndex::new(0), self.slot).eq_ci();
            host.bar_store32(seen, self.next);
            fence(Ordering::SeqCst);
            if let Some(kind) = Kind::from_raw(event.kind) {
                return Some((kind, event.id.get()));
            }
        }
    }
}

/// Returns an address of the driver's memory as the adapter names it.
#[must_use]
pub fn driver_addr(addr: u64) -> GuestAddr {
    GuestAddr::new(addr)
}

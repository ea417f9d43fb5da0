//! An event queue, as its reader sees it.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, anyhow};
use vrnic_abi::eq::{EQE_LEN, Eqe, Kind};
use vrnic_abi::stamp;
use zerocopy::FromBytes;

use crate::guest::Guest;
use crate::ram::Ram;
use crate::wait;

/// The driver's side of an event queue; its slot is in UAR 0.
#[derive(Clone, Debug)]
pub struct EventQueue {
    ram: Arc<Ram>,
    ring: u64,
    log: u8,
    slot: u32,
    ci: u32,
}

impl EventQueue {
    /// A queue of `1 << log` entries at `ring`.
    #[must_use]
    pub fn new(ram: Arc<Ram>, ring: u64, log: u8, slot: u32) -> Self {
        Self { ram, ring, log, slot, ci: 0 }
    }

    /// Starts over, and gives the address of the ring.
    pub(crate) fn restart(&mut self) -> anyhow::Result<u64> {
        self.ram.write(self.ring, &vec![0; (EQE_LEN as usize) << self.log])?;
        self.ci = 0;
        Ok(self.ring)
    }

    /// Takes the next event, if there is one.
    ///
    /// # Errors
    /// When the device writes an unknown kind.
    pub fn poll(&mut self, guest: &Guest) -> anyhow::Result<Option<(Kind, u32)>> {
        let slot = u64::from(self.ci & ((1 << self.log) - 1));
        let at = self.ring + slot * u64::from(EQE_LEN);
        if self.ram.word32(at + 12)?.load(Ordering::Acquire) != stamp(self.ci) {
            return Ok(None);
        }
        let bytes = self.ram.read(at, EQE_LEN as usize)?;
        let event = Eqe::read_from_bytes(&bytes).map_err(|e| anyhow!("{e}"))?;
        self.ci = self.ci.wrapping_add(1);
        let word = guest.bar().word32(Guest::slot_offset(0, self.slot)).context("EQ slot")?;
        word.store(self.ci, Ordering::Release).context("EQ slot")?;
        fence(Ordering::SeqCst);
        let kind = Kind::from_raw(event.kind).with_context(|| format!("event {event:?}"))?;
        Ok(Some((kind, event.id.get())))
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// When none comes.
    pub fn wait(&mut self, guest: &Guest) -> anyhow::Result<(Kind, u32)> {
        wait::until("event", || self.poll(guest))
    }
}

//! An event queue, as a driver sees it.

use std::sync::atomic::{Ordering, fence};

use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::{EQE_LEN, Eqe, Kind};
use vrnic_abi::stamp;
use vrnic_queues::ring::Ring;

use crate::memory::{Memory, Ram, load, stamp_of};
use crate::wait;

/// Byte offset of the stamp of an entry.
const STAMP_OFFSET: u32 = std::mem::offset_of!(Eqe, stamp) as u32;

/// The driver's side of an event queue; its slot is in UAR 0.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// Guest address of the ring.
    pub addr: u64,
    /// The doorbell slot of the EQ.
    pub slot: u32,
    ring: Ring,
    bar: Memory,
    ci: u32,
}

impl EventQueue {
    /// Creates a queue of `1 << log` entries in fresh memory.
    #[must_use]
    pub fn new(ram: &Ram, bar: &Memory, log: u8, slot: u32) -> Self {
        let addr = ram.alloc(u64::from(EQE_LEN) << log);
        let ring = ram.ring(addr, log, EQE_LEN.trailing_zeros() as u8).expect("guest memory");
        Self { addr, slot, ring, bar: bar.clone(), ci: 0 }
    }

    /// Takes the next event, if there is one.
    pub fn poll(&mut self) -> Option<(Kind, u32)> {
        let entry = self.ring.entry(self.ci);
        if stamp_of(entry, STAMP_OFFSET) != stamp(self.ci) {
            return None;
        }
        let event: Eqe = load(entry);
        self.ci = self.ci.wrapping_add(1);
        let seen = Doorbell::new(0.into(), self.slot.into()).offset();
        self.bar.word32(seen).expect("EQ slot").store(self.ci, Ordering::Release);
        fence(Ordering::SeqCst);
        Some((Kind::from_raw(event.kind).expect("a known kind"), event.id.get()))
    }

    /// Waits for the next event.
    #[track_caller]
    pub fn wait(&mut self) -> (Kind, u32) {
        wait::until("event", || self.poll())
    }
}

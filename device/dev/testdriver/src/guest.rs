//! The driver of an adapter: registers, bring-up, doorbells, asynchronous events.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::Mutex;
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::{self, Control, Status};
use vrnic_abi::{SlotIndex, UarIndex, uar};

use crate::admin_queue::AdminQueue;
use crate::bus::Bus;
use crate::eq::EventQueue;
use crate::memory::{Memory, Ram};
use crate::wait;

/// log2 of the entries of the admin rings.
pub const ADMIN_LOG: u8 = 6;
/// log2 of the entries of the asynchronous event queue.
pub const ASYNC_LOG: u8 = 4;

/// A guest with its adapter. All clones refer to the same guest. It gives access to its bus.
pub struct Guest<B>(Arc<State<B>>);

struct State<B> {
    bus: B,
    admin: Mutex<AdminQueue>,
    events: Mutex<EventQueue>,
}

impl<B> Clone for Guest<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Deref for Guest<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0.bus
    }
}

impl<B: Bus> Guest<B> {
    /// Creates a guest without changing its adapter. [`Self::bring_up`] makes the adapter ready for
    /// commands.
    #[must_use]
    pub fn new(bus: B) -> Self {
        let admin = Mutex::new(AdminQueue::new(bus.ram(), ADMIN_LOG));
        let events = Mutex::new(async_events(&bus));
        Self(Arc::new(State { bus, admin, events }))
    }

    /// Resets the adapter, gives it rings in fresh memory, and enables it. Gives the port its
    /// address.
    pub fn bring_up(&self) {
        assert_eq!(self.register(regs::MAGIC), regs::MAGIC_VALUE, "magic number");
        assert_eq!(self.register(regs::VERSION), vrnic_abi::ABI_VERSION, "version");
        self.enable_dma();
        self.reset();
        let (admin, events) = (AdminQueue::new(self.ram(), ADMIN_LOG), async_events(&self.0.bus));
        self.set_address(regs::ADMIN_SQ_LO, admin.sq);
        self.set_address(regs::ADMIN_CQ_LO, admin.cq);
        self.set_register(regs::ADMIN_LOG_SIZE, u32::from(ADMIN_LOG));
        self.set_address(regs::ASYNC_EQ_LO, events.addr);
        self.set_register(regs::ASYNC_EQ_LOG_SIZE, u32::from(ASYNC_LOG));
        (*self.0.admin.lock(), *self.0.events.lock()) = (admin, events);
        self.set_register(regs::CONTROL, Control::ENABLE.bits());
        self.wait_status("ENABLED", |status| status.intersects(Status::ENABLED | Status::FATAL));
        let fatal = self.register(regs::FATAL_CODE);
        assert!(self.status().contains(Status::ENABLED), "not enabled, fatal code {fatal}");
        self.give_address();
    }

    /// Resets the adapter through the register and waits for the end of the reset.
    pub fn reset(&self) {
        self.set_register(regs::CONTROL, Control::RESET.bits());
        self.wait_status("end of reset", |status| !status.contains(Status::RESETTING));
    }

    /// Returns the status register.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_bits_retain(self.register(regs::STATUS))
    }

    /// Waits for a status.
    #[track_caller]
    pub fn wait_status(&self, what: &str, test: impl Fn(Status) -> bool) {
        wait::until(what, || test(self.status()).then_some(()));
    }

    /// Reads a register.
    #[must_use]
    pub fn register(&self, offset: u32) -> u32 {
        self.0.bus.read_register(offset)
    }

    /// Writes a register.
    pub fn set_register(&self, offset: u32, value: u32) {
        self.0.bus.write_register(offset, value);
    }

    /// Writes a pair of registers that hold an address.
    pub fn set_address(&self, offset: u32, addr: u64) {
        self.set_register(offset, addr as u32);
        self.set_register(offset + 4, (addr >> 32) as u32);
    }

    /// Returns guest memory.
    #[must_use]
    pub fn ram(&self) -> &Ram {
        self.0.bus.ram()
    }

    /// Returns BAR2.
    #[must_use]
    pub fn bar(&self) -> &Memory {
        self.0.bus.bar()
    }

    /// Returns the MAC of the adapter.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.0.bus.mac()
    }

    /// Returns the word at a byte offset of a slot.
    #[must_use]
    #[inline]
    pub fn slot32(&self, uar: u32, slot: u32, offset: u32) -> &AtomicU32 {
        let at = Doorbell::new(uar.into(), slot.into()).offset() + u64::from(offset);
        self.bar().word32(at).expect("a word of a slot")
    }

    /// Returns the first two words of a slot.
    #[must_use]
    #[inline]
    pub fn slot64(&self, uar: u32, slot: u32) -> &AtomicU64 {
        let at = Doorbell::new(uar.into(), slot.into()).offset();
        self.bar().word64(at).expect("a slot")
    }

    /// Rings the doorbell of a slot: sets its bit in the summary, and kicks the device if it wants
    /// a kick.
    #[inline]
    pub fn ring(&self, uar: u32, slot: u32) {
        let page = UarIndex::new(uar);
        let summary = self.bar().word64(page.summary().offset()).expect("a UAR");
        summary.fetch_or(SlotIndex::new(slot).summary_bit(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let armed = self.bar().word32(page.armed().offset()).expect("a UAR");
        if armed.load(Ordering::Relaxed) != 0 {
            self.set_register(regs::KICK, uar);
        }
    }

    /// Takes the next asynchronous event, if there is one.
    #[must_use]
    pub fn event(&self) -> Option<(Kind, u32)> {
        self.0.events.lock().poll()
    }

    /// Waits for the next asynchronous event.
    #[track_caller]
    pub fn wait_event(&self) -> (Kind, u32) {
        wait::until("asynchronous event", || self.event())
    }

    /// Takes all asynchronous events, in order.
    pub fn drain_events(&self) -> Vec<(Kind, u32)> {
        std::iter::from_fn(|| self.event()).collect()
    }

    /// Calls `run` with the admin queue.
    pub fn with_admin<T>(&self, run: impl FnOnce(&mut AdminQueue) -> T) -> T {
        run(&mut self.0.admin.lock())
    }
}

/// Returns the asynchronous event queue, in fresh memory.
fn async_events(bus: &impl Bus) -> EventQueue {
    EventQueue::new(bus.ram(), bus.bar(), ASYNC_LOG, uar::ASYNC_EQ_SLOT)
}

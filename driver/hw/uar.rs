// SPDX-License-Identifier: GPL-2.0
//! Doorbells (BAR2): the kernel's own page. Stores go to memory shared with the adapter; it
//! is only kicked when it sleeps. See `abi::uar` for the protocol.

use abi::{
    SlotIndex, UarIndex,
    doorbell::{
        ArmRequest, CQ_SEEN, CQ_STATE, CQ_TAKEN, RQ_PI, SRQ_FREED, ci_and_arm, mark_offset,
    },
    pci::BAR_UAR,
    regs::KICK,
    uar::{
        ARMED_OFFSET, CqState, HEARTBEAT_OFFSET, LIFE_OFFSET, SUMMARY_OFFSET, UAR_COUNT, UAR_LEN,
    },
};
use kernel::{
    device::Bound,
    io::{Io, IoBackend, IoBase, MmioBackend},
    pci::{self, Bar, DevresBar},
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Full, Relaxed},
        barrier::{Full as FullBarrier, smp_mb},
    },
};

use super::regs::Registers;

const LENGTH: usize = UAR_LEN as usize;

/// The kernel's doorbell page.
pub(crate) struct Doorbells {
    bar: DevresBar<LENGTH>,
    regs: Arc<Registers>,
}

impl Doorbells {
    /// Maps the page.
    pub(crate) fn map(pdev: &pci::Device<Bound>, regs: Arc<Registers>) -> Result<Self> {
        let bar = pdev.iomap_region_sized::<LENGTH>(BAR_UAR, c"vrnic doorbells")?;
        Ok(Self { bar: bar.into_devres()?, regs })
    }

    /// Returns the adapter's heartbeat counter, or `None` if the adapter no longer exists.
    pub(crate) fn heartbeat(&self) -> Option<u64> {
        let beat = self.bar.try_access()?.try_read64(HEARTBEAT_OFFSET as usize).ok()?;
        // A read that no device answers returns all ones.
        (beat != u64::MAX).then_some(beat)
    }

    /// Tells all processes that the adapter is dead and accesses no memory any more. Their pages
    /// are ordinary memory like this one, so the store succeeds whatever the state of the adapter
    /// is.
    pub(crate) fn end_lives(&self) {
        let Some(bar) = self.bar.try_access() else { return };
        for uar in 1..UAR_COUNT {
            // The mapping is as long as the BAR; a shorter one has fewer pages to tell.
            // CAST: inside the BAR.
            let offset = UarIndex::new(uar).offset() as usize + LIFE_OFFSET as usize;
            let _ = bar.try_write32(0, offset);
        }
    }

    /// Posts the entries of a send queue below `pi`, and rings its doorbell.
    pub(crate) fn ring_sq(&self, slot: SlotIndex, pi: u32) {
        self.with_slot(slot, |bar, offset| {
            bar.try_write32(pi, offset)?;
            self.ring(bar, slot)
        });
    }

    /// Stores a mark, which says that its transfer has ended, and rings the doorbell. The word must
    /// be below [`abi::direct::MARKS`].
    pub(crate) fn mark(&self, slot: SlotIndex, word: u32, mark: u32) {
        // CAST: inside a slot.
        let at = mark_offset(word) as usize;
        self.with_slot(slot, |bar, offset| {
            bar.try_write32(mark, offset + at)?;
            self.ring(bar, slot)
        });
    }

    /// Posts the entries of a receive queue below `pi`.
    pub(crate) fn set_rq_pi(&self, slot: SlotIndex, pi: u32) {
        self.with_slot(slot, |bar, offset| bar.try_write32(pi, offset + RQ_PI as usize));
    }

    /// Posts the entries of the receive queue of a stream below `pi`, and rings its doorbell.
    pub(crate) fn ring_rq(&self, slot: SlotIndex, pi: u32) {
        self.with_slot(slot, |bar, offset| {
            bar.try_write32(pi, offset + RQ_PI as usize)?;
            self.ring(bar, slot)
        });
    }

    /// Posts the entries of a shared receive queue below `pi`.
    pub(crate) fn set_srq_pi(&self, slot: SlotIndex, pi: u32) {
        self.with_slot(slot, |bar, offset| bar.try_write32(pi, offset));
    }

    /// Returns the first entry of a shared receive queue that is not free, as the adapter has
    /// reported last; `None` when it has gone.
    pub(crate) fn srq_freed(&self, slot: SlotIndex) -> Option<u32> {
        self.read(slot, SRQ_FREED)
    }

    /// Resets the indices of both queues of a queue pair.
    pub(crate) fn reset_qp(&self, slot: SlotIndex) {
        self.with_slot(slot, |bar, offset| bar.try_write64(0, offset));
    }

    /// Entries of a completion queue are free again.
    pub(crate) fn set_cq_ci(&self, slot: SlotIndex, ci: u32) {
        self.with_slot(slot, |bar, offset| bar.try_write32(ci, offset));
    }

    /// Entries of a holding completion queue are free again. If the adapter holds entries back, the
    /// doorbell is rung.
    pub(crate) fn free_held_cq(&self, slot: SlotIndex, ci: u32) {
        self.with_slot(slot, |bar, offset| {
            bar.try_write32(ci, offset)?;
            // The index is visible before the state is read.
            smp_mb(FullBarrier);
            if bar.try_read32(offset + CQ_STATE as usize)? == CqState::Full as u32 {
                self.ring(bar, slot)?;
            }
            Ok(())
        });
    }

    /// Returns the state of a completion queue as the adapter has stored it.
    pub(crate) fn cq_state(&self, slot: SlotIndex) -> Option<CqState> {
        CqState::from_raw(self.read(slot, CQ_STATE)?)
    }

    /// Returns the word of the arm request of a completion queue that the adapter has read last;
    /// `None` when it has gone.
    pub(crate) fn taken_arm(&self, slot: SlotIndex) -> Option<u32> {
        self.read(slot, CQ_TAKEN)
    }

    /// Arms a completion queue whose consumer index is `ci`.
    pub(crate) fn arm_cq(&self, slot: SlotIndex, ci: u32, request: ArmRequest) {
        self.with_slot(slot, |bar, offset| {
            bar.try_write32(request.seen, offset + CQ_SEEN as usize)?;
            bar.try_write64(ci_and_arm(ci, request.word), offset)?;
            self.ring(bar, slot)
        });
    }

    /// Entries of an event queue are free again; to be called before they are acted upon.
    pub(crate) fn set_eq_ci(&self, slot: SlotIndex, ci: u32) {
        self.with_slot(slot, |bar, offset| bar.try_write32(ci, offset));
        smp_mb(FullBarrier);
    }

    /// Returns the word at this offset in a slot; `None` when the adapter has gone.
    fn read(&self, slot: SlotIndex, word: u32) -> Option<u32> {
        // CAST: inside the page.
        let offset = slot.exists().then_some((slot.offset() + word) as usize)?;
        self.bar.try_access()?.try_read32(offset).ok()
    }

    /// Calls `f` with the offset of a slot; does nothing when the adapter has gone.
    fn with_slot(&self, slot: SlotIndex, f: impl FnOnce(&Bar<'_, LENGTH>, usize) -> Result) {
        if !slot.exists() {
            kernel::pr_warn_once!("doorbell slot {slot:?} does not exist\n");
            return;
        }
        if let Some(bar) = self.bar.try_access() {
            // Offsets inside the page do not fail.
            let _ = f(&bar, slot.offset() as usize);
        }
    }

    /// Tells the adapter that a slot has changed, and wakes the adapter if it sleeps.
    fn ring(&self, bar: &Bar<'_, LENGTH>, slot: SlotIndex) -> Result {
        let summary = summary(bar);
        let bit = slot.summary_bit();
        let mut old = summary.load(Relaxed);
        // Fully ordered: the slot's word is visible before the bit.
        while let Err(now) = summary.cmpxchg(old, old | bit, Full) {
            old = now;
        }
        // The bit is visible before `armed` is read. The exchange is no barrier everywhere: on a
        // single processor the kernel patches lock prefixes away, but not this one.
        smp_mb(FullBarrier);
        if bar.try_read32(ARMED_OFFSET as usize)? != 0 {
            self.regs.write(KICK, 0);
        }
        Ok(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("atomic instructions on memory of a PCI device need x86-64; see Kbuild");

/// Returns the summary word of the page.
fn summary<'a>(bar: &'a Bar<'_, LENGTH>) -> &'a Atomic<u64> {
    let base = MmioBackend::as_ptr(bar.as_view()).cast::<u8>();
    // SAFETY: the BAR is at least a page long and aligned to one; it is plain memory shared with
    // the adapter, and on x86-64, which Kbuild asks for, locked instructions work whatever its
    // memory type; all accesses to this word are atomic.
    unsafe { Atomic::from_ptr(base.add(SUMMARY_OFFSET as usize).cast()) }
}

// SPDX-License-Identifier: GPL-2.0
//! Event queues: rings that the adapter writes and interrupt handlers read.

use abi::{
    SlotIndex,
    eq::{EQE_LEN, Eqe},
};
use kernel::{
    device, new_spinlock_irq,
    prelude::*,
    sync::{
        Arc, SpinLockIrq,
        barrier::{Read, dma_mb},
    },
};

use super::{
    ring::{Ring, RingShape},
    uar::Doorbells,
};

/// log2 of the number of entries. An object has at most one event in the queue, so this does not
/// limit the number of objects.
pub(crate) const LOG_SIZE: u8 = 9;

#[pin_data]
pub(crate) struct EventQueue {
    ring: Ring,
    doorbells: Arc<Doorbells>,
    #[pin]
    state: SpinLockIrq<State>,
}

struct State {
    /// Consumer index.
    ci: u32,
    /// The doorbell slot that it is published in; known once the adapter has the queue.
    doorbell: SlotIndex,
}

impl EventQueue {
    /// Creates an empty queue, for the doorbell slot `doorbell`.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        doorbells: Arc<Doorbells>,
        doorbell: SlotIndex,
    ) -> Result<Arc<Self>> {
        // CAST: log2 of a small number.
        let ring = Ring::new(
            device,
            RingShape { log_size: LOG_SIZE, log_stride: EQE_LEN.trailing_zeros() as u8 },
        )?;
        let state = State { ci: 0, doorbell };
        Arc::pin_init(
            pin_init!(Self {
                ring,
                doorbells,
                state <- new_spinlock_irq!(state, "vrnic::EventQueue"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns its address for the adapter; it is contiguous.
    pub(crate) fn dma_address(&self) -> u64 {
        self.ring.dma_address()
    }

    /// Sets its doorbell slot, which the adapter has chosen.
    pub(crate) fn set_doorbell(&self, doorbell: SlotIndex) {
        self.state.lock().doorbell = doorbell;
    }

    /// Takes the next event. Its entry is free again on return: from then on, the adapter can
    /// report the next event of that object.
    pub(crate) fn next(&self) -> Option<Eqe> {
        let mut state = self.state.lock();
        let offset = core::mem::offset_of!(Eqe, stamp) as u32;
        if self.ring.word(state.ci, offset).ok()? != abi::stamp(state.ci) {
            return None;
        }
        // The rest of the entry was written before its stamp.
        dma_mb(Read);
        let event = self.ring.read(state.ci).ok()?;
        state.ci = state.ci.wrapping_add(1);
        self.doorbells.set_eq_ci(state.doorbell, state.ci);
        Some(event)
    }
}

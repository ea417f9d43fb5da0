//! UARs: pages of doorbell slots, and the object that belongs to each slot.

use std::sync::Arc;

use parking_lot::RwLock;
use vrnic_abi::ContextId;
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::uar::{SLOT_END, SLOT_FIRST, SLOTS_PER_GROUP};
use vrnic_abi::{SlotIndex, UarIndex};

use crate::domain::Domain;
use crate::host::Host;
use crate::objects::cq::Cq;
use crate::objects::doorbell::worker_of;
use crate::objects::qp::Qp;

/// The owner of a slot.
#[derive(Debug)]
pub enum Owner<H: Host> {
    /// A QP.
    Qp(Arc<Qp<H>>),
    /// A CQ.
    Cq(Arc<Cq>),
    /// An EQ, or an object that is being created. Its doorbell has no effect.
    Quiet,
}

impl<H: Host> Clone for Owner<H> {
    fn clone(&self) -> Self {
        match self {
            Self::Qp(qp) => Self::Qp(Arc::clone(qp)),
            Self::Cq(cq) => Self::Cq(Arc::clone(cq)),
            Self::Quiet => Self::Quiet,
        }
    }
}

/// A UAR in use.
#[derive(Debug)]
pub struct Uar<H: Host> {
    /// The number of the UAR.
    pub number: UarIndex,
    /// The function to which it belongs.
    pub domain: Domain,
    /// The context that it belongs to.
    pub context: ContextId,
    slots: RwLock<Slots<H>>,
}

/// A worker's copy of the list of UARs in use.
#[derive(Debug)]
pub struct UarList<H: Host> {
    /// The version of the list at the time of the copy.
    pub version: u64,
    /// The UARs.
    pub uars: Vec<Arc<Uar<H>>>,
}

impl<H: Host> Default for UarList<H> {
    fn default() -> Self {
        Self { version: 0, uars: Vec::new() }
    }
}

#[derive(Debug)]
struct Slots<H: Host> {
    owners: Vec<Option<Owner<H>>>,
    used: u32,
    /// The worker for the next QP.
    turn: usize,
}

impl<H: Host> Uar<H> {
    /// Creates a UAR whose slots are all free.
    #[must_use]
    pub fn new(number: UarIndex, domain: Domain, context: ContextId) -> Self {
        let slots = Slots { owners: Vec::new(), used: 0, turn: 0 };
        Self { number, domain, context, slots: RwLock::new(slots) }
    }

    /// Allocates the lowest free slot. For a QP, alternates between `spread` workers while each has
    /// a free slot.
    pub fn take(&self, spread: Option<usize>) -> Option<Doorbell> {
        let mut slots = self.slots.write();
        let turn = slots.turn;
        let slot = spread
            .and_then(|workers| slots.free(|slot| worker_of(slot, workers) == turn % workers))
            .or_else(|| slots.free(|_| true))?;
        slots.turn = turn.wrapping_add(usize::from(spread.is_some()));
        let at = index(slot);
        if slots.owners.len() <= at {
            slots.owners.resize_with(at + 1, || None);
        }
        *slots.owners.get_mut(at)? = Some(Owner::Quiet);
        slots.used += 1;
        Some(Doorbell::new(self.number, slot))
    }

    /// Sets the owner of an allocated slot.
    pub fn assign(&self, slot: SlotIndex, owner: Owner<H>) {
        if let Some(place) = self.slots.write().owners.get_mut(index(slot)) {
            *place = Some(owner);
        }
    }

    /// Frees a slot.
    pub fn release(&self, slot: SlotIndex) {
        let mut slots = self.slots.write();
        if slots.owners.get_mut(index(slot)).and_then(Option::take).is_some() {
            slots.used -= 1;
        }
    }

    /// Returns whether any slot is allocated.
    #[must_use]
    pub fn in_use(&self) -> bool {
        self.slots.read().used > 0
    }

    /// Calls `each` for the slots of `group` that have an owner. Returns whether there was one.
    pub fn group(&self, group: u32, mut each: impl FnMut(&Owner<H>)) -> bool {
        let slots = self.slots.read();
        let end = (group + 1) * SLOTS_PER_GROUP;
        let first = (end - SLOTS_PER_GROUP).max(SLOT_FIRST);
        let owners = slots.owners.get(index(SlotIndex::new(first))..).unwrap_or_default();
        let mut any = false;
        for owner in owners.iter().take(end.saturating_sub(first) as usize).flatten() {
            any = true;
            each(owner);
        }
        any
    }
}

impl<H: Host> Slots<H> {
    /// Returns the lowest free slot for which `accept` holds.
    fn free(&self, taste: impl Fn(SlotIndex) -> bool) -> Option<SlotIndex> {
        let free = |slot: &SlotIndex| !matches!(self.owners.get(index(*slot)), Some(Some(_)));
        (SLOT_FIRST..SLOT_END).map(SlotIndex::new).filter(|slot| taste(*slot)).find(free)
    }
}

fn index(slot: SlotIndex) -> usize {
    slot.get().checked_sub(SLOT_FIRST).map_or(usize::MAX, |index| index as usize)
}

//! Doorbell slots of a UAR, and which object each rings.

use std::sync::Arc;

use parking_lot::RwLock;
use vrnic_abi::uar::{SLOT_END, SLOT_FIRST, SLOT_LEN, SLOTS_PER_GROUP, UAR_LEN};

use crate::cq::Cq;
use crate::host::Host;
use crate::qp::Qp;

/// Offset in BAR2 of a slot.
#[must_use]
pub fn offset(uar: u32, slot: u32) -> u64 {
    base(uar) + u64::from(slot) * u64::from(SLOT_LEN)
}

/// Offset in BAR2 of a UAR.
#[must_use]
pub fn base(uar: u32) -> u64 {
    u64::from(uar) * u64::from(UAR_LEN)
}

/// Who owns a slot.
#[derive(Debug)]
pub enum Owner<H: Host> {
    /// A QP.
    Qp(Arc<Qp<H>>),
    /// A CQ.
    Cq(Arc<Cq>),
    /// An EQ, or an object in the making: ringing it has no effect.
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
    /// Its number.
    pub number: u32,
    /// The context it belongs to.
    pub context: u32,
    slots: RwLock<Slots<H>>,
}

#[derive(Debug)]
struct Slots<H: Host> {
    owners: Vec<Option<Owner<H>>>,
    used: u32,
}

impl<H: Host> Uar<H> {
    /// A UAR whose slots are all free.
    #[must_use]
    pub fn new(number: u32, context: u32) -> Self {
        let slots = Slots { owners: Vec::new(), used: 0 };
        Self { number, context, slots: RwLock::new(slots) }
    }

    /// Takes the lowest free slot.
    pub fn take(&self) -> Option<u32> {
        let mut slots = self.slots.write();
        let free = slots.owners.iter().position(Option::is_none).unwrap_or(slots.owners.len());
        let slot =
            u32::try_from(free).ok()?.checked_add(SLOT_FIRST).filter(|slot| *slot < SLOT_END)?;
        if free == slots.owners.len() {
            slots.owners.push(None);
        }
        *slots.owners.get_mut(free)? = Some(Owner::Quiet);
        slots.used += 1;
        Some(slot)
    }

    /// Names the owner of a slot that was taken.
    pub fn assign(&self, slot: u32, owner: Owner<H>) {
        if let Some(place) = self.slots.write().owners.get_mut(index(slot)) {
            *place = Some(owner);
        }
    }

    /// Gives a slot back.
    pub fn release(&self, slot: u32) {
        let mut slots = self.slots.write();
        if slots.owners.get_mut(index(slot)).and_then(Option::take).is_some() {
            slots.used -= 1;
        }
    }

    /// Whether any slot is taken.
    #[must_use]
    pub fn in_use(&self) -> bool {
        self.slots.read().used > 0
    }

    /// Calls `each` for the slots of `group` that have an owner; returns whether there was one.
    pub fn group(&self, group: u32, mut each: impl FnMut(&Owner<H>)) -> bool {
        let slots = self.slots.read();
        let first = group * SLOTS_PER_GROUP;
        let mut any = false;
        for slot in first.max(SLOT_FIRST)..first + SLOTS_PER_GROUP {
            if let Some(Some(owner)) = slots.owners.get(index(slot)) {
                any = true;
                each(owner);
            }
        }
        any
    }
}

fn index(slot: u32) -> usize {
    slot.checked_sub(SLOT_FIRST).map_or(usize::MAX, |index| index as usize)
}

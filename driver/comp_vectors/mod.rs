// SPDX-License-Identifier: GPL-2.0
//! Completion event handlers: one for each completion vector, each with an event queue and a
//! processor of its own.
//!
//! The handlers are set once, when the adapter is brought up. A completion queue is bound to a
//! handler by the handler's *id*, which is its index in the array of descriptors, and is also the
//! completion vector that programs name. With as many vectors as processors, handler *n* runs on
//! processor *n*; with fewer, the id of a processor's handler is the processor's number modulo the
//! number of handlers.
//!
//! A handler stays bound to its queues until they are destroyed; only its interrupt moves. The
//! interrupt goes to the handler's own processor while that is online, otherwise to another of the
//! handler's processors, and otherwise to any processor.

use abi::Eqn;
use kernel::{
    cpu::{CpuId, nr_cpu_ids},
    device, new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc, Mutex, SpinLock,
        aref::ARef,
        atomic::{Atomic, Relaxed},
    },
};

use self::{
    balance::{Balance, Candidate, Rule},
    cpuhp::Follower,
};
use crate::hw::irq::{Line, Turn};

pub(crate) mod balance;
pub(crate) mod cpuhp;

/// No processor.
const NOWHERE: u32 = u32::MAX;

/// The state that the interrupt handler and its descriptor share.
pub(crate) struct Handler {
    /// The handler's id.
    pub(crate) id: u32,
    /// The processor that its interrupt goes to now.
    cpu: Atomic<u32>,
    interrupts: Atomic<u64>,
    turns: Atomic<u64>,
    events: Atomic<u64>,
    cqs: Atomic<u32>,
}

impl Handler {
    /// Creates the state of a handler that has had no events yet.
    pub(crate) fn new(id: u32) -> Result<Arc<Self>> {
        let handler = Self {
            id,
            cpu: Atomic::new(NOWHERE),
            interrupts: Atomic::new(0),
            turns: Atomic::new(0),
            events: Atomic::new(0),
            cqs: Atomic::new(0),
        };
        Ok(Arc::new(handler, GFP_KERNEL)?)
    }

    /// Counts an interrupt, or a turn of its thread, that took `events` events.
    pub(crate) fn count(&self, turn: Turn, events: u32) {
        let counter = match turn {
            Turn::Interrupt => &self.interrupts,
            Turn::Thread => &self.turns,
        };
        counter.fetch_add(1, Relaxed);
        self.events.fetch_add(events.into(), Relaxed);
    }

    /// Returns the processor that its interrupt goes to now.
    pub(crate) fn cpu(&self) -> Option<u32> {
        Some(self.cpu.load(Relaxed)).filter(|cpu| *cpu != NOWHERE)
    }

    /// Returns the number of interrupts.
    pub(crate) fn interrupts(&self) -> u64 {
        self.interrupts.load(Relaxed)
    }

    /// Returns the number of turns of the interrupt's thread.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// Returns the number of events.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// Counts a completion queue that was bound to it.
    pub(crate) fn bind(&self) {
        self.cqs.fetch_add(1, Relaxed);
    }

    /// Stops counting a completion queue that was bound to it.
    pub(crate) fn unbind(&self) {
        self.cqs.fetch_sub(1, Relaxed);
    }
}

/// The descriptor of a handler.
pub(crate) struct Descriptor {
    /// The counters of the interrupt handler.
    pub(crate) handler: Arc<Handler>,
    /// The event queue of the handler.
    pub(crate) eqn: Eqn,
    /// The interrupt of the handler.
    pub(crate) line: Arc<Line>,
}

/// The descriptors of all handlers, by id.
#[pin_data]
pub(crate) struct Handlers {
    device: ARef<device::Device>,
    descriptors: KVec<Descriptor>,
    #[pin]
    balance: Mutex<Balance>,
    /// For each processor, whether it is online.
    #[pin]
    online: SpinLock<KVec<bool>>,
}

impl Handlers {
    /// Returns the handlers that these describe; queues that leave the choice are spread by `rule`.
    pub(crate) fn new(
        device: &device::Device,
        descriptors: KVec<Descriptor>,
        rule: Rule,
    ) -> Result<Arc<Self>> {
        let balance = Balance::new(rule, descriptors.len())?;
        let online = KVec::from_elem(false, nr_cpu_ids() as usize, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                device: device.into(),
                descriptors,
                balance <- new_mutex!(balance, "vrnic::Balance"),
                online <- new_spinlock!(online, "vrnic::Handlers"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the number of handlers.
    pub(crate) fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Returns a handler's descriptor.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an id that was not given.
    pub(crate) fn get(&self, id: u32) -> Result<&Descriptor> {
        self.descriptors.get(id as usize).ok_or(EINVAL)
    }

    /// Returns all descriptors, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Descriptor> {
        self.descriptors.iter()
    }

    /// Returns the id of a processor's handler.
    pub(crate) fn of_cpu(&self, cpu: u32) -> u32 {
        // CAST: there are fewer than processors.
        cpu % self.descriptors.len().max(1) as u32
    }

    /// Returns the handler for a queue whose creator leaves the choice.
    pub(crate) fn any(&self) -> u32 {
        let candidates = self.descriptors.iter().map(|descriptor| {
            let handler = &*descriptor.handler;
            Candidate {
                events: handler.events(),
                queues: handler.cqs.load(Relaxed),
                // The interrupt of a vector whose processors are all offline runs on another
                // vector's processor.
                at_home: handler.cpu().is_some_and(|cpu| self.of_cpu(cpu) == handler.id),
            }
        });
        self.balance.lock().choose(candidates)
    }

    /// Sends a handler's interrupt to a processor.
    fn send(&self, descriptor: &Descriptor, cpu: u32) {
        let Some(id) = CpuId::from_u32(cpu) else { return };
        match descriptor.line.set_affinity(id) {
            Ok(()) => descriptor.handler.cpu.store(cpu, Relaxed),
            Err(error) => {
                let id = descriptor.handler.id;
                dev_warn!(
                    self.device,
                    "the interrupt of vector {id} cannot be moved to CPU {cpu}: {error:?}\n"
                );
            }
        }
    }
}

impl Follower for Handlers {
    /// Moves handlers to this processor: its own, and those that no processor serves.
    fn online(&self, cpu: u32) {
        if let Some(is) = self.online.lock().get_mut(cpu as usize) {
            *is = true;
        }
        for descriptor in &self.descriptors {
            let id = descriptor.handler.id;
            let comes = match descriptor.handler.cpu() {
                None => true,
                Some(_) if cpu == id => true,
                Some(now) => self.of_cpu(cpu) == id && self.of_cpu(now) != id,
            };
            if comes {
                self.send(descriptor, cpu);
            }
        }
    }

    /// Moves the handlers on this processor to another of theirs, or to the next that is online.
    fn offline(&self, cpu: u32) {
        let mut online = self.online.lock();
        if let Some(is) = online.get_mut(cpu as usize) {
            *is = false;
        }
        let is_online = |other: &u32| online.get(*other as usize).is_some_and(|is| *is);
        let cpus = nr_cpu_ids();
        let next = (1..cpus).map(|step| (cpu + step) % cpus).find(is_online);
        let mut moves = [NOWHERE; abi::pci::MSIX_VECTORS as usize];
        for (descriptor, target) in self.descriptors.iter().zip(&mut moves) {
            if descriptor.handler.cpu() == Some(cpu) {
                let own = |other: &u32| self.of_cpu(*other) == descriptor.handler.id;
                let to = (0..cpus).filter(own).find(is_online).or(next);
                *target = to.unwrap_or(NOWHERE);
            }
        }
        drop(online);
        for (descriptor, target) in self.descriptors.iter().zip(moves) {
            if target != NOWHERE {
                self.send(descriptor, target);
            }
        }
    }
}

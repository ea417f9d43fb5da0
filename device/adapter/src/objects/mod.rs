//! The objects of an adapter, and the references between them. All changes are made under
//! [`Objects::admin`], so that counts of users cannot race. Look-ups need only the tables' own
//! locks.
//!
//! | module | contents |
//! | --- | --- |
//! | [`id_table`] | objects by number |
//! | [`qp`], [`srq`], [`cq`], [`eq`] | queue pairs, shared receive queues, completion and event queues |
//! | [`held_events`] | events that wait for room in their queue |
//! | [`core`] | the part that all objects share: host, identity, counters, port, events |
//! | [`context`] | the context in which a queue is used |
//! | [`completion`], `moderation` | a completion before it is encoded; events that wait for more completions |
//! | [`faults`] | injected faults, and what is recorded for those who look for faults |
//! | [`network`] | addresses, connections and frames that belong to objects |
//! | [`direct`] | direct transfers |
//! | [`multicast`] | multicast groups and their members |
//! | [`pace`] | the ceilings of a function |
//! | `counter_sets` | sets of counters, each for the work of some QPs |
//! | `optional_counters` | counters that the guest's administrator switches on |
//! | [`uar`], [`doorbell`] | doorbell pages and the owners of their slots; the workers of doorbells |

pub mod completion;
pub mod context;
pub mod core;
pub(crate) mod counter_sets;
pub mod cq;
pub mod direct;
pub mod doorbell;
pub mod eq;
pub mod faults;
pub mod held_events;
pub mod id_table;
pub(crate) mod moderation;
pub mod multicast;
pub mod network;
pub(crate) mod optional_counters;
pub mod pace;
pub mod qp;
pub mod srq;
pub mod uar;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use vrnic_abi::qp::{GSI_QPN, Type};
use vrnic_abi::uar::UAR_COUNT;
use vrnic_abi::{ContextId, Cqn, Eqn, Pdn, Qpn, Srqn, UarIndex, Xrcdn};

use crate::host::Host;
use crate::limits::meter::Meter;
use crate::limits::{self, Limits};
use crate::memory::device_sq::SqMemory;
use crate::memory::pages::PageBudget;
use crate::objects::core::Core;
use crate::objects::counter_sets::CounterSets;
use crate::objects::cq::Cq;
use crate::objects::eq::EventQueue;
use crate::objects::id_table::IdTable;
use crate::objects::multicast::Groups;
use crate::objects::network::claims::Claims;
use crate::objects::network::flows::Flows;
use crate::objects::network::gids::Gids;
use crate::objects::network::spread::Spreads;
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::objects::uar::{Uar, UarList};

/// A user context, or the context of the kernel.
#[derive(Debug)]
pub struct Context {
    /// The number of the context; the kernel has 0.
    pub id: ContextId,
    /// The number of UARs and PDs that belong to it.
    pub users: AtomicU32,
}

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    /// The number of the PD.
    pub pdn: Pdn,
    /// The context that the PD belongs to.
    pub context: ContextId,
    /// The number of QPs, SRQs and regions that belong to it.
    pub users: AtomicU32,
}

/// An XRC domain, in which QPs of all contexts can reach SRQs of all contexts.
#[derive(Debug)]
pub struct Xrcd {
    /// The number of the XRC domain.
    pub xrcdn: Xrcdn,
    /// The number of SRQs and XRC targets that belong to it.
    pub users: AtomicU32,
}

/// The state of the admin queue.
#[derive(Debug, Default)]
pub struct Admin {
    /// The rings, while the adapter is enabled.
    pub rings: Option<crate::registers::Rings>,
    /// Index of the next command.
    pub ci: u32,
    /// Index of the next completion.
    pub pi: u32,
}

/// All objects.
#[derive(Debug)]
pub struct Objects<H: Host> {
    core: Arc<Core<H>>,
    /// Serialises control work.
    pub admin: Mutex<Admin>,
    /// Contexts by number.
    pub contexts: IdTable<ContextId, Context>,
    /// PDs by number.
    pub pds: IdTable<Pdn, Pd>,
    /// CQs by number.
    pub cqs: IdTable<Cqn, Cq>,
    /// The entries of all CQs together.
    pub(crate) cq_entries: Meter,
    /// SRQs by number.
    pub srqs: Arc<IdTable<Srqn, Srq>>,
    /// XRC domains by number.
    pub xrcds: IdTable<Xrcdn, Xrcd>,
    /// QPs by number, except the general services QP.
    qps: IdTable<Qpn, Qp<H>>,
    /// The general services QP.
    gsi: RwLock<Option<Arc<Qp<H>>>>,
    /// Completion event queues by number.
    pub eqs: IdTable<Eqn, EventQueue>,
    /// UARs by number.
    pub uars: IdTable<UarIndex, Uar<H>>,
    /// UARs that the workers poll.
    pub active_uars: RwLock<Vec<Arc<Uar<H>>>>,
    /// Version of `active_uars`; workers keep copies of that list.
    uars_version: AtomicU64,
    /// True if an event queue may hold events.
    pub holding: Arc<AtomicBool>,
    /// Event queues that may hold events, including the asynchronous one.
    pub active_eqs: RwLock<Vec<Arc<EventQueue>>>,
    /// Memory of device-resident send queues.
    pub sq_memory: Mutex<SqMemory>,
    /// The budget of page addresses.
    pub page_budget: Arc<PageBudget>,
    /// The GID table.
    pub(crate) gids: Gids<H>,
    /// Multicast groups.
    pub groups: Groups<H>,
    /// TCP connections whose frames are for QPs.
    pub claims: Arc<Claims>,
    /// Flow rules.
    pub flows: Flows,
    /// The tables of QPs that spread frames over others.
    pub spreads: Spreads,
    /// Sets of counters.
    pub counter_sets: CounterSets,
}

impl<H: Host> Objects<H> {
    /// Creates an empty set of objects with these limits.
    #[must_use]
    pub fn new(core: &Arc<Core<H>>, limits: &Limits) -> Self {
        let objects = Self {
            core: Arc::clone(core),
            admin: Mutex::default(),
            contexts: IdTable::new(0, limits::MAX_CONTEXTS),
            pds: IdTable::new(1, limits::MAX_PD),
            cqs: IdTable::new(1, limits::MAX_CQ),
            cq_entries: Meter::new(limits::MAX_CQE),
            srqs: Arc::new(IdTable::new(1, limits::MAX_SRQ)),
            xrcds: IdTable::new(1, limits::MAX_XRCD),
            qps: IdTable::new(limits::FIRST_QPN, limits::MAX_QP),
            gsi: RwLock::default(),
            eqs: IdTable::new(1, limits::MAX_EQ),
            uars: IdTable::new(0, UAR_COUNT),
            active_uars: RwLock::default(),
            uars_version: AtomicU64::new(1),
            holding: Arc::default(),
            active_eqs: RwLock::default(),
            sq_memory: Mutex::default(),
            page_budget: Arc::default(),
            gids: Gids::default(),
            groups: Groups::default(),
            claims: Arc::default(),
            flows: Flows::default(),
            spreads: Spreads::default(),
            counter_sets: CounterSets::default(),
        };
        objects.set_limits(limits);
        objects
    }

    /// Changes the maximum numbers of objects, except those in the table of keys. Objects above
    /// them stay.
    pub(crate) fn set_limits(&self, limits: &Limits) {
        // The kernel's context does not count.
        self.contexts.set_max(limits.contexts.saturating_add(1));
        self.pds.set_max(limits.pd);
        self.cqs.set_max(limits.cq);
        self.cq_entries.set_maximum(limits.cqe);
        self.srqs.set_max(limits.srq);
        self.qps.set_max(limits.qp);
        self.uars.set_max(limits.uar);
        self.groups.set_max(limits.mcast);
        self.flows.set_max(limits.flows);
        self.core.ranges.set_max(limits.ranges);
    }

    /// Returns the number of QPs, without the general services QP.
    #[must_use]
    pub fn qp_count(&self) -> u32 {
        self.qps.len()
    }

    /// Returns the core of the adapter.
    #[must_use]
    pub fn core(&self) -> &Arc<Core<H>> {
        &self.core
    }

    /// Removes all objects except QPs, which are ended in an orderly way before.
    pub fn clear(&self) {
        self.set_uars(Vec::new());
        self.uars.restart();
        self.srqs.drain();
        self.xrcds.drain();
        // A worker or a peer may be about to report an event of a CQ that it has looked up.
        self.cqs.drain().iter().for_each(|cq| cq.end());
        self.cq_entries.clear();
        self.active_eqs.write().drain(..).for_each(|eq| eq.end());
        self.eqs.drain();
        self.pds.drain();
        self.contexts.restart();
        *self.sq_memory.lock() = SqMemory::default();
        self.gids.clear();
        self.groups.clear();
        self.flows.clear();
        self.spreads.clear();
        self.counter_sets.clear();
    }

    /// Returns the QP with this number.
    #[must_use]
    pub fn qp(&self, qpn: Qpn) -> Option<Arc<Qp<H>>> {
        if qpn.get() == GSI_QPN { self.gsi.read().clone() } else { self.qps.get(qpn) }
    }

    /// Returns the worker of the QP with this number, if the QP's type satisfies `has_type`.
    pub fn worker_of(&self, qpn: Qpn, has_type: impl Fn(Type) -> bool) -> Option<usize> {
        let worker = |qp: &Qp<H>| has_type(qp.kind).then_some(qp.worker());
        if qpn.get() == GSI_QPN {
            self.gsi.read().as_deref().and_then(worker)
        } else {
            self.qps.with(qpn, worker).flatten()
        }
    }

    /// Adds a QP of this type, which gets its number in `make`. Returns `None` if there is no room.
    pub fn add_qp(&self, kind: Type, make: impl FnOnce(Qpn) -> Qp<H>) -> Option<Arc<Qp<H>>> {
        if kind != Type::Gsi {
            return self.qps.insert(|qpn| Ok::<_, Infallible>(make(qpn))).unwrap_or_default();
        }
        let mut gsi = self.gsi.write();
        if gsi.is_some() {
            return None;
        }
        gsi.insert(Arc::new(make(Qpn::new(GSI_QPN)))).clone().into()
    }

    /// Removes a QP, and returns it.
    pub fn remove_qp(&self, qpn: Qpn) -> Option<Arc<Qp<H>>> {
        if qpn.get() == GSI_QPN { self.gsi.write().take() } else { self.qps.remove(qpn) }
    }

    /// Removes all QPs, and returns them.
    pub fn drain_qps(&self) -> Vec<Arc<Qp<H>>> {
        let mut qps = self.qps.drain();
        qps.extend(self.gsi.write().take());
        qps
    }

    /// Returns all QPs.
    #[must_use]
    pub fn all_qps(&self) -> Vec<Arc<Qp<H>>> {
        let mut qps = self.qps.all();
        qps.extend(self.gsi.read().clone());
        qps
    }

    /// Updates the list of UARs in use.
    pub fn refresh_uars(&self) {
        self.set_uars(self.uars.all());
    }

    fn set_uars(&self, uars: Vec<Arc<Uar<H>>>) {
        let mut active = self.active_uars.write();
        *active = uars;
        self.uars_version.fetch_add(1, Ordering::Release);
    }

    /// Returns whether a copy of this version of the list of UARs is up to date.
    #[inline]
    #[must_use]
    pub fn has_uars(&self, version: u64) -> bool {
        self.uars_version.load(Ordering::Acquire) == version
    }

    /// Updates a worker's copy of the list of UARs.
    #[inline]
    pub fn look_at_uars(&self, copy: &mut UarList<H>) {
        if !self.has_uars(copy.version) {
            let active = self.active_uars.read();
            copy.version = self.uars_version.load(Ordering::Acquire);
            copy.uars.clone_from(&active);
        }
    }

    /// Updates the list of event queues in use.
    pub fn refresh_eqs(&self, asynchronous: &Arc<EventQueue>) {
        let mut eqs = self.eqs.all();
        eqs.push(Arc::clone(asynchronous));
        *self.active_eqs.write() = eqs;
    }
}

/// Counts one more user.
pub fn hold(users: &AtomicU32) {
    users.fetch_add(1, Ordering::Relaxed);
}

/// Counts one user less.
pub fn release(users: &AtomicU32) {
    users.fetch_sub(1, Ordering::Relaxed);
}

/// Returns whether there are any users.
#[must_use]
pub fn held(users: &AtomicU32) -> bool {
    users.load(Ordering::Relaxed) != 0
}

//! The port: its link, whether it carries traffic, and its MTU.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::limits;
use crate::vlans::Vlans;

/// State that decides whether a port carries traffic.
#[derive(Clone, Copy, Debug)]
struct Gates {
    /// True if the link is up.
    link: bool,
    /// True if the driver has opened the port.
    open: bool,
    /// True if a rule for faults has taken the link away.
    fault: bool,
}

impl Gates {
    /// Returns whether there is a link, as the driver sees it.
    const fn has_link(self) -> bool {
        self.link && !self.fault
    }

    const fn carries(self) -> bool {
        self.has_link() && self.open
    }
}

#[derive(Debug)]
pub(crate) struct Port {
    gates: Mutex<Gates>,
    /// True if both gates are open, for the data path.
    carries: AtomicBool,
    /// Maximum packet payload that the driver has set, as `enum ib_mtu`.
    mtu: AtomicU8,
    /// Maximum packet payload that the network carries, as `enum ib_mtu`.
    limit: AtomicU8,
    /// Maximum packet payload by a rule for faults, as `enum ib_mtu`.
    fault_mtu: AtomicU8,
    /// True if rules have changed the port or its GID table.
    faulty: AtomicBool,
    vlans: OnceLock<Vlans>,
    /// True if raw packets that it sends come back instead of leaving.
    loops: AtomicBool,
}

/// The change of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// True if the link has changed.
    pub(crate) link: bool,
    /// True if the port has stopped to carry traffic.
    pub(crate) downed: bool,
}

impl Default for Port {
    /// Returns a port in its state after power-on: open, without a link.
    fn default() -> Self {
        Self {
            gates: Mutex::new(Gates { link: false, open: true, fault: false }),
            carries: AtomicBool::new(false),
            mtu: AtomicU8::new(limits::MAX_MTU),
            limit: AtomicU8::new(limits::MAX_MTU),
            fault_mtu: AtomicU8::new(limits::MAX_MTU),
            faulty: AtomicBool::new(false),
            vlans: OnceLock::new(),
            loops: AtomicBool::new(false),
        }
    }
}

impl Port {
    /// Returns whether requests are sent and received.
    #[inline]
    pub(crate) fn carries(&self) -> bool {
        self.carries.load(Ordering::Acquire)
    }

    /// Returns the VLANs of the port.
    pub(crate) fn vlans(&self) -> &Vlans {
        self.vlans.get_or_init(Vlans::default)
    }

    /// Sets its VLANs. Only the first call has an effect.
    pub(crate) fn set_vlans(&self, vlans: Vlans) {
        let _set_before = self.vlans.set(vlans);
    }

    /// Returns whether raw packets that it sends come back instead of leaving.
    pub(crate) fn loops(&self) -> bool {
        self.loops.load(Ordering::Relaxed)
    }

    /// Sets whether raw packets that it sends come back instead of leaving.
    pub(crate) fn set_loops(&self, loops: bool) {
        self.loops.store(loops, Ordering::Relaxed);
    }

    /// Returns whether there is a link.
    pub(crate) fn link(&self) -> bool {
        self.gates.lock().has_link()
    }

    /// Sets whether the link is up.
    pub(crate) fn set_link(&self, link: bool) -> Change {
        self.change(|gates| gates.link = link)
    }

    /// Opens or closes the port for the driver.
    pub(crate) fn set_open(&self, open: bool) -> Change {
        self.change(|gates| gates.open = open)
    }

    /// Takes the link away because of a rule for faults, or gives it back.
    pub(crate) fn set_fault_down(&self, down: bool) -> Change {
        self.change(|gates| gates.fault = down)
    }

    /// Sets the maximum packet payload that a rule for faults allows, if there is one.
    pub(crate) fn set_fault_mtu(&self, mtu: Option<u8>) {
        self.fault_mtu.store(mtu.unwrap_or(limits::MAX_MTU), Ordering::Relaxed);
    }

    /// Records whether rules have changed the port or its GID table.
    pub(crate) fn set_faulty(&self, faulty: bool) {
        self.faulty.store(faulty, Ordering::Relaxed);
    }

    /// Returns whether rules have changed the port or its GID table.
    pub(crate) fn is_faulty(&self) -> bool {
        self.faulty.load(Ordering::Relaxed)
    }

    fn change(&self, set: impl FnOnce(&mut Gates)) -> Change {
        let mut gates = self.gates.lock();
        let old = *gates;
        set(&mut gates);
        let carries = gates.carries();
        self.carries.store(carries, Ordering::Release);
        Change { link: old.has_link() != gates.has_link(), downed: old.carries() && !carries }
    }

    /// Returns the maximum packet payload, as `enum ib_mtu`.
    #[inline]
    pub(crate) fn mtu(&self) -> u8 {
        let limit = self.limit.load(Ordering::Relaxed).min(self.fault_mtu.load(Ordering::Relaxed));
        self.mtu.load(Ordering::Relaxed).min(limit)
    }

    /// Sets the maximum packet payload. The caller has checked that it is a valid value.
    pub(crate) fn set_mtu(&self, mtu: u8) {
        self.mtu.store(mtu, Ordering::Relaxed);
    }

    /// Limits the maximum packet payload.
    pub(crate) fn limit_mtu(&self, mtu: u8) {
        self.limit.store(mtu, Ordering::Relaxed);
    }
}

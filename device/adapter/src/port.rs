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
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    gates: Mutex<Gates>,
    /// True if both gates are open, for the data path.
    carries: AtomicBool,
    /// Maximum packet payload that the driver has set, as `enum ib_mtu`.
    mtu: AtomicU8,
    /// Maximum packet payload that the network carries, as `enum ib_mtu`.
    limit: AtomicU8,
    vlans: OnceLock<Vlans>,
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
            gates: Mutex::new(Gates { link: false, open: true }),
            carries: AtomicBool::new(false),
            mtu: AtomicU8::new(limits::MAX_MTU),
            limit: AtomicU8::new(limits::MAX_MTU),
            vlans: OnceLock::new(),
        }
    }
}

impl Port {
    /// Returns whether requests are sent and received.
    #[inline]
    pub(crate) fn carries(&self) -> bool {
        self.carries.load(Ordering::Acquire)
    }

    /// Returns its VLANs.
    pub(crate) fn vlans(&self) -> &Vlans {
        self.vlans.get_or_init(Vlans::default)
    }

    /// Sets its VLANs. Only the first call has an effect.
    pub(crate) fn set_vlans(&self, vlans: Vlans) {
        let _set_before = self.vlans.set(vlans);
    }

    /// Returns whether there is a link.
    pub(crate) fn link(&self) -> bool {
        self.gates.lock().link
    }

    /// Sets whether the link is up.
    pub(crate) fn set_link(&self, link: bool) -> Change {
        self.change(|gates| gates.link = link)
    }

    /// Opens or closes the port for the driver.
    pub(crate) fn set_open(&self, open: bool) -> Change {
        self.change(|gates| gates.open = open)
    }

    fn change(&self, set: impl FnOnce(&mut Gates)) -> Change {
        let mut gates = self.gates.lock();
        let old = *gates;
        set(&mut gates);
        let carries = gates.link && gates.open;
        self.carries.store(carries, Ordering::Release);
        Change { link: old.link != gates.link, downed: old.link && old.open && !carries }
    }

    /// Returns the maximum packet payload, as `enum ib_mtu`.
    #[inline]
    pub(crate) fn mtu(&self) -> u8 {
        self.mtu.load(Ordering::Relaxed).min(self.limit.load(Ordering::Relaxed))
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

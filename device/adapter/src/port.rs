//! The port: whether it carries anything, and how much in a packet.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::limits;

/// State that decides whether a port carries traffic.
#[derive(Clone, Copy, Debug)]
struct Gates {
    /// The link is up.
    link: bool,
    /// The driver has not closed the port.
    open: bool,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    gates: Mutex<Gates>,
    /// Both gates, for the datapath.
    carries: AtomicBool,
    /// Longest packet payload that the driver has set, as `enum ib_mtu`.
    mtu: AtomicU8,
    /// Longest packet payload that the network carries, as `enum ib_mtu`.
    limit: AtomicU8,
}

/// Change of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// True if the link has changed.
    pub(crate) link: bool,
    /// True if the port carried traffic and does no more.
    pub(crate) downed: bool,
}

impl Default for Port {
    /// A port after power-on: open, without a link.
    fn default() -> Self {
        Self {
            gates: Mutex::new(Gates { link: false, open: true }),
            carries: AtomicBool::new(false),
            mtu: AtomicU8::new(limits::MAX_MTU),
            limit: AtomicU8::new(limits::MAX_MTU),
        }
    }
}

impl Port {
    /// Returns whether requests leave and come in.
    #[inline]
    pub(crate) fn carries(&self) -> bool {
        self.carries.load(Ordering::Acquire)
    }

    /// Returns whether there is a link.
    pub(crate) fn link(&self) -> bool {
        self.gates.lock().link
    }

    /// The link came or went.
    pub(crate) fn set_link(&self, link: bool) -> Change {
        self.change(|gates| gates.link = link)
    }

    /// The driver opens or closes the port.
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

    /// Longest packet payload, as `enum ib_mtu`.
    #[inline]
    pub(crate) fn mtu(&self) -> u8 {
        self.mtu.load(Ordering::Relaxed).min(self.limit.load(Ordering::Relaxed))
    }

    /// Sets it; the caller has checked that there is such an MTU.
    pub(crate) fn set_mtu(&self, mtu: u8) {
        self.mtu.store(mtu, Ordering::Relaxed);
    }

    /// Sets the most that the MTU can be; the caller has checked that there is such an MTU.
    pub(crate) fn limit_mtu(&self, mtu: u8) {
        self.limit.store(mtu, Ordering::Relaxed);
    }
}

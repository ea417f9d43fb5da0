//! Which function has which MAC: how a connected QP finds its peer inside this daemon.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use crate::function::Function;
use crate::host::Host;
use crate::objects::qp::Peer;

/// The functions of a daemon.
#[derive(Debug)]
pub struct Fabric<H: Host> {
    functions: RwLock<BTreeMap<[u8; 6], Weak<Function<H>>>>,
    /// QPs that have joined multicast groups so far.
    joined: AtomicU64,
}

impl<H: Host> Default for Fabric<H> {
    fn default() -> Self {
        Self { functions: RwLock::default(), joined: AtomicU64::new(0) }
    }
}

impl<H: Host> Fabric<H> {
    /// Lets others find `function`.
    pub fn join(&self, function: &Arc<Function<H>>) {
        self.functions.write().insert(function.mac(), Arc::downgrade(function));
    }

    /// The function behind the station `mac`.
    #[must_use]
    pub fn function(&self, mac: [u8; 6]) -> Option<Arc<Function<H>>> {
        self.functions.read().get(&mac)?.upgrade()
    }

    /// The first function whose MAC is not below this bound.
    #[must_use]
    pub fn next(&self, from: Bound<[u8; 6]>) -> Option<Arc<Function<H>>> {
        let functions = self.functions.read();
        functions.range((from, Bound::Unbounded)).find_map(|(_, function)| function.upgrade())
    }

    /// A QP joins a multicast group: its place in the order of those who do.
    pub(crate) fn join_group(&self) -> u64 {
        self.joined.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of adapters that have joined.
    pub(crate) fn joined(&self) -> u64 {
        self.joined.load(Ordering::Relaxed)
    }

    /// The QP `qpn` behind the station `mac`.
    #[must_use]
    pub fn find(&self, mac: [u8; 6], qpn: u32) -> Option<Peer<H>> {
        let function = self.function(mac)?;
        let qp = function.qp(qpn)?;
        Some(Peer { function, qp })
    }
}

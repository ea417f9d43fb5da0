//! Which function has which MAC: how a connected QP finds its peer inside this daemon.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use crate::function::Function;
use crate::host::Host;
use crate::objects::qp::Peer;

/// The functions of a daemon.
#[derive(Debug)]
pub struct Fabric<H: Host> {
    functions: RwLock<HashMap<[u8; 6], Weak<Function<H>>>>,
}

impl<H: Host> Default for Fabric<H> {
    fn default() -> Self {
        Self { functions: RwLock::default() }
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

    /// All functions.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Function<H>>> {
        self.functions.read().values().filter_map(Weak::upgrade).collect()
    }

    /// The QP `qpn` behind the station `mac`.
    #[must_use]
    pub fn find(&self, mac: [u8; 6], qpn: u32) -> Option<Peer<H>> {
        let function = self.function(mac)?;
        let qp = function.qp(qpn)?;
        Some(Peer { function, qp })
    }
}

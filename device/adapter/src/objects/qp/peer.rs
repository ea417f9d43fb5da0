//! References to QPs of this daemon.

use std::sync::{Arc, Weak};

use super::Qp;
use crate::host::Host;
use crate::objects::core::Core;

/// A connected QP of this daemon.
#[derive(Debug)]
pub struct Peer<H: Host> {
    /// The core of its adapter.
    pub core: Arc<Core<H>>,
    /// The QP at the other end.
    pub qp: Arc<Qp<H>>,
}

impl<H: Host> Clone for Peer<H> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), qp: Arc::clone(&self.qp) }
    }
}

impl<H: Host> Peer<H> {
    /// Returns a reference that does not keep the QP and the core.
    #[must_use]
    pub fn downgrade(&self) -> WeakPeer<H> {
        WeakPeer { core: Arc::downgrade(&self.core), qp: Arc::downgrade(&self.qp) }
    }
}

/// A connected QP of this daemon, as long as its adapter has it.
#[derive(Debug)]
pub struct WeakPeer<H: Host> {
    core: Weak<Core<H>>,
    qp: Weak<Qp<H>>,
}

impl<H: Host> WeakPeer<H> {
    /// Returns whether it is this QP.
    #[must_use]
    pub fn is(&self, qp: &Qp<H>) -> bool {
        std::ptr::eq(self.qp.as_ptr(), qp)
    }

    /// Returns the QP, if it still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Peer<H>> {
        Some(Peer { core: self.core.upgrade()?, qp: self.qp.upgrade()? })
    }
}

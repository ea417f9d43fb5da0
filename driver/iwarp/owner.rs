// SPDX-License-Identifier: GPL-2.0
//! The owners of connections: what ends them, and what keeps them, until the device has gone.

use kernel::{prelude::*, sync::Arc};

use super::Connections;
use crate::listeners::{ConnectionEvents, Listeners};

/// Ends connections on drop, before the device is removed, because the core waits for the last
/// events of all of them.
pub(crate) struct Ending(Arc<Connections>);

impl Ending {
    /// Returns a guard that ends these connections.
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self(connections)
    }

    /// Returns the connections.
    pub(crate) fn connections(&self) -> &Connections {
        &self.0
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Connections that get events from their adapter. They end on drop, when the device has been
/// removed.
pub(crate) struct Owner {
    connections: Arc<Connections>,
    listeners: Arc<Listeners>,
}

impl Owner {
    /// Makes `listeners` report events to the connections.
    pub(crate) fn new(connections: Arc<Connections>, listeners: Arc<Listeners>) -> Result<Self> {
        listeners.add_connections(connections.clone())?;
        Ok(Self { connections, listeners })
    }

    /// Returns the connections.
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.connections.clear();
        let connections: Arc<dyn ConnectionEvents> = self.connections.clone();
        self.listeners.remove_connections(&connections);
    }
}

/// Keeps connections until no interrupt uses them any more, because their [`Owner`] was dropped.
/// The drop waits until no work item refers to them: a work item must not destroy its own queue.
pub(crate) struct Kept(Arc<Connections>);

impl Kept {
    /// Returns a guard that keeps these connections.
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self(connections)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.queue.flush();
    }
}

//! All objects of the process, by their addresses.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::FixedState;
use parking_lot::RwLock;

use crate::model::objects::{
    Channel, CompletionQueue, Device, Domain, Identifier, QueuePair, Received, SharedQueue,
};
use crate::model::regions::Region;

/// How long the end of the process waits for a table that another thread uses.
const PATIENCE: Duration = Duration::from_millis(500);

/// Objects of one kind, by address.
#[derive(Debug)]
pub(crate) struct Table<T> {
    objects: RwLock<HashMap<usize, Arc<T>, FixedState>>,
    /// Number of objects that were given a number.
    numbers: AtomicU64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { objects: RwLock::default(), numbers: AtomicU64::new(0) }
    }
}

impl<T> Table<T> {
    pub(crate) fn get(&self, address: usize) -> Option<Arc<T>> {
        self.objects.read().get(&address).cloned()
    }

    pub(crate) fn insert(&self, address: usize, object: T) -> Arc<T> {
        let object = Arc::new(object);
        self.objects.write().insert(address, Arc::clone(&object));
        object
    }

    /// Puts back an object that was taken out.
    pub(crate) fn restore(&self, address: usize, object: Arc<T>) {
        self.objects.write().insert(address, object);
    }

    pub(crate) fn remove(&self, address: usize) -> Option<Arc<T>> {
        self.objects.write().remove(&address)
    }

    /// Returns the number of the next object, by which reports name it.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Keeps the objects that are wanted.
    pub(crate) fn retain(&self, mut wanted: impl FnMut(&T) -> bool) {
        self.objects.write().retain(|_, object| wanted(object));
    }

    /// Returns all objects; none if another thread keeps the table for too long.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let objects = self.objects.try_read_for(PATIENCE);
        objects.map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }
}

/// All objects of the process.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) devices: Table<Device>,
    pub(crate) domains: Table<Domain>,
    pub(crate) regions: Table<Region>,
    pub(crate) channels: Table<Channel>,
    pub(crate) completion_queues: Table<CompletionQueue>,
    pub(crate) pairs: Table<QueuePair>,
    pub(crate) shared: Table<SharedQueue>,
    /// Identifiers of the connection manager.
    pub(crate) identifiers: Table<Identifier>,
    /// Events of the connection manager that are not acknowledged.
    pub(crate) manager_events: Table<Received>,
    /// Devices that were opened.
    pub(crate) opened: AtomicU64,
    /// Requests that were posted.
    pub(crate) requests: AtomicU64,
}

impl Tables {
    /// Returns the base of a domain: a parent domain stands for another one.
    pub(crate) fn base(&self, domain: usize) -> usize {
        self.domains.get(domain).map_or(domain, |domain| domain.base)
    }
}

//! The adapters of this process, a list that grows and shrinks while others read it.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::adapter::HostedAdapter;

/// The adapters of the daemon, which change at run time.
#[derive(Debug, Default)]
pub struct Roster(ArcSwap<Vec<Arc<HostedAdapter>>>);

impl Roster {
    /// Returns the adapters as they are now.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<Arc<HostedAdapter>>> {
        self.0.load_full()
    }

    /// Appends an adapter.
    pub fn add(&self, hosted: &Arc<HostedAdapter>) {
        self.0.rcu(|list| {
            let mut list = Vec::clone(list);
            list.push(Arc::clone(hosted));
            list
        });
    }

    /// Removes an adapter.
    pub fn remove(&self, hosted: &Arc<HostedAdapter>) {
        self.0.rcu(|list| {
            let others = list.iter().filter(|other| !Arc::ptr_eq(other, hosted));
            others.map(Arc::clone).collect::<Vec<_>>()
        });
    }
}

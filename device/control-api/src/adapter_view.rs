//! Adapters as clients see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the monitor knows of an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterView {
    /// The adapter's name.
    pub name: String,
    /// MAC of its port.
    pub mac: String,
    /// True if a driver has enabled it.
    pub enabled: bool,
    /// The register FATAL_CODE; zero while the adapter works.
    pub fatal: u32,
    /// True if its port carries traffic: the link is up, and the driver has opened the port.
    pub link: bool,
    /// The number of its objects, by kind. Also the number of multicast groups with members, bytes
    /// of device memory with send queues, page addresses of rings, and words that hold page
    /// addresses of regions.
    pub objects: BTreeMap<String, u64>,
    /// The adapter's counters, with the same names as in the guest.
    pub counters: BTreeMap<String, u64>,
}

//! Adapters as clients of the monitor see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vrnic_abi::admin::STAT_NAMES;
use vrnic_abi::regs::{self, Status};

use super::json::mac_text;
use crate::hosted::adapter::Adapter;

/// An adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterView {
    /// Its name.
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
    /// Its counters, with the same names as in the guest.
    pub counters: BTreeMap<String, u64>,
}

impl AdapterView {
    pub(super) fn of(adapter: &Adapter) -> Self {
        let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
        let counters = STAT_NAMES.iter().zip(adapter.stats().values());
        Self {
            name: adapter.name().to_owned(),
            mac: mac_text(adapter.mac()),
            enabled: status.contains(Status::ENABLED),
            fatal: adapter.read_register(regs::FATAL_CODE),
            link: adapter.core().carries(),
            objects: adapter.counts().map(|(kind, count)| (kind.to_owned(), count)).into(),
            counters: counters.map(|(name, value)| ((*name).to_owned(), value)).collect(),
        }
    }
}

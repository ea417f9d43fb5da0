//! Adapters as clients of the monitor see them.

use std::collections::BTreeMap;

use vrnic_abi::admin::STAT_NAMES;
use vrnic_abi::regs::{self, Status};
use vrnic_control_api::AdapterView;

use crate::hosted::adapter::Adapter;
use crate::memory::external::Counts;

/// Returns the state of an adapter.
pub(super) fn of(adapter: &Adapter) -> AdapterView {
    let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
    let counters = STAT_NAMES.iter().zip(adapter.stats().values());
    let mut counters: BTreeMap<_, _> =
        counters.map(|(name, value)| ((*name).to_owned(), value)).collect();
    let mut objects =
        BTreeMap::from(adapter.counts().map(|(kind, count)| (kind.to_owned(), count)));
    if let Some(external) = adapter.host().dma.external() {
        let counts = external.counts();
        let named = Counts::NAMES.iter().zip(counts.values());
        counters.extend(named.map(|((name, _), value)| ((*name).to_owned(), value)));
        objects.insert("message_transfers".to_owned(), counts.waiting);
    }
    AdapterView {
        name: adapter.name().to_owned(),
        mac: adapter.mac().to_string(),
        enabled: status.contains(Status::ENABLED),
        fatal: adapter.read_register(regs::FATAL_CODE),
        link: adapter.core().carries(),
        objects,
        counters,
    }
}

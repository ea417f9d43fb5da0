//! Adapters as clients of the monitor see them.

use std::collections::BTreeMap;

use vrnic_abi::admin::STAT_NAMES;
use vrnic_abi::regs::{self, Status};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::Host;
use vrnic_control_api::AdapterView;

/// Returns the state of an adapter.
pub(super) fn of<H: Host>(adapter: &Adapter<H>) -> AdapterView {
    let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
    let counters = STAT_NAMES.iter().zip(adapter.stats().values());
    let counters = counters.map(|(name, value)| ((*name).to_owned(), value)).collect();
    let objects = BTreeMap::from(adapter.counts().map(|(kind, count)| (kind.to_owned(), count)));
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

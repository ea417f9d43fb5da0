//! Adapters as clients of the monitor see them.

use vrnic_abi::admin::STAT_NAMES;
use vrnic_abi::regs::{self, Status};
use vrnic_control_api::AdapterView;

use crate::hosted::adapter::Adapter;

/// Returns the state of an adapter.
pub(super) fn of(adapter: &Adapter) -> AdapterView {
    let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
    let counters = STAT_NAMES.iter().zip(adapter.stats().values());
    AdapterView {
        name: adapter.name().to_owned(),
        mac: adapter.mac().to_string(),
        enabled: status.contains(Status::ENABLED),
        fatal: adapter.read_register(regs::FATAL_CODE),
        link: adapter.core().carries(),
        objects: adapter.counts().map(|(kind, count)| (kind.to_owned(), count)).into(),
        counters: counters.map(|(name, value)| ((*name).to_owned(), value)).collect(),
    }
}

//! Rows of the table of resources as clients see them.

use std::collections::BTreeMap;

use vrnic_abi::regs::{self, Status};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::Host;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;
use vrnic_control_api::resource_view::{Amounts, ResourceRow};

/// Returns the row of a function, which is the adapter of one guest or one of `vrnic exec`. It has
/// this number in the table, and may use at most `maximum`.
#[must_use]
pub fn of<H: Host>(number: usize, adapter: &Adapter<H>, maximum: &Limits) -> ResourceRow {
    let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
    let resources = by_name(|resource| Amounts {
        maximum: maximum.of(resource),
        actual: adapter.actual(resource),
    });
    ResourceRow {
        row: number,
        function: Some(adapter.name().to_owned()),
        mac: Some(adapter.mac().to_string()),
        port: Some(adapter.name().to_owned()),
        opened: Some(status.contains(Status::ENABLED)),
        resources,
    }
}

/// Returns row 0, for all functions together.
#[must_use]
pub fn physical(amounts: impl Fn(Resource) -> Amounts) -> ResourceRow {
    let resources = by_name(amounts);
    ResourceRow { row: 0, function: None, mac: None, port: None, opened: None, resources }
}

fn by_name(amounts: impl Fn(Resource) -> Amounts) -> BTreeMap<String, Amounts> {
    Resource::ALL.iter().map(|kind| (kind.name().to_owned(), amounts(*kind))).collect()
}

//! The table of resources as clients see it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use vrnic_abi::regs::{self, Status};
use vrnic_adapter::limits::resource::Resource;
use vrnic_control_api::resource_view::{Amounts, ResourceRow};

use crate::hosted::roster::Roster;
use crate::resources::table::{Numbered, ResourceTable};

/// Returns all rows of the table of resources.
pub(super) fn all(table: &Mutex<ResourceTable>, roster: &Roster) -> Vec<ResourceRow> {
    // Cloned, so that a change does not wait for locks of adapters.
    let table = table.lock().clone();
    let mut rows = vec![physical(&table)];
    rows.extend(table.rows().filter_map(|row| of(row, roster)));
    rows
}

fn physical(table: &ResourceTable) -> ResourceRow {
    let resources = by_name(|resource| Amounts {
        maximum: table.maximum(resource),
        actual: table.assigned(resource),
    });
    ResourceRow { row: 0, function: None, mac: None, port: None, opened: None, resources }
}

/// Returns the row of a function. Returns `None` while the function is being added or removed.
fn of(row: Numbered<'_>, roster: &Roster) -> Option<ResourceRow> {
    let Numbered { number, row } = row;
    let adapters = roster.all();
    let hosted = adapters.iter().find(|hosted| hosted.adapter().name() == row.name)?;
    let adapter = hosted.adapter();
    let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
    let resources = by_name(|resource| Amounts {
        maximum: row.maximum.of(resource),
        actual: adapter.actual(resource),
    });
    Some(ResourceRow {
        row: number,
        function: Some(row.name.clone()),
        mac: Some(row.mac.to_string()),
        port: Some(row.name.clone()),
        opened: Some(status.contains(Status::ENABLED)),
        resources,
    })
}

fn by_name(amounts: impl Fn(Resource) -> Amounts) -> BTreeMap<String, Amounts> {
    Resource::ALL.iter().map(|kind| (kind.name().to_owned(), amounts(*kind))).collect()
}

//! The table of resources as clients see it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use vrnic_abi::regs::{self, Status};
use vrnic_adapter::resource::Resource;

use super::json::mac_text;
use crate::hosted::roster::Roster;
use crate::resources::table::{Numbered, ResourceTable};

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRow {
    /// Its number. Row 0 is for the adapter as a whole.
    pub row: usize,
    /// The function; none for row 0, as the fields that follow.
    pub function: Option<String>,
    /// The MAC of its port.
    pub mac: Option<String>,
    /// Its port of the switch.
    pub port: Option<String>,
    /// True if its guest has opened it: a driver has enabled it.
    pub opened: Option<bool>,
    /// The resources, by name.
    pub resources: BTreeMap<String, Amounts>,
}

/// The amounts of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// The maximum.
    pub maximum: u64,
    /// The amount that the function uses or, in row 0, that is assigned to functions. None if
    /// objects do not use the resource up.
    pub actual: Option<u64>,
}

impl ResourceRow {
    /// Returns all rows.
    pub(super) fn all(table: &Mutex<ResourceTable>, roster: &Roster) -> Vec<Self> {
        // Cloned, so that a change does not wait for locks of adapters.
        let table = table.lock().clone();
        let mut rows = vec![Self::physical(&table)];
        rows.extend(table.rows().filter_map(|row| Self::of(row, roster)));
        rows
    }

    fn physical(table: &ResourceTable) -> Self {
        let resources = by_name(|resource| Amounts {
            maximum: table.maximum(resource),
            actual: table.assigned(resource),
        });
        Self { row: 0, function: None, mac: None, port: None, opened: None, resources }
    }

    /// Returns the row of a function. Returns `None` while the function is being added or removed.
    fn of(row: Numbered<'_>, roster: &Roster) -> Option<Self> {
        let Numbered { number, row } = row;
        let adapters = roster.all();
        let hosted = adapters.iter().find(|hosted| hosted.adapter().name() == row.name)?;
        let adapter = hosted.adapter();
        let status = Status::from_bits_truncate(adapter.read_register(regs::STATUS));
        let resources = by_name(|resource| Amounts {
            maximum: row.maximum.of(resource),
            actual: adapter.actual(resource),
        });
        Some(Self {
            row: number,
            function: Some(row.name.clone()),
            mac: Some(mac_text(row.mac.0)),
            port: Some(row.name.clone()),
            opened: Some(status.contains(Status::ENABLED)),
            resources,
        })
    }
}

fn by_name(amounts: impl Fn(Resource) -> Amounts) -> BTreeMap<String, Amounts> {
    Resource::ALL.iter().map(|kind| (kind.name().to_owned(), amounts(*kind))).collect()
}

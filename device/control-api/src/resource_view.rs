//! The table of resources as clients see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRow {
    /// The number of the row. Row 0 is for the adapter as a whole.
    pub row: usize,
    /// The function; none for row 0, as the fields that follow.
    pub function: Option<String>,
    /// The MAC of its port.
    pub mac: Option<String>,
    /// The function's port of the switch.
    pub port: Option<String>,
    /// True if its guest has opened it: a driver has enabled it.
    pub opened: Option<bool>,
    /// The resources, by name.
    pub resources: BTreeMap<String, Amounts>,
}

/// The amounts of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// The amount that the function may use or, in row 0, that all functions have together.
    pub maximum: u64,
    /// The amount that the function uses or, in row 0, that is assigned to functions. None if
    /// objects do not use the resource up.
    pub actual: Option<u64>,
}

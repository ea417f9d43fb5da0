//! Limits of the numbers of objects, and range checks.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use vrnic_adapter::limits::Limits;
use vrnic_control_api::FunctionConfig;
use vrnic_control_api::assignment::{Amount, Assignment};

use super::error::ConfigError;
use super::{FUNCTIONS_MAX, most_of_a_function};
use crate::resources::table::Row;

/// Checks that a number is in its range.
pub(super) fn in_range(
    what: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::Range { what, value, min, max })
    }
}

/// Reads the maxima of each function from the file, where they are a table of names and numbers.
pub(super) fn limits_of_file<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Amount>, D::Error> {
    let limits = Assignment::deserialize(file)?;
    limits.lower(&most_of_a_function()).map_err(D::Error::custom)?;
    Ok(limits.amounts().collect())
}

/// Reads the amounts of all functions together from the file.
pub(super) fn physical_of_file<'de, D: Deserializer<'de>>(
    file: D,
) -> Result<Vec<Amount>, D::Error> {
    let physical = Assignment::deserialize(file)?;
    physical.physical(FUNCTIONS_MAX, &most_of_a_function()).map_err(D::Error::custom)?;
    Ok(physical.amounts().collect())
}

/// Returns the row of a function in the table of resources: the maxima `most`, lowered to its own.
///
/// # Errors
/// [`ConfigError::Function`] if one of its own is not valid.
pub(crate) fn row(settings: &FunctionConfig, most: &Limits) -> Result<Row, ConfigError> {
    let name = || settings.name.clone();
    let maximum = settings.resources.lower(most);
    let maximum = maximum.map_err(|error| ConfigError::Function { name: name(), error })?;
    Ok(Row { name: name(), mac: settings.mac, maximum })
}

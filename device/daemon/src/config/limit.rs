//! Limits of the numbers of objects, and range checks.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::error::ConfigError;
use super::{FUNCTIONS_MAX, most_of_a_function};
use crate::resources::assignment::{Amount, Assignment};

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

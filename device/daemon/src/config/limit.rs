//! Limits of the numbers of objects, and range checks.

use serde::{Deserialize, Deserializer};

use super::error::ConfigError;
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

/// Reads amounts from the file, where they are a table of names and numbers.
pub(super) fn amounts_of_file<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Amount>, D::Error> {
    Ok(Assignment::deserialize(file)?.amounts().collect())
}

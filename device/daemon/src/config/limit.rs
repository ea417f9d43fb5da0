//! Limits of the numbers of objects, and range checks.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use vrnic_adapter::limits::Limits;

use super::error::ConfigError;

/// A lower limit for a kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name of the limit, as in [`set_limit`].
    pub name: String,
    /// Its value.
    pub value: u32,
}

/// Lowers a limit.
pub(super) fn set_limit(limits: &mut Limits, limit: &Limit) -> Result<(), ConfigError> {
    let (what, place) = match limit.name.as_str() {
        "contexts" => ("limit of contexts", &mut limits.contexts),
        "pd" => ("limit of pd", &mut limits.pd),
        "cq" => ("limit of cq", &mut limits.cq),
        "srq" => ("limit of srq", &mut limits.srq),
        "qp" => ("limit of qp", &mut limits.qp),
        "mr" => ("limit of mr", &mut limits.mr),
        _ => return Err(ConfigError::UnknownLimit(limit.name.clone())),
    };
    // The default is the maximum.
    in_range(what, limit.value.into(), 1, (*place).into())?;
    *place = limit.value;
    Ok(())
}

impl FromStr for Limit {
    type Err = ConfigError;

    /// Parses `qp=100`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parts = text.split_once('=').map(|(name, value)| (name.to_owned(), value.parse()));
        match parts {
            Some((name, Ok(value))) => Ok(Self { name, value }),
            _ => Err(ConfigError::Limit(text.to_owned())),
        }
    }
}

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

/// Reads limits from the file, where they are a table of names and numbers.
pub(super) fn limits_of_file<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Limit>, D::Error> {
    let table = BTreeMap::<String, u32>::deserialize(file)?;
    Ok(table.into_iter().map(|(name, value)| Limit { name, value }).collect())
}

//! Amounts of resources as a user gives them.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vrnic_abi::uar::DEVICE_MEMORY_UNIT;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;

/// An amount of each resource that the user names. Device memory is in MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Assignment(BTreeMap<Resource, u64>);

/// One of these amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The resource of which it is an amount.
    pub resource: Resource,
    /// The amount of the resource.
    pub value: u64,
}

/// An amount that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadAmount {
    /// There is no such resource.
    #[error("there is no resource '{0}'; the resources are {names}", names = names())]
    Name(String),
    /// A text that is not an amount.
    #[error("'{0}' does not have the form NAME=NUMBER")]
    Form(String),
    /// A resource that is given twice.
    #[error("the amount of {0} is given twice")]
    Twice(&'static str),
    /// An amount that a function cannot have.
    #[error("the amount of {resource} is {value}; it must be from {min} to {max}")]
    Range {
        /// The name of the resource.
        resource: &'static str,
        /// The amount.
        value: u64,
        /// The smallest amount.
        min: u64,
        /// The largest amount.
        max: u64,
    },
    /// An odd number of MiB of device memory.
    #[error("the amount of device-memory is {0} MiB, but it must be an even number")]
    Odd(u64),
}

fn names() -> String {
    Resource::ALL.iter().map(|resource| resource.name()).collect::<Vec<_>>().join(", ")
}

impl Amount {
    /// Returns the amount of the resource with this name.
    fn named(name: &str, value: u64) -> Result<Self, BadAmount> {
        let resource = Resource::from_name(name).ok_or_else(|| BadAmount::Name(name.to_owned()))?;
        Ok(Self { resource, value })
    }

    /// Parses a name and a number with this character between them.
    fn parse(text: &str, between: char) -> Result<Self, BadAmount> {
        let bad = || BadAmount::Form(text.to_owned());
        let (name, value) = text.split_once(between).ok_or_else(bad)?;
        Self::named(name, value.parse().map_err(|_| bad())?)
    }
}

impl FromStr for Amount {
    type Err = BadAmount;

    /// Parses `qp=100`.
    fn from_str(text: &str) -> Result<Self, BadAmount> {
        Self::parse(text, '=')
    }
}

impl FromStr for Assignment {
    type Err = BadAmount;

    /// Parses `qp:100/cq:50`.
    fn from_str(text: &str) -> Result<Self, BadAmount> {
        let amounts = text.split('/').map(|part| Amount::parse(part, ':'));
        Self::new(amounts.collect::<Result<Vec<_>, _>>()?)
    }
}

impl Display for Assignment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter().map(|(resource, value)| format!("{}:{value}", resource.name()));
        f.write_str(&parts.collect::<Vec<_>>().join("/"))
    }
}

impl TryFrom<BTreeMap<String, u64>> for Assignment {
    type Error = BadAmount;

    fn try_from(given: BTreeMap<String, u64>) -> Result<Self, BadAmount> {
        let amounts = given.iter().map(|(name, value)| Amount::named(name, *value));
        Self::new(amounts.collect::<Result<Vec<_>, _>>()?)
    }
}

impl From<Assignment> for BTreeMap<String, u64> {
    fn from(assignment: Assignment) -> Self {
        let amounts = assignment.0.into_iter();
        amounts.map(|(resource, value)| (resource.name().to_owned(), value)).collect()
    }
}

impl Assignment {
    /// Combines amounts, of which no two are of the same resource.
    ///
    /// # Errors
    /// [`BadAmount::Twice`].
    pub fn new(amounts: impl IntoIterator<Item = Amount>) -> Result<Self, BadAmount> {
        let mut all = BTreeMap::new();
        for Amount { resource, value } in amounts {
            if all.insert(resource, value).is_some() {
                return Err(BadAmount::Twice(resource.name()));
            }
        }
        Ok(Self(all))
    }

    /// Combines amounts. Of several of the same resource, the last one counts.
    #[must_use]
    pub fn last(amounts: &[Amount]) -> Self {
        Self(amounts.iter().map(|amount| (amount.resource, amount.value)).collect())
    }

    /// Returns the amounts one by one.
    pub fn amounts(&self) -> impl Iterator<Item = Amount> {
        self.0.iter().map(|(resource, value)| Amount { resource: *resource, value: *value })
    }

    /// Returns whether no amount is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns these amounts, and those of `other` for the other resources.
    #[must_use]
    pub fn or(self, mut other: Self) -> Self {
        other.0.extend(self.0);
        other
    }

    /// Returns the maxima `most`, lowered to these amounts. There are no more windows than keys.
    ///
    /// # Errors
    /// [`BadAmount::Range`] for an amount that is zero or above `most`, and for more windows than
    /// keys, [`BadAmount::Odd`].
    pub fn lower(&self, most: &Limits) -> Result<Limits, BadAmount> {
        let mut limits = *most;
        for (&resource, &value) in &self.0 {
            let is_memory = resource == Resource::DeviceMemory;
            let (min, max) = match is_memory {
                true => (0, most.of(resource) >> 20),
                false => (1, most.of(resource)),
            };
            if !(min..=max).contains(&value) {
                return Err(BadAmount::Range { resource: resource.name(), value, min, max });
            }
            let number = if is_memory { units(value)? } else { value };
            // CAST: it is not above `most`.
            *limits.place(resource) = number as u32;
        }
        let keys = limits.mr;
        if let Some(&value) = self.0.get(&Resource::Mw).filter(|windows| **windows > keys.into()) {
            let resource = Resource::Mw.name();
            return Err(BadAmount::Range { resource, value, min: 1, max: keys.into() });
        }
        limits.mw = limits.mw.min(keys);
        Ok(limits)
    }

    /// Returns the amounts for all functions together, with device memory in bytes.
    ///
    /// # Errors
    /// [`BadAmount::Range`] for an amount that this many functions with the maxima `most` cannot
    /// use.
    pub fn physical(
        &self,
        functions: usize,
        most: &Limits,
    ) -> Result<BTreeMap<Resource, u64>, BadAmount> {
        let mut physical = BTreeMap::new();
        for (&resource, &value) in &self.0 {
            let shift = if resource == Resource::DeviceMemory { 20 } else { 0 };
            let functions = if resource.is_used_up() { functions as u64 } else { 1 };
            let max = most.of(resource).saturating_mul(functions) >> shift;
            if value > max {
                let resource = resource.name();
                return Err(BadAmount::Range { resource, value, min: 0, max });
            }
            physical.insert(resource, value << shift);
        }
        Ok(physical)
    }
}

/// Returns the number of units in this many MiB of device memory.
fn units(mib: u64) -> Result<u64, BadAmount> {
    let unit = DEVICE_MEMORY_UNIT >> 20;
    if mib.is_multiple_of(unit) { Ok(mib / unit) } else { Err(BadAmount::Odd(mib)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(text: &str) -> Assignment {
        text.parse().expect(text)
    }

    #[test]
    fn amounts_are_read_and_written() {
        let both = amounts("qp:100/device-memory:4");
        assert_eq!(both.to_string(), "qp:100/device-memory:4");
        let text = serde_json::to_string(&both).expect("JSON");
        assert_eq!(text, r#"{"device-memory":4,"qp":100}"#);
        assert_eq!(serde_json::from_str::<Assignment>(&text).expect("amounts"), both);
        for (bad, part) in [
            ("cats:1", "no resource 'cats'"),
            ("qp", "'qp' does not have the form"),
            ("qp:x", "'qp:x'"),
            ("qp:1/qp:2", "qp is given twice"),
            ("", "''"),
        ] {
            let error = bad.parse::<Assignment>().expect_err(bad).to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
        assert_eq!(amounts("qp:1").or(amounts("qp:2/cq:3")), amounts("qp:1/cq:3"));
    }

    #[test]
    fn a_functions_maxima_are_lowered_and_never_raised() {
        let most = Limits { qp: 100, device_memory: 4, ..Limits::default() };
        let limits = amounts("qp:100/cq:5/device-memory:6").lower(&most).expect("valid");
        assert_eq!(limits, Limits { qp: 100, cq: 5, device_memory: 3, ..most });
        let keys = amounts("mr:9").lower(&most).expect("valid");
        assert_eq!((keys.mr, keys.mw), (9, 9));
        assert_eq!(amounts("device-memory:0").lower(&most).map(|all| all.device_memory), Ok(0));
        for (bad, part) in [
            ("qp:101", "qp is 101; it must be from 1 to 100"),
            ("qp:0", "qp is 0"),
            ("device-memory:10", "from 0 to 8"),
            ("device-memory:5", "even"),
            ("mr:9/mw:10", "mw is 10; it must be from 1 to 9"),
        ] {
            let error = amounts(bad).lower(&most).expect_err(bad).to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    #[test]
    fn the_adapter_has_no_more_than_its_functions_can_use() {
        let most = Limits { qp: 100, device_memory: 4, ..Limits::default() };
        let physical = amounts("qp:300/device-memory:7").physical(3, &most).expect("valid");
        assert_eq!(physical[&Resource::Qp], 300);
        assert_eq!(physical[&Resource::DeviceMemory], 7 << 20);
        assert!(amounts("qp:301").physical(3, &most).is_err());
    }
}

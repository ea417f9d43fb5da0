//! Amounts per second as settings name them: `10G`, `500k`, `8000`.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The letters after a number, and what they multiply it by.
const UNITS: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('k', 1000)];

/// An amount per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerSecond(pub NonZeroU64);

/// A text that is not an amount per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAmount;

/// The form of an amount, for messages.
pub(crate) const FORM: &str =
    "a number above 0, with k, M or G behind it for thousands, millions or thousand millions";

impl FromStr for PerSecond {
    type Err = NoAmount;

    fn from_str(text: &str) -> Result<Self, NoAmount> {
        let with_unit =
            |(letter, factor): &(char, u64)| Some((text.strip_suffix(*letter)?, *factor));
        let (number, factor) = UNITS.iter().find_map(with_unit).unwrap_or((text, 1));
        let number: u64 = number.parse().map_err(|_| NoAmount)?;
        number.checked_mul(factor).and_then(NonZeroU64::new).map(Self).ok_or(NoAmount)
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.get();
        match UNITS.iter().find(|(_, factor)| number.is_multiple_of(*factor)) {
            Some((letter, factor)) => write!(f, "{}{letter}", number / factor),
            None => number.fmt(f),
        }
    }
}

impl Serialize for PerSecond {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PerSecond {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|NoAmount| serde::de::Error::custom(format!("'{text}' is not {FORM}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written() {
        for (text, number) in [("8000", 8000), ("500k", 500_000), ("10G", 10_000_000_000)] {
            let amount: PerSecond = text.parse().expect("an amount");
            assert_eq!(amount.0.get(), number);
            assert_eq!(amount.to_string().parse(), Ok(amount));
        }
        for text in ["", "0", "0G", "G", "1GG", "-1", "1.5G", "99999999999G", "1T"] {
            assert_eq!(text.parse::<PerSecond>(), Err(NoAmount), "{text}");
        }
    }
}

//! The shares of functions in the time of the workers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest weight.
const MAX_WEIGHT: u16 = 1000;
/// The weight of a function without a setting.
const DEFAULT_WEIGHT: u16 = 100;
/// The form of a weight, for messages.
pub(crate) const WEIGHT_FORM: &str = "a number from 1 to 1000; the default is 100";
/// The form of a part, for messages.
pub(crate) const PART_FORM: &str = "a number of percent from 1 to 100, such as 20%";
/// The sum of all shares.
const WHOLE: u64 = 1_000_000;
/// The same in percent.
const PERCENT: u64 = 100;

/// The weight of a function among those that have work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Weight(u16);

/// A part of the workers' time, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(u8);

/// What a function may claim of the workers' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Claim {
    /// The weight of the function.
    pub weight: Weight,
    /// The part that it has at least whenever it has work.
    pub floor: Option<Part>,
}

/// A number that is not a weight, or a text that is not a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoShare;

impl Default for Weight {
    fn default() -> Self {
        Self(DEFAULT_WEIGHT)
    }
}

impl From<Weight> for u16 {
    fn from(weight: Weight) -> Self {
        weight.0
    }
}

impl TryFrom<u16> for Weight {
    type Error = String;

    fn try_from(number: u16) -> Result<Self, String> {
        let valid = (1..=MAX_WEIGHT).contains(&number);
        if valid { Ok(Self(number)) } else { Err(format!("a weight is {WEIGHT_FORM}")) }
    }
}

impl FromStr for Weight {
    type Err = NoShare;

    fn from_str(text: &str) -> Result<Self, NoShare> {
        text.parse().ok().and_then(|number: u16| Self::try_from(number).ok()).ok_or(NoShare)
    }
}

impl FromStr for Part {
    type Err = NoShare;

    fn from_str(text: &str) -> Result<Self, NoShare> {
        let number = text.strip_suffix('%').and_then(|number| number.parse().ok());
        number.filter(|number| (1..=100).contains(number)).map(Self).ok_or(NoShare)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = |NoShare| serde::de::Error::custom(format!("'{text}' is not {PART_FORM}"));
        text.parse().map_err(wrong)
    }
}

/// Returns the sum of the floors in percent.
pub fn floors(claims: impl IntoIterator<Item = Claim>) -> u64 {
    claims.into_iter().filter_map(|claim| claim.floor).map(|floor| u64::from(floor.0)).sum()
}

/// Returns the shares of functions in the time of a worker, in a millionth of it: of each its
/// floor, and of the rest the part that its weight has in the sum of all weights. They count among
/// those that have work, which have larger parts of the time in the same proportions.
#[must_use]
pub fn shares(claims: &[Claim]) -> Vec<u32> {
    let rest = PERCENT.saturating_sub(floors(claims.iter().copied()));
    let weights: u64 = claims.iter().map(|claim| u64::from(claim.weight.0)).sum();
    let share = |claim: &Claim| {
        let floor = claim.floor.map_or(0, |floor| u64::from(floor.0));
        let by_weight = rest * u64::from(claim.weight.0) * WHOLE / weights.max(1);
        u32::try_from((floor * WHOLE + by_weight) / PERCENT).unwrap_or(u32::MAX).max(1)
    };
    claims.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(weight: u16, floor: Option<&str>) -> Claim {
        let floor = floor.map(|text| text.parse().expect("a part"));
        Claim { weight: Weight::try_from(weight).expect("a weight"), floor }
    }

    #[test]
    fn weights_and_parts_are_read_and_written() {
        for (text, number) in [("1", 1), ("100", 100), ("1000", 1000)] {
            assert_eq!(text.parse().map(u16::from as fn(Weight) -> u16), Ok(number));
        }
        for text in ["", "0", "1001", "-1", "1.5", "ten"] {
            assert_eq!(text.parse::<Weight>(), Err(NoShare), "{text}");
        }
        let part: Part = "20%".parse().expect("a part");
        assert_eq!(part.to_string(), "20%");
        for text in ["", "20", "0%", "101%", "%", "1.5%"] {
            assert_eq!(text.parse::<Part>(), Err(NoShare), "{text}");
        }
    }

    #[test]
    fn functions_share_what_the_floors_leave_by_their_weights() {
        assert_eq!(shares(&[claim(100, None); 4]), [250_000; 4]);
        let claims = [claim(100, Some("50%")), claim(100, None), claim(300, None)];
        assert_eq!(shares(&claims), [600_000, 100_000, 300_000]);
        assert_eq!(shares(&[claim(1, Some("100%")), claim(1000, None)]), [1_000_000, 1]);
        assert!(shares(&[]).is_empty());
    }
}

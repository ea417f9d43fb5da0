//! Rules as text: an action and fields, such as `drop qp=17 opcode=rc-write-only prob=0.01`.
//!
//! | field | meaning |
//! | --- | --- |
//! | `function=a` | packets of this function |
//! | `qp=17` | of this QP |
//! | `opcode=rc-write-only` | with this opcode: a name, or a number of RoCE |
//! | `psn=0x12` | with this sequence number |
//! | `nth=5` | the fifth of each QP that the fields above select |
//! | `prob=0.01` | chance of each packet; 1 if it is missing |
//! | `seed=7` | seed of the decisions; 0 if it is missing |
//! | `times=10` | the largest number of hits |
//! | `for=5s` | the time for which the rule is in force: `ns`, `us`, `ms` or `s` |
//! | `by=2ms` | of `delay` alone, and needed there: the time |
//! | `behind=3` | of `reorder` alone: the number of later packets; 1 if it is missing |
//! | `crc=right` | of `corrupt` alone: `right`, `checksum`, or `wrong`, which is the default |

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use vrnic_roce::Psn;
use vrnic_roce::wire::Qpn;
use vrnic_roce::wire::opcode::Opcode as RoceOpcode;

use crate::opcode::Opcode;
use crate::rule::{Action, Chance, Crc, Filter, Rule};

/// The reason for which a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no action.
    #[error("a rule must begin with drop, delay, duplicate, reorder or corrupt")]
    NoAction,
    /// The first word is not an action.
    #[error("{0:?} is not an action: use drop, delay, duplicate, reorder or corrupt")]
    Action(String),
    /// A word is not of the form `name=value`.
    #[error("{0:?} is not of the form name=value")]
    Form(String),
    /// No field has this name.
    #[error(
        "{0:?} is not a field of {1}: use function, qp, opcode, psn, nth, prob, seed, times or \
         for; by with delay, behind with reorder, crc with corrupt"
    )]
    Field(String, &'static str),
    /// A field is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// A value does not fit its field.
    #[error("{name}={value} is not right: {expected}")]
    Value {
        /// The field.
        name: String,
        /// Its value.
        value: String,
        /// The form that it must have.
        expected: &'static str,
    },
    /// A delay has no time.
    #[error("delay needs a time, such as by=2ms")]
    NoTime,
}

const NUMBER: &str = "a number is expected, such as 17 or 0x11";
const NUMBER_24: &str = "a number of 24 bits is expected, such as 17 or 0x11";
const FROM_ONE: &str = "a number from 1 on is expected";
const TIME: &str = "a time is expected, such as 20us, 5ms or 3s";

impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = text.split_whitespace();
        let first = words.next().ok_or(ParseError::NoAction)?;
        let action = match first {
            "drop" => Action::Drop,
            "delay" => Action::Delay(Duration::ZERO),
            "duplicate" => Action::Duplicate,
            "reorder" => Action::Reorder(1),
            "corrupt" => Action::Corrupt(Crc::Wrong),
            _ => return Err(ParseError::Action(first.to_owned())),
        };
        let (filter, chance) = (Filter::default(), Chance::ALWAYS);
        let mut rule = Self { action, filter, chance, seed: 0, times: None, lifetime: None };
        let mut names = Vec::new();
        for word in words {
            let form = || ParseError::Form(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(form)?;
            if names.contains(&name) {
                return Err(ParseError::Twice(name.to_owned()));
            }
            names.push(name);
            rule.set(name, value)?;
        }
        if action == Action::Delay(Duration::ZERO) && !names.contains(&"by") {
            return Err(ParseError::NoTime);
        }
        Ok(rule)
    }
}

impl Rule {
    /// Sets a field.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParseError> {
        let wrong = |expected| {
            let (name, value) = (name.to_owned(), value.to_owned());
            ParseError::Value { name, value, expected }
        };
        let any = || number(value).map_err(|_| wrong(NUMBER));
        let from_one = || number(value).ok().filter(|n| *n > 0).ok_or_else(|| wrong(FROM_ONE));
        let short = || {
            let short = number(value).ok().and_then(|number| u32::try_from(number).ok());
            short.filter(|number| *number < 1 << 24).ok_or_else(|| wrong(NUMBER_24))
        };
        let time = || parse_time(value).ok_or_else(|| wrong(TIME));
        match (name, &mut self.action) {
            ("function", _) if value.is_empty() => return Err(wrong("a name is expected")),
            ("function", _) => self.filter.function = Some(value.to_owned()),
            ("qp", _) => self.filter.qp = Some(Qpn::new(short()?)),
            ("opcode", _) => {
                let expected = "a name such as rc-write-only or iwarp-write, or a number such as \
                                0x0a, is expected";
                self.filter.opcode = Some(opcode(value).ok_or_else(|| wrong(expected))?);
            }
            ("psn", _) => self.filter.psn = Some(Psn::new(short()?)),
            ("nth", _) => self.filter.nth = Some(from_one()?),
            ("prob", _) => {
                let expected = "a number from 0 to 1 with at most 9 decimals is expected";
                self.chance = parse_chance(value).ok_or_else(|| wrong(expected))?;
            }
            ("seed", _) => self.seed = any()?,
            ("times", _) => self.times = Some(from_one()?),
            ("for", _) => self.lifetime = Some(time()?),
            ("by", Action::Delay(by)) => *by = time()?,
            ("behind", Action::Reorder(behind)) => {
                let number = from_one()?;
                *behind = u32::try_from(number).map_err(|_| wrong(NUMBER))?;
            }
            ("crc", Action::Corrupt(crc)) => {
                *crc = match value {
                    "right" => Crc::Right,
                    "checksum" => Crc::Checksum,
                    "wrong" => Crc::Wrong,
                    _ => return Err(wrong("right, checksum or wrong is expected")),
                };
            }
            (_, action) => return Err(ParseError::Field(name.to_owned(), action.name())),
        }
        Ok(())
    }
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Delay(_) => "delay",
            Self::Duplicate => "duplicate",
            Self::Reorder(_) => "reorder",
            Self::Corrupt(_) => "corrupt",
        }
    }
}

/// Writes the rule as it is read, without fields that have their default.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.action.name())?;
        match self.action {
            Action::Delay(time) => write!(f, " by={}", Nanos(time))?,
            Action::Reorder(behind) => write!(f, " behind={behind}")?,
            Action::Corrupt(Crc::Right) => f.write_str(" crc=right")?,
            Action::Corrupt(Crc::Checksum) => f.write_str(" crc=checksum")?,
            Action::Corrupt(Crc::Wrong) => f.write_str(" crc=wrong")?,
            Action::Drop | Action::Duplicate => {}
        }
        let Filter { function, qp, opcode, psn, nth } = &self.filter;
        field(f, "function", function.as_ref())?;
        field(f, "qp", qp.map(Qpn::get))?;
        field(f, "opcode", *opcode)?;
        field(f, "psn", psn.map(Psn::get))?;
        field(f, "nth", *nth)?;
        field(f, "prob", (self.chance != Chance::ALWAYS).then_some(Decimal(self.chance)))?;
        field(f, "seed", (self.seed != 0).then_some(self.seed))?;
        field(f, "times", self.times)?;
        field(f, "for", self.lifetime.map(Nanos))
    }
}

fn field(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

/// A time in the largest unit that makes it a whole number.
struct Nanos(Duration);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
        let (unit, name) =
            units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit)).unwrap_or((1, "ns"));
        write!(f, "{}{name}", nanos / unit)
    }
}

/// A chance with as many decimals as it needs.
struct Decimal(Chance);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("0.{:09}", self.0.parts());
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Reads a decimal number, or a hexadecimal one behind `0x`.
fn number(text: &str) -> Result<u64, ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

fn opcode(text: &str) -> Option<Opcode> {
    let by_number = || RoceOpcode::from_number(u8::try_from(number(text).ok()?).ok()?);
    text.parse().ok().or_else(|| by_number().map(Opcode::Roce))
}

fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (count, unit) = text.split_at_checked(digits)?;
    let nanos = match unit {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(nanos).map(Duration::from_nanos)
}

fn parse_chance(text: &str) -> Option<Chance> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 9 || !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let parts: u32 = format!("{decimals:0<9}").parse().ok()?;
    match (whole, parts) {
        ("1", 0) => Some(Chance::ALWAYS),
        ("0" | "", parts) if !text.is_empty() && text != "." => Some(Chance::from_parts(parts)),
        _ => None,
    }
}

//! The values of the fields of rules, as they are read and written.

use std::fmt;
use std::num::ParseIntError;
use std::time::Duration;

use vrnic_roce::wire::opcode::Opcode as RoceOpcode;

use crate::action::Site;
use crate::opcode::Opcode;
use crate::rule::Chance;

/// A time in the largest unit that makes it a whole number.
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
        let (unit, name) =
            units.into_iter().find(|(unit, _)| nanos.is_multiple_of(*unit)).unwrap_or((1, "ns"));
        write!(f, "{}{name}", nanos / unit)
    }
}

/// A chance with as many decimals as it needs.
pub(crate) struct Decimal(pub(crate) Chance);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("0.{:09}", self.0.parts());
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Reads a decimal number, or a hexadecimal one after `0x`.
pub(crate) fn number(text: &str) -> Result<u64, ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

/// Reads an opcode of a place. Packets of RoCE can also have the number.
pub(crate) fn opcode(site: Site, text: &str) -> Option<Opcode> {
    let by_number = || RoceOpcode::from_number(u8::try_from(number(text).ok()?).ok()?);
    let other = || by_number().filter(|_| site == Site::Packet).map(Opcode::Roce);
    Opcode::named(site, text).or_else(other)
}

/// Reads an amount per second, such as 500M.
pub(crate) fn parse_rate(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (at, 'k') => (text.get(..at)?, 1000),
        (at, 'M') => (text.get(..at)?, 1_000_000),
        (at, 'G') => (text.get(..at)?, 1_000_000_000),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|rate| *rate > 0)
}

/// Reads a size of packets, in bytes, as `enum ib_mtu`.
pub(crate) fn parse_mtu(text: &str) -> Option<u8> {
    (1..=5).find(|code| text.parse() == Ok(mtu_bytes(*code)))
}

/// Returns the bytes of a value of `enum ib_mtu`.
pub(crate) const fn mtu_bytes(code: u8) -> u32 {
    128 << code
}

pub(crate) fn parse_time(text: &str) -> Option<Duration> {
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

pub(crate) fn parse_chance(text: &str) -> Option<Chance> {
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

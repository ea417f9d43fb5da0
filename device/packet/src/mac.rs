//! MAC addresses.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Returns whether the address is a group address, which includes broadcast (IEEE 802.3, I/G
    /// bit).
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns whether all bits are zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }
}

/// A text that is not a MAC address.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("'{0}' is not a MAC address (six hexadecimal bytes, e.g. 52:54:00:00:00:0a)")]
pub struct ParseMacError(String);

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let bad = || ParseMacError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for MacAddr {
    type Error = ParseMacError;

    fn try_from(text: String) -> Result<Self, ParseMacError> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let mac: MacAddr = "52:54:00:00:00:0A".parse().expect("valid");
        assert_eq!(mac, MacAddr([0x52, 0x54, 0, 0, 0, 0x0a]));
        assert_eq!(mac.to_string(), "52:54:00:00:00:0a");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "52:54:00:00:00", "52:54:00:00:00:0a:0b", "52:54:00:00:00:g0", "1:2:3:4:5:6"]
        {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}

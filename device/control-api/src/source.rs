//! The source addresses that a guest may use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The source addresses that the frames of a port may have, in addition to those that are bound to
/// the port. Whatever this is, no frame may have an address that is bound to the port of another
/// guest, or that was heard at another port a short time before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceCheck {
    /// No others. The adapter uses no others, either.
    Own,
    /// Addresses that the guest's driver has named to the adapter: of its macvlans, its bridges,
    /// and of a network card whose address has changed.
    #[default]
    Strict,
    /// All. The switch learns a limited number of them, such as the addresses of nested guests.
    Nested,
}

impl SourceCheck {
    /// Returns its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Strict => "strict",
            Self::Nested => "nested",
        }
    }
}

impl FromStr for SourceCheck {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Self::Own, Self::Strict, Self::Nested];
        all.into_iter().find(|check| check.name() == text).ok_or(())
    }
}

impl fmt::Display for SourceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

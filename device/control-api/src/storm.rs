//! The limit of frames to all ports.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of frames per second of a port to groups and unknown addresses. Zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct StormLimit(pub u32);

impl Default for StormLimit {
    fn default() -> Self {
        Self(100_000)
    }
}

impl FromStr for StormLimit {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

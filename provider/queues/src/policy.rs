// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Settings from environment variables.

use std::str::FromStr;

/// The memory of send queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqPolicy {
    /// In the adapter's memory for queue pairs that ask for inline data, so that a small message is
    /// sent with its WQE. In this process' memory for other queue pairs, and if the adapter's
    /// memory is used up.
    #[default]
    Auto,
    /// Always in this process' memory.
    Guest,
    /// Always in the adapter's memory.
    Device,
}

impl FromStr for SqPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Self::Auto),
            "guest" => Ok(Self::Guest),
            "device" => Ok(Self::Device),
            _ => Err(()),
        }
    }
}

/// The length of payloads to and from the kernel, for tests of a plugin and a module of different
/// versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadPolicy {
    /// The length of this version.
    #[default]
    Own,
    /// The length that all versions have.
    Older,
    /// A longer payload, whose end this version does not know.
    Newer,
}

impl PayloadPolicy {
    /// The number of bytes that a later version adds in tests.
    pub const MORE: usize = 16;

    /// Returns the length of a payload that has `own` bytes in this version, of which `required`
    /// are mandatory.
    #[must_use]
    pub fn length(self, own: usize, required: usize) -> usize {
        match self {
            Self::Own => own,
            // Lengths are multiples of 8.
            Self::Older => required.next_multiple_of(8),
            Self::Newer => own + Self::MORE,
        }
    }
}

impl FromStr for PayloadPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "own" => Ok(Self::Own),
            "older" => Ok(Self::Older),
            "newer" => Ok(Self::Newer),
            _ => Err(()),
        }
    }
}

/// The meaning of completion vector 0, which programs use if they do not care about the vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorPolicy {
    /// The first vector, as the verbs specify.
    #[default]
    Asked,
    /// A vector that the driver chooses.
    Any,
}

impl FromStr for VectorPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "asked" => Ok(Self::Asked),
            "any" => Ok(Self::Any),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use vrnic_abi::uverbs::{CqReq, MrReq, Payload, QpReq};

    use super::*;

    #[test]
    fn payloads_of_other_versions_are_shorter_or_longer() {
        let lengths = |own, required| {
            [PayloadPolicy::Older, PayloadPolicy::Own, PayloadPolicy::Newer]
                .map(|policy| policy.length(own, required))
        };
        assert_eq!(lengths(size_of::<QpReq>(), QpReq::REQUIRED), [24, 32, 48]);
        assert_eq!(lengths(size_of::<MrReq>(), MrReq::REQUIRED), [0, 8, 24]);
        assert_eq!(lengths(size_of::<CqReq>(), CqReq::REQUIRED), [16, 16, 32]);
    }
}

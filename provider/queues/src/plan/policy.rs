// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the user may choose by the environment.

use std::str::FromStr;

/// Where send queues are put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqPolicy {
    /// In the adapter's memory for queue pairs that ask for inline data, so that a small message
    /// travels with its WQE; in this process' memory for the others and when the adapter's
    /// is used up.
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

/// What the completion vector 0 means, which programs name that do not care.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VectorPolicy {
    /// The first vector, as verbs say.
    #[default]
    Asked,
    /// One that the driver chooses.
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

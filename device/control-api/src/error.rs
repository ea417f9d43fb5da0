//! Errors in the settings of an object.

use thiserror::Error;
use vrnic_lanes::Conflict;
use vrnic_packet::mac::ParseMacError;

use crate::assignment::BadAmount;

/// An error in a text of settings.
#[derive(Debug, Error)]
pub enum SettingError {
    /// An amount of a resource that is not valid.
    #[error(transparent)]
    Amount(#[from] BadAmount),
    /// A part of a text that does not have the form `key=value`.
    #[error("'{0}' does not have the form key=value")]
    NoValue(String),
    /// A key that the object does not have.
    #[error("this {object} has no setting '{key}'{nearest}; the settings are {known}")]
    UnknownKey {
        /// A function, a port or an uplink.
        object: &'static str,
        /// The key as the user gave it.
        key: String,
        /// Words that name the key that is nearest to it, or nothing if none is near.
        nearest: String,
        /// The names of all settings.
        known: String,
    },
    /// A key given twice.
    #[error("the {object}'s setting '{key}' is given twice")]
    Twice {
        /// A function, a port or an uplink.
        object: &'static str,
        /// The key that is there twice.
        key: String,
    },
    /// A needed key is missing.
    #[error("the {object}'s setting '{key}' is missing")]
    Missing {
        /// A function, a port or an uplink.
        object: &'static str,
        /// The key that must be given.
        key: &'static str,
    },
    /// A value that is not valid.
    #[error("the {object}'s setting '{key}' is '{value}'; it must be {form}")]
    Value {
        /// A function, a port or an uplink.
        object: &'static str,
        /// The key whose value is wrong.
        key: &'static str,
        /// The value as the user gave it.
        value: String,
        /// The valid values.
        form: &'static str,
    },
    /// An uplink with none or several of the settings that determine where it leads.
    #[error("an uplink needs exactly one of the settings {0}")]
    Way(&'static str),
    /// Lanes whose settings contradict each other.
    #[error("the lanes of port {0}: {1}")]
    Lanes(String, Conflict),
    /// A text that is not a MAC address.
    #[error(transparent)]
    Mac(ParseMacError),
}

//! The reason for which a call failed.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

/// The reason for which an agent's call failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The errno, when a verb failed.
    pub(crate) errno: Option<i32>,
    /// The message for users.
    pub(crate) text: String,
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        Self { errno: error.raw_os_error(), text: error.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

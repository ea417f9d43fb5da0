//! Texts of the form `key=value,…`, which describe objects on the command line.

use super::error::ConfigError;
use crate::net::storm::StormLimit;

/// The values of such a text.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    object: &'static str,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Reads the text of an object that has these keys, each at most once.
    pub(super) fn parse(
        object: &'static str,
        known: &[&str],
        text: &'a str,
    ) -> Result<Self, ConfigError> {
        let mut values = Vec::new();
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| ConfigError::NoValue(part.to_owned()))?;
            let key_text = || key.to_owned();
            if !known.contains(&key) {
                let known = known.join(", ");
                return Err(ConfigError::UnknownKey { object, key: key_text(), known });
            }
            if values.iter().any(|(given, _)| *given == key) {
                return Err(ConfigError::Twice { object, key: key_text() });
            }
            values.push((key, value));
        }
        Ok(Self { object, values })
    }

    /// Returns a value, or none if it is not given.
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.values.iter().find(|(given, _)| *given == key).map(|(_, value)| *value)
    }

    /// Returns whether the value is yes. The default is no.
    pub(super) fn flag(&self, key: &'static str) -> Result<bool, ConfigError> {
        match self.get(key) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => {
                let (object, value) = (self.object, other.to_owned());
                Err(ConfigError::Value { object, key, value, form: "yes or no" })
            }
        }
    }

    /// Returns the limit of frames to groups and unknown addresses, or the default.
    pub(super) fn storm(&self) -> Result<StormLimit, ConfigError> {
        let Some(text) = self.get("storm") else { return Ok(StormLimit::default()) };
        text.parse().map_err(|_| ConfigError::Value {
            object: self.object,
            key: "storm",
            value: text.to_owned(),
            form: "a number of frames per second; 0 is no limit",
        })
    }

    /// Returns a value, or an error if it is not given.
    pub(super) fn need(&self, key: &'static str) -> Result<&'a str, ConfigError> {
        self.get(key).ok_or(ConfigError::Missing { object: self.object, key })
    }
}

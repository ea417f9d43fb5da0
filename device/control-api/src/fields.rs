//! Texts of the form `key=value,…`, which describe objects on the command line.

use crate::error::SettingError;
use crate::storm::StormLimit;
use crate::vlans::VlanSetting;

/// Similarity from which a key counts as near. clap takes 0.7 for its options, at which short words
/// are near that have little in common.
const NEAR: f64 = 0.8;

/// Returns words that name the known key that is nearest to a key, or nothing if none is near.
fn nearest(key: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (strsim::jaro(key, name), name));
    let best = near.filter(|(near, _)| *near > NEAR).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| format!(" (did you mean '{name}'?)")).unwrap_or_default()
}

/// The values of such a text.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    object: &'static str,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Reads the text of an object that has these keys, each at most once.
    pub(crate) fn parse(
        object: &'static str,
        known: &[&str],
        text: &'a str,
    ) -> Result<Self, SettingError> {
        let mut values = Vec::new();
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| SettingError::NoValue(part.to_owned()))?;
            let key_text = || key.to_owned();
            if !known.contains(&key) {
                let (nearest, known) = (nearest(key, known), known.join(", "));
                return Err(SettingError::UnknownKey { object, key: key_text(), nearest, known });
            }
            if values.iter().any(|(given, _)| *given == key) {
                return Err(SettingError::Twice { object, key: key_text() });
            }
            values.push((key, value));
        }
        Ok(Self { object, values })
    }

    /// Returns a value, or none if it is not given.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.values.iter().find(|(given, _)| *given == key).map(|(_, value)| *value)
    }

    /// Returns a value as `parse` reads it, or none if it is not given. `form` describes the valid
    /// values.
    pub(crate) fn read<T, E>(
        &self,
        key: &'static str,
        form: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, SettingError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let (object, value) = (self.object, || text.to_owned());
        let wrong = |_| SettingError::Value { object, key, value: value(), form };
        parse(text).map(Some).map_err(wrong)
    }

    /// Returns whether the value is yes. The default is no.
    pub(crate) fn flag(&self, key: &'static str) -> Result<bool, SettingError> {
        let flag = self.read(key, "yes or no", |text| match text {
            "no" => Ok(false),
            "yes" => Ok(true),
            _ => Err(()),
        });
        flag.map(Option::unwrap_or_default)
    }

    /// Returns the limit of frames to groups and unknown addresses, or the default.
    pub(crate) fn storm(&self) -> Result<StormLimit, SettingError> {
        let form = "a number of frames per second; 0 is no limit";
        self.read("storm", form, str::parse).map(Option::unwrap_or_default)
    }

    /// Returns the VLANs, or the default.
    pub(crate) fn vlans(&self) -> Result<VlanSetting, SettingError> {
        let form = "a number from 1 to 4094, or several with + between them";
        self.read("vlan", form, str::parse).map(Option::unwrap_or_default)
    }

    /// Returns a value, or an error if it is not given.
    pub(crate) fn need(&self, key: &'static str) -> Result<&'a str, SettingError> {
        self.get(key).ok_or(SettingError::Missing { object: self.object, key })
    }
}

//! Environment, user and working folder of an image.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::container::users::User;

/// The search path of an image that has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The processor of the guests, as images call it.
pub(crate) const PROCESSOR: &str = "amd64";

/// What an image says about its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The environment, each as NAME=VALUE.
    pub env: Vec<String>,
    /// The user, as in Dockerfiles: a name or number, and a group after a colon.
    pub user: String,
    /// The working folder, if it has one.
    pub folder: Option<String>,
    /// The processor, or empty if that is unknown.
    pub processor: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<Inner>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Inner {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
}

impl Config {
    /// Reads the configuration of an image.
    ///
    /// # Errors
    /// If it has another form.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let document: Document =
            serde_json::from_slice(json).context("the image's configuration has no known form")?;
        let inner = document.config.unwrap_or_default();
        let mut env = inner.env.unwrap_or_default();
        // Others would be taken for the program that is started.
        env.retain(|variable| variable.split_once('=').is_some_and(|(name, _)| !name.is_empty()));
        Ok(Self {
            env,
            user: inner.user.unwrap_or_default(),
            folder: inner.working_dir.filter(|folder| !folder.is_empty()),
            processor: document.architecture,
        })
    }

    /// Checks that the guests have the processor of the image, which was at `path`.
    ///
    /// # Errors
    /// If they do not.
    pub fn fits(&self, path: &Path) -> Result<()> {
        let Self { processor, .. } = self;
        ensure!(
            processor.is_empty() || processor == PROCESSOR,
            "the root {} is for the architecture {processor}, and the guests are {PROCESSOR}",
            path.display()
        );
        Ok(())
    }

    /// Returns the configuration with the variables that every program has.
    #[must_use]
    pub(crate) fn completed(mut self, user: &User) -> Self {
        let home = format!("HOME={}", user.home);
        for default in [format!("PATH={PATH}"), home] {
            let name = default.split('=').next().unwrap_or_default();
            if self.variable(name).is_none() {
                self.env.push(default);
            }
        }
        self
    }

    /// Returns the value of a variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        let mut values = self.env.iter().filter_map(|variable| variable.split_once('='));
        values.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read() -> Result<()> {
        let json = br#"{"architecture": "amd64", "os": "linux", "config":
            {"Env": ["PATH=/x", "A=b c", "reboot", "=x", "-u", ""], "User": "app:1", "WorkingDir": "/app", "Cmd": null}}"#;
        let config = Config::parse(json)?;
        assert_eq!(config.env, ["PATH=/x", "A=b c"]);
        assert_eq!((config.user.as_str(), config.folder.as_deref()), ("app:1", Some("/app")));
        config.fits(Path::new("image"))?;
        let user = User { uid: 1, gid: 1, home: "/srv/app".into() };
        assert_eq!(config.completed(&user).env, ["PATH=/x", "A=b c", "HOME=/srv/app"]);
        Ok(())
    }

    #[test]
    fn another_processor_is_refused() -> Result<()> {
        let config = Config::parse(br#"{"architecture": "arm64"}"#)?;
        let error = config.fits(Path::new("image.tar")).map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("the root image.tar is for the architecture arm64, and the guests are amd64".into())
        );
        assert!(Config::parse(b"7").is_err());
        Ok(())
    }
}

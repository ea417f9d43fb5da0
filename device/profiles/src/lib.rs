//! Profiles of other RDMA devices: their limits, how many objects they have, and what they refuse.
//!
//! With a profile, an adapter is such a device for programs, so that they can be tested for devices
//! that nobody has at hand. The figures of the table are published ones.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer, de};

/// The table of profiles.
const TABLE: &str = include_str!("../profiles.toml");
/// The names of errors, and their numbers (errno.h).
const ERRORS: [(&str, i32); 10] = [
    ("EPERM", 1),
    ("EIO", 5),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EBUSY", 16),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("ENOSPC", 28),
    ("ENOSYS", 38),
    ("EOPNOTSUPP", 95),
];

/// A profile.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    /// The name in commands.
    pub name: String,
    /// The device, for people.
    pub device: String,
    /// Where each figure is published.
    pub sources: Vec<String>,
    /// What queries report.
    #[serde(default)]
    pub limits: Maxima,
    /// Objects that cannot be created, and the error.
    #[serde(default)]
    pub refuses: BTreeMap<Object, Refusal>,
    /// How many objects there can be at a time.
    #[serde(default)]
    pub exhausted: BTreeMap<Object, Exhaustion>,
    /// True if it has atomic operations.
    #[serde(default = "yes")]
    pub atomics: bool,
    /// True if it takes optional rights of regions, such as relaxed ordering.
    #[serde(default = "yes")]
    pub optional_access: bool,
    /// True if its port is up.
    #[serde(default = "yes")]
    pub port_up: bool,
}

const fn yes() -> bool {
    true
}

/// The figures of a profile. What is absent is that of the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Maxima {
    /// Segments of a request.
    pub sge: Option<u32>,
    /// Bytes of inline data.
    pub inline: Option<u32>,
    /// Requests of a queue.
    pub wr: Option<u32>,
    /// Outstanding READs and atomics of a queue pair.
    pub rd_atomic: Option<u32>,
    /// Memory windows.
    pub mw: Option<u32>,
    /// Shared receive queues.
    pub srq: Option<u32>,
    /// XRC domains.
    pub xrcd: Option<u32>,
}

/// A kind of object that a profile refuses or limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Object {
    /// Queue pairs of any type.
    Qp,
    /// Queue pairs of reliable connections.
    Rc,
    /// Queue pairs of unreliable connections.
    Uc,
    /// Queue pairs of datagrams.
    Ud,
    /// Domains and queue pairs of XRC.
    Xrc,
    /// Shared receive queues.
    Srq,
    /// Completion queues.
    Cq,
    /// Memory regions.
    Mr,
    /// Memory windows.
    Mw,
}

/// The error of a call that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(i32);

/// How many objects there can be, and the error of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exhaustion {
    /// The number of objects.
    pub after: u32,
    /// The error.
    pub error: Refusal,
}

/// Several profiles in one file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    profile: Vec<Profile>,
}

impl Refusal {
    /// Returns the number of the error (errno.h).
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ERRORS.iter().find(|(_, number)| *number == self.0).map(|(name, _)| *name);
        f.write_str(name.unwrap_or("an error"))
    }
}

impl<'de> Deserialize<'de> for Refusal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let found = ERRORS.iter().find(|(known, _)| *known == name);
        found.map(|(_, number)| Self(*number)).ok_or_else(|| {
            let known = ERRORS.map(|(name, _)| name).join(", ");
            de::Error::custom(format!("'{name}' is no error; the errors are {known}"))
        })
    }
}

impl Object {
    /// Returns whether this is a type of queue pairs.
    const fn is_pair(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::Ud | Self::Xrc)
    }
}

impl Default for Profile {
    /// Returns the profile of the adapter itself.
    fn default() -> Self {
        Self {
            name: String::new(),
            device: String::new(),
            sources: Vec::new(),
            limits: Maxima::default(),
            refuses: BTreeMap::new(),
            exhausted: BTreeMap::new(),
            atomics: true,
            optional_access: true,
            port_up: true,
        }
    }
}

impl Profile {
    /// Returns the profiles of the table.
    ///
    /// # Errors
    /// If the table is not right.
    pub fn all() -> Result<Vec<Self>> {
        Ok(toml::from_str::<Table>(TABLE)?.profile)
    }

    /// Returns the profile with this name, or the one in the file with this name.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the name, or with the file.
    pub fn find(name: &str) -> Result<Self> {
        let all = Self::all()?;
        if let Some(found) = all.iter().find(|profile| profile.name == name) {
            return Ok(found.clone());
        }
        let path = Path::new(name);
        if !path.exists() {
            let names: Vec<_> = all.iter().map(|profile| profile.name.as_str()).collect();
            bail!(
                "there is no profile and no file '{name}'; the profiles are {}",
                names.join(", ")
            );
        }
        Self::read(path)
    }

    /// Reads the profile in a file.
    ///
    /// # Errors
    /// A sentence that says what is wrong in which line.
    fn read(path: &Path) -> Result<Self> {
        let what = || format!("the profile {}", path.display());
        let text = std::fs::read_to_string(path).with_context(what)?;
        let profile: Self = toml::from_str(&text).with_context(what)?;
        let is_class = profile.exhausted.keys().all(|object| !object.is_pair());
        ensure!(is_class, "{}: a number of queue pairs is that of all types together (qp)", what());
        Ok(profile)
    }

    /// Returns the error of a call that creates an object, if the device has no such objects.
    #[must_use]
    pub fn refusal(&self, object: Object) -> Option<Refusal> {
        let class = object.is_pair().then_some(Object::Qp);
        let refusal = self.refuses.get(&object);
        refusal.or_else(|| self.refuses.get(&class?)).copied()
    }

    /// Returns how many such objects there can be, and the error of the next one.
    #[must_use]
    pub fn exhaustion(&self, object: Object) -> Option<Exhaustion> {
        let object = if object.is_pair() { Object::Qp } else { object };
        self.exhausted.get(&object).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_a_source_and_a_row_in_the_page() {
        let page = include_str!("../../../docs/exec.md");
        let all = Profile::all().expect("a table");
        assert!(all.len() >= 8);
        for Profile { name, sources, .. } in &all {
            assert!(!sources.is_empty(), "{name}");
            assert!(page.contains(&format!("| `{name}` |")), "docs/exec.md lacks {name}");
        }
        let mut names: Vec<_> = all.iter().map(|profile| &profile.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn what_a_profile_refuses_has_its_own_error() {
        let tunnel = Profile::find("thunderbolt").expect("a profile");
        assert_eq!(tunnel.refusal(Object::Uc), None);
        assert_eq!(tunnel.refusal(Object::Rc).map(Refusal::number), Some(95));
        let busy = tunnel.exhaustion(Object::Uc).expect("a limit");
        assert_eq!((busy.after, busy.error.to_string().as_str()), (10, "EBUSY"));
        assert_eq!(tunnel.exhaustion(Object::Srq), None);
        let own = Profile::default();
        assert!(own.atomics && own.port_up && own.refusal(Object::Rc).is_none());
    }

    #[test]
    fn a_file_of_a_user_is_read_or_refused_with_a_sentence() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        let name = path.to_str().expect("a name");
        let head = "name = \"mine\"\ndevice = \"a\"\nsources = []\n";
        std::fs::write(&path, format!("{head}refuses = {{ qp = \"ENOMEM\" }}\n")).expect("text");
        let mine = Profile::find(name).expect("a profile");
        assert_eq!(mine.refusal(Object::Ud).map(Refusal::number), Some(12));
        for (text, part) in [
            ("colour = \"red\"", "colour"),
            ("refuses = { rc = \"EVERY\" }", "'EVERY' is no error; the errors are EPERM"),
            ("exhausted = { rc = { after = 1, error = \"EBUSY\" } }", "(qp)"),
        ] {
            std::fs::write(&path, format!("{head}{text}\n")).expect("text");
            let error = format!("{:#}", Profile::find(name).expect_err("wrong"));
            assert!(error.contains(part) && error.contains("mine.toml"), "{error}");
        }
        let error = Profile::find("x723").expect_err("no profile").to_string();
        assert!(
            error.contains("no profile and no file 'x723'; the profiles are x722, "),
            "{error}"
        );
    }
}

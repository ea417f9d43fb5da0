//! The libibverbs of a root, and whether the plugin fits it.
//!
//! libibverbs and its plugins share private structures, whose layout changes between releases, also
//! without a new number in the plugins' names.

use std::ops::RangeInclusive;
use std::path::Path;

use crate::container::inside::inside;
use crate::container::{PLUGIN, ROOT};

/// Folders in which distributions have their libraries.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
const LIBRARY: &str = "libibverbs.so.1";

/// The releases of rdma-core whose private structures the plugin knows.
pub const RELEASES: RangeInclusive<u32> = 45..=56;

/// What a root has of libibverbs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// No libibverbs in a usual place.
    Absent,
    /// A library whose name does not tell the release.
    Unknown(String),
    /// A release.
    Known {
        /// The folder of the library, as the root's programs see it.
        folder: &'static str,
        /// The release.
        release: u32,
    },
}

impl Verbs {
    /// Finds the libibverbs of a root.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let file = |folder: &&'static str| {
            inside(root, &Path::new(folder).join(LIBRARY)).map(|file| (*folder, file))
        };
        let Some((folder, file)) = FOLDERS.iter().find_map(file) else { return Self::Absent };
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match release(&name) {
            Some(release) => Self::Known { folder, release },
            None => Self::Unknown(name),
        }
    }

    /// Returns the path of the library in the root.
    #[must_use]
    pub fn library(&self) -> Option<String> {
        match self {
            Self::Known { folder, .. } => Some(format!("{folder}/{LIBRARY}")),
            _ => None,
        }
    }

    /// Returns why the plugin does not fit, if that is so.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        match self {
            Self::Absent => Some("the root has no libibverbs".to_owned()),
            Self::Unknown(name) => {
                Some(format!("the release of the root's libibverbs ({name}) is not known"))
            }
            Self::Known { release, .. } => {
                let (first, last) = RELEASES.into_inner();
                (!RELEASES.contains(release)).then(|| {
                    format!(
                        "the root's libibverbs is of rdma-core {release}, and the plugin fits {first} \
                         to {last}"
                    )
                })
            }
        }
    }

    /// Returns shell commands that install [`PLUGIN`] in the root, if the guest has that file.
    #[must_use]
    pub(crate) fn installing(&self) -> String {
        let Self::Known { folder, release } = self else { return String::new() };
        let plugins = format!("{ROOT}{folder}/libibverbs");
        format!(
            "if [ -e {PLUGIN} ]; then\n\
             mkdir -p {plugins} {ROOT}/etc/libibverbs.d\n\
             cp {PLUGIN} {plugins}/libvrnic-rdmav{}.so\n\
             echo driver vrnic >{ROOT}/etc/libibverbs.d/vrnic.driver\nfi\n",
            number(*release)
        )
    }
}

/// Returns the number of the private interface of a release, which is in the names of its plugins.
fn number(release: u32) -> u32 {
    match release {
        ..=56 => 34,
        57..=58 => 57,
        59..=63 => 59,
        later => later,
    }
}

/// Returns the release of rdma-core in the name of the library, such as
/// `libibverbs.so.1.14.56.1`.
fn release(name: &str) -> Option<u32> {
    let version = name.strip_prefix("libibverbs.so.1.")?;
    version.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_release_is_in_the_name_of_the_library() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let root = root.path();
        assert_eq!(Verbs::find(root), Verbs::Absent);
        let folder = root.join("usr/lib64");
        fs::create_dir_all(&folder)?;
        std::os::unix::fs::symlink("libibverbs.so.1.15.62.0", folder.join(LIBRARY))?;
        fs::write(folder.join("libibverbs.so.1.15.62.0"), "")?;
        let found = Verbs::find(root);
        assert_eq!(found, Verbs::Known { folder: "/usr/lib64", release: 62 });
        assert!(found.unfit().is_some_and(|why| why.contains("rdma-core 62")));
        assert!(found.installing().contains("/container/usr/lib64/libibverbs/libvrnic-rdmav59.so"));
        assert_eq!(Verbs::Known { folder: "/usr/lib64", release: 50 }.unfit(), None);
        Ok(())
    }

    #[test]
    fn releases_are_read() {
        assert_eq!(release("libibverbs.so.1.14.56.1"), Some(56));
        assert_eq!(release("libibverbs.so.1.14.39.0"), Some(39));
        assert_eq!(release("libibverbs.so.1"), None);
        assert_eq!(release("libibverbs-1de1263b.so.1.14.48.0"), None);
    }
}

//! The libibverbs of a root, and the plugin for it and for those that programs bring.
//!
//! libibverbs and its plugins share private structures, whose layout changes between releases, also
//! without a new number in the plugins' names.

use std::path::Path;

use vrnic_layouts::{LAYOUTS, Layout};

use crate::container::inside::inside;
use crate::container::{PLUGIN, ROOT};
use crate::roots::overlay::PLUGIN_FOLDERS;

/// Folders in which distributions have their libraries.
pub(crate) const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
const LIBRARY: &str = "libibverbs.so.1";

/// What a root has of libibverbs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// No libibverbs in a usual place.
    Absent,
    /// A library.
    Present {
        /// The folder of the library, as the root's programs see it.
        folder: &'static str,
        /// The name of its file.
        file: String,
        /// The release of rdma-core, if the name tells it.
        release: Option<u32>,
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
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let release = vrnic_layouts::release(&file);
        Self::Present { folder, file, release }
    }

    /// Returns the path of the library in the root.
    #[must_use]
    pub fn library(&self) -> Option<String> {
        match self {
            Self::Present { folder, .. } => Some(format!("{folder}/{LIBRARY}")),
            Self::Absent => None,
        }
    }

    /// Returns why the plugin does not fit, if that is known.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        let Self::Present { release: Some(release), .. } = self else { return None };
        if layout(*release).is_some() {
            return None;
        }
        Some(format!(
            "the root's libibverbs is of rdma-core {release}, and the plugin fits {}",
            releases()
        ))
    }

    /// Returns the note for the user if it is unknown whether the plugin fits.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        match self {
            Self::Absent => Some(
                "the root has no libibverbs in a usual place, so only programs that bring one can \
                 find the RDMA device"
                    .to_owned(),
            ),
            Self::Present { file, release: None, .. } => Some(format!(
                "the release of the root's libibverbs ({file}) is not known; the plugin fits \
                 rdma-core {}",
                releases()
            )),
            Self::Present { .. } => None,
        }
    }

    /// Returns shell commands that install [`PLUGIN`] in the root, if the guest has that file: for
    /// the root's libibverbs, and for those that programs bring.
    #[must_use]
    pub(crate) fn installing(&self) -> String {
        let own = match self {
            Self::Present { folder, release, .. } => Some((*folder, release.and_then(layout))),
            Self::Absent => None,
        };
        let mut files: Vec<String> = Vec::new();
        if let Some((folder, layout)) = own
            && !PLUGIN_FOLDERS.contains(&plugins(folder).as_str())
        {
            let numbers = layout.map_or_else(|| numbers().collect(), |it| vec![it.number]);
            files.extend(numbers.into_iter().map(|number| path(&plugins(folder), number)));
        }
        for folder in PLUGIN_FOLDERS {
            files.extend(numbers().map(|number| path(folder, number)));
        }
        // Each is a file of its own, because a file is loaded only once in a process, which may
        // have several libibverbs. A folder that cannot be made, such as a link to nowhere, is left
        // out.
        format!(
            "if [ -e {PLUGIN} ]; then\n\
             for file in {}; do\n\
             mkdir -p ${{file%/*}} && cp {PLUGIN} $file || true\ndone\n\
             mkdir -p {ROOT}/etc/libibverbs.d\n\
             echo driver vrnic >{ROOT}/etc/libibverbs.d/vrnic.driver\nfi\n",
            files.join(" ")
        )
    }
}

fn numbers() -> impl Iterator<Item = u32> {
    vrnic_layouts::numbers()
}

/// Returns the folder in which the libibverbs of a folder looks for plugins.
fn plugins(folder: &str) -> String {
    format!("{folder}/libibverbs")
}

/// Returns the path in the guests of the plugin in a folder of the root.
fn path(folder: &str, number: u32) -> String {
    format!("{ROOT}{folder}/libvrnic-rdmav{number}.so")
}

/// Returns the layout of a release, if the plugin knows it.
#[must_use]
pub fn layout(release: u32) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.releases.contains(&release))
}

/// Returns the releases that the plugin knows, for people.
#[must_use]
pub fn releases() -> String {
    let [first, .., last] = &LAYOUTS;
    format!("{} to {}", first.releases.start(), last.releases.end())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns what a root has whose library has this name.
    fn found(folder: &str, name: &str) -> std::io::Result<Verbs> {
        let root = tempfile::tempdir()?;
        let folder = root.path().join(folder);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), "")?;
        if name != LIBRARY {
            std::os::unix::fs::symlink(name, folder.join(LIBRARY))?;
        }
        Ok(Verbs::find(root.path()))
    }

    #[test]
    fn the_release_is_in_the_name_of_the_library() -> std::io::Result<()> {
        let verbs = found("usr/lib64", "libibverbs.so.1.15.62.0")?;
        let file = "libibverbs.so.1.15.62.0".to_owned();
        assert_eq!(verbs, Verbs::Present { folder: "/usr/lib64", file, release: Some(62) });
        assert_eq!((verbs.unfit(), verbs.doubt()), (None, None));
        for name in ["libibverbs.so.1.14.39.0", "libibverbs.so.1.15.65.0"] {
            assert_eq!(found("usr/lib", name)?.unfit(), None, "{name}");
        }
        for name in ["libibverbs.so.1.14.35.0", "libibverbs.so.1.15.66.0"] {
            let why = found("usr/lib", name)?.unfit().unwrap_or_default();
            assert!(why.ends_with("and the plugin fits 36 to 65"), "{why}");
        }
        Ok(())
    }

    #[test]
    fn every_libibverbs_has_the_plugin_where_it_looks() -> std::io::Result<()> {
        let tempdir = tempfile::tempdir()?;
        let absent = Verbs::find(tempdir.path());
        assert_eq!(absent, Verbs::Absent);
        let own = found("usr/local/lib", "libibverbs.so.1.15.62.0")?;
        let nameless = found("usr/local/lib", LIBRARY)?;
        assert!(absent.doubt().is_some() && nameless.doubt().is_some());
        assert_eq!((absent.unfit(), nameless.unfit()), (None, None));
        assert_eq!(nameless.library().as_deref(), Some("/usr/local/lib/libibverbs.so.1"));
        let has = |verbs: &Verbs, file: &str| verbs.installing().contains(file);
        for verbs in [&absent, &own, &nameless] {
            for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
                for number in [34, 57, 59, 64, 65] {
                    let file = format!("/container{folder}/libibverbs/libvrnic-rdmav{number}.so");
                    assert!(has(verbs, &file), "{verbs:?} {file}");
                }
            }
        }
        let file = |number: u32| format!("/local/lib/libibverbs/libvrnic-rdmav{number}.so");
        assert_eq!((has(&own, &file(59)), has(&own, &file(34))), (true, false));
        assert!(has(&nameless, &file(59)) && has(&nameless, &file(34)));
        Ok(())
    }
}

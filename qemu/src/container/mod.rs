//! The root of a container as the root of commands in guests: an archive of an image, an archive
//! of files, or a folder.
//!
//! The guests mount it read-only from this machine, with a layer in memory for what they write. The
//! agent, the kernel's modules and the tools of the harness stay outside of it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`archive`] | archives of images, and their layers |
//! | [`check`] | what a root needs so that a command can start |
//! | [`config`] | environment, user and working folder of an image |
//! | [`inside`] | paths in a root, whose symbolic links may not lead out of it |
//! | [`layer`] | the files of a layer |
//! | [`libc`] | the C library of a root |
//! | [`users`] | numbers of users and groups |
//! | [`verbs`] | the libibverbs of a root, and the plugin for it |

pub mod archive;
pub mod check;
pub mod config;
pub mod inside;
pub mod layer;
pub mod libc;
pub mod users;
pub mod verbs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::container::config::Config;
use crate::container::users::User;
use crate::container::verbs::Verbs;
use crate::machine::rundir::RunDir;
use crate::roots::hosts::SCRIPT;
use crate::roots::overlay::TREE;
use crate::setup::SHARE;

/// The path in the guests at which the root is mounted.
pub const ROOT: &str = "/container";
/// The modules that mount it.
pub const MODULES: [&str; 3] = ["9pnet_virtio", "9p", "overlay"];
/// The path in the guests of the plugin, unless it is known not to fit the root.
pub const PLUGIN: &str = "/vrnic/plugin.so";

/// A root.
#[derive(Clone, Debug)]
pub struct Container {
    /// The folder of this machine that has the files.
    pub folder: PathBuf,
    /// The image's settings for its programs.
    pub config: Config,
    /// The user of the programs.
    pub user: User,
    /// The libibverbs of the container.
    pub verbs: Verbs,
    /// Removes the files, if they were unpacked for this run.
    _unpacked: Option<Arc<RunDir>>,
}

impl Container {
    /// Opens a folder, or unpacks an archive into a new folder in `cache`.
    ///
    /// # Errors
    /// If the path has neither, the archive is damaged or too large for the disk, or the image is
    /// for another processor.
    pub fn open(path: &Path, cache: &Path) -> Result<Self> {
        let (folder, config, unpacked) = if path.is_dir() {
            let folder = path.canonicalize().with_context(|| format!("{}", path.display()))?;
            (folder, Config::default(), None)
        } else {
            ensure!(path.exists(), "there is no root {}", path.display());
            let dir = RunDir::within(cache)?;
            let folder = dir.path().join("root");
            let config = archive::unpack(path, &folder)
                .with_context(|| format!("cannot unpack the root {}", path.display()))?;
            (folder, config, Some(Arc::new(dir)))
        };
        config.fits(path)?;
        let user = users::find(&folder, &config.user)?;
        let verbs = Verbs::find(&folder);
        let config = config.completed(&user);
        Ok(Self { folder, config, user, verbs, _unpacked: unpacked })
    }

    /// Returns why programs of the root cannot use the plugin, if that is known.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        libc::unfit(&self.folder).or_else(|| self.verbs.unfit())
    }

    /// Returns shell commands that mount the root in a guest, with the plugin and with the names of
    /// the guests.
    #[must_use]
    pub fn mounting(&self) -> String {
        format!(
            "set -e\n\
             mkdir -p /image /overlay {ROOT} {TREE} /output\n\
             mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 {SHARE} /image\n\
             mount -t tmpfs -o mode=0755 overlay /overlay\n\
             mkdir /overlay/up /overlay/work\n\
             mount -t overlay -o lowerdir=/image,upperdir=/overlay/up,workdir=/overlay/work \
                   overlay {ROOT}\n\
             cd {ROOT}\n\
             mkdir -p proc sys dev etc tmp .{TREE} output\n\
             chmod 1777 tmp /output\n\
             for folder in /proc /sys /dev {TREE} /output; do mount --rbind $folder .$folder; done\n\
             sh {SCRIPT} etc/hosts || true\n\
             {}",
            self.verbs.installing()
        )
    }
}

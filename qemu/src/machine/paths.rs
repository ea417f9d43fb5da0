//! Paths. The scripts export them (scripts/lib/common.sh). A program that is started without them
//! prints an error.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The paths of the cached roots and of what was built.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// The folder for files that later runs on this machine use.
    pub cache: PathBuf,
    /// The tool root: QEMU and its firmware.
    pub toolroot: PathBuf,
    /// The guests' kernel and base image.
    pub guest: PathBuf,
    /// A whole Debian system, which only some tests need.
    pub system: PathBuf,
    /// The kernel module and other things that the scripts build.
    pub build: PathBuf,
    /// Modules of the guests' kernel that their root does not contain.
    pub modules: PathBuf,
    /// All modules of the guests' kernel, which only some runs need.
    pub stock: PathBuf,
    /// Programs and libraries made by cargo.
    pub bin: PathBuf,
}

impl Paths {
    /// Reads the environment.
    ///
    /// # Errors
    /// If a variable is missing, or names a path that does not exist.
    pub fn from_env() -> anyhow::Result<Self> {
        let var = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).with_context(|| {
                format!("the variable {name} is not set; start this program through scripts/run or scripts/test")
            })
        };
        let paths = Self {
            cache: var("VRNIC_CACHE")?,
            toolroot: var("VRNIC_TOOLROOT")?,
            guest: var("VRNIC_GUEST")?,
            modules: var("VRNIC_MODULES")?,
            stock: var("VRNIC_STOCK")?,
            system: var("VRNIC_SYSTEM")?,
            build: var("VRNIC_BUILD")?,
            bin: var("VRNIC_BIN")?,
        };
        paths.need(&paths.kernel(), "scripts/setup")?;
        paths.need(&paths.base_image(), "scripts/setup")?;
        paths.need(&paths.qemu(), "scripts/setup")?;
        Ok(paths)
    }

    /// Checks that a file exists. `maker` is the command that makes it.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn need(&self, file: &Path, maker: &str) -> anyhow::Result<()> {
        ensure!(file.exists(), "{} is missing; {maker} creates it", file.display());
        Ok(())
    }

    /// Returns a command that starts QEMU from the tool root, without arguments. The root's own
    /// loader starts it, because it needs the libraries of that root's Debian.
    #[must_use]
    pub fn qemu_command(&self) -> Command {
        let root = &self.toolroot;
        let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(self.qemu());
        for dir in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            command.arg("-L").arg(root.join(dir));
        }
        command
    }

    /// Returns the path of the guests' kernel.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.guest.join("vmlinuz")
    }

    /// Returns the path of the guests' root, a cpio archive.
    #[must_use]
    pub fn base_image(&self) -> PathBuf {
        self.guest.join("base.cpio")
    }

    /// Returns the path of QEMU, a program of the tool root.
    #[must_use]
    pub fn qemu(&self) -> PathBuf {
        self.toolroot.join("usr/bin/qemu-system-x86_64")
    }

    /// Returns the path of the daemon.
    #[must_use]
    pub fn vrnicd(&self) -> PathBuf {
        self.bin.join("vrnicd")
    }

    /// Returns the path of the kernel module.
    #[must_use]
    pub fn module(&self) -> PathBuf {
        self.build.join("vrnic.ko")
    }

    /// Returns the path of the checker of programs that use verbs.
    #[must_use]
    pub fn checker(&self) -> PathBuf {
        self.bin.join("libvrnic_check.so")
    }

    /// Returns the path of the libibverbs plugin.
    #[must_use]
    pub fn provider(&self) -> PathBuf {
        self.bin.join("libvrnic.so")
    }
}

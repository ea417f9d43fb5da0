//! A distribution's root, with the plugin and a device in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vrnic_abi::pci;
use vrnic_qemu::machine::paths::Paths;
use vrnic_tests::repository::script::{run, succeed, top};

/// The folder of its libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A copy of a distribution's root.
pub(crate) struct Root {
    folder: TempDir,
}

/// What a program has printed.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Root {
    /// Copies a root, and adds the plugin, as packages install it, and a device.
    pub(crate) fn new(from: &Path) -> Result<Self> {
        // Not in /tmp, which may be in memory.
        let folder = TempDir::new_in("/var/tmp")?;
        for name in ["usr", "lib", "lib64", "etc"] {
            let part = from.join(name);
            if part.symlink_metadata().is_ok() {
                succeed(Command::new("cp").arg("-a").arg(part).arg(folder.path()))?;
            } else {
                symlink(format!("usr/{name}"), folder.path().join(name))?;
            }
        }
        let root = Self { folder };
        let text = ". scripts/lib/common.sh; . scripts/lib/plugin.sh; plugin_install \"$0\" \"$1\"";
        let mut command = Command::new("bash");
        command.args(["-euc", text]).arg(Paths::from_env()?.provider()).arg(root.folder.path());
        succeed(command.current_dir(top()?))?;
        root.add_device()?;
        Ok(root)
    }

    /// Adds what libibverbs reads of a device.
    fn add_device(&self) -> Result<()> {
        let (vendor, device) = (pci::VENDOR_ID, pci::DEVICE_ID);
        let modalias = format!("pci:v{vendor:08X}d{device:08X}sv00000000sd00000000bc02sc07i00\n");
        for (path, text) in [
            ("sysfs/class/infiniband_verbs/abi_version", "6\n"),
            ("sysfs/class/infiniband_verbs/uverbs0/ibdev", "vrnic0\n"),
            ("sysfs/class/infiniband_verbs/uverbs0/dev", "231:192\n"),
            ("sysfs/class/infiniband_verbs/uverbs0/abi_version", "1\n"),
            ("sysfs/class/infiniband/vrnic0/node_type", "1: CA\n"),
            ("sysfs/class/infiniband/vrnic0/device/modalias", &modalias),
            ("dev/infiniband/uverbs0", ""),
        ] {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(path, text)?;
        }
        Ok(())
    }

    /// Copies files with their symbolic links into a new folder. Returns the path in the root of
    /// the only one whose name begins with `prefix`.
    pub(crate) fn add_folder(&self, from: &Path, name: &str, prefix: &str) -> Result<String> {
        succeed(Command::new("cp").arg("-a").arg(from).arg(self.folder.path().join(name)))?;
        let mut found = Vec::new();
        for entry in fs::read_dir(from)? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            if file.starts_with(prefix) {
                found.push(file);
            }
        }
        ensure!(found.len() == 1, "{} has {found:?}", from.display());
        Ok(format!("/{name}/{}", found[0]))
    }

    /// Builds a program in C.
    pub(crate) fn add_program(&self, source: &str, name: &str) -> Result<()> {
        let text = self.folder.path().join("source.c");
        fs::write(&text, source)?;
        let out = self.folder.path().join(name);
        succeed(Command::new("gcc").args(["-Wall", "-Werror", "-o"]).args([&out, &text]))?;
        Ok(())
    }

    /// Gives the file of libibverbs another name.
    pub(crate) fn rename_library(&self, name: &str) -> Result<()> {
        let folder = self.folder.path().join(LIBRARIES);
        let link: PathBuf = folder.join("libibverbs.so.1");
        fs::rename(link.canonicalize()?, folder.join(name))?;
        fs::remove_file(&link)?;
        Ok(symlink(name, link)?)
    }

    /// Runs a program in the root, by the root's loader.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<Said> {
        let mut command = Command::new("/usr/sbin/chroot");
        command.env_clear().env("SYSFS_PATH", "/sysfs");
        command.arg(self.folder.path()).arg("/lib64/ld-linux-x86-64.so.2");
        // The root has no /etc/ld.so.cache.
        command.args(["--library-path", &format!("/{LIBRARIES}:/lib/x86_64-linux-gnu")]);
        let output = run(command.arg(program).args(arguments))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let said = Said { out: text(output.stdout), err: text(output.stderr) };
        ensure!(output.status.success(), "{}: {said:?}", output.status);
        Ok(said)
    }
}

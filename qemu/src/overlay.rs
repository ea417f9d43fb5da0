//! Files on top of the base image: a second cpio archive behind it, which the kernel unpacks after
//! it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, ensure};
use cpio::newc::{self, ModeFileType};

use crate::hosts;
use crate::paths::Paths;

/// Starts the guest: file systems, modules of the console, the agent, a shell on the second serial
/// line.
const INIT: &str = include_str!("init.sh");

/// The programs in C that are installed.
const PROGRAMS: &[&str] = &[
    "vrnicdv_command",
    "vrnicdv_echo",
    "vrnicdv_files",
    "vrnicdv_poster",
    "vrnicdv_proxy",
    "vrnicdv_switch",
    "vrnic_attach",
    "vrnic_dial",
    "vrnic_ends",
    "vrnic_faults",
    "vrnic_flow",
    "vrnic_frames",
    "vrnic_import",
    "vrnic_mistakes",
    "vrnic_paging",
    "vrnic_quota",
    "vrnic_renumber",
    "vrnic_rereg",
    "vrnic_reserve",
    "vrnic_scsi",
    "vrnic_taken",
    "vrnic_tcp",
    "vrnic_transfer",
    "vrnic_vfio",
    "vrnic_withheld",
];

/// Builds an archive.
#[derive(Debug)]
pub struct Overlay<W: Write> {
    out: Option<W>,
    inode: u32,
}

impl<W: Write> Overlay<W> {
    /// Returns an empty archive that is written to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Some(out), inode: 1 }
    }

    /// Adds a file. Its folder must exist in the base image or be added with [`Self::dir`].
    ///
    /// # Errors
    /// If `out` fails.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).map_err(io::Error::other)?;
        self.entry(path, mode, ModeFileType::Regular, len, data)
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn dir(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, 0o755, ModeFileType::Directory, 0, &[])
    }

    /// Adds a symbolic link to `target`.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let len = u32::try_from(target.len()).map_err(io::Error::other)?;
        self.entry(path, 0o777, ModeFileType::Symlink, len, target.as_bytes())
    }

    /// Adds a copy of a file of this machine.
    ///
    /// # Errors
    /// If it cannot be read or `out` fails.
    pub fn copy(&mut self, path: &str, mode: u32, from: &Path) -> anyhow::Result<()> {
        let data = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        Ok(self.file(path, mode, &data)?)
    }

    /// Adds the contents of a folder of this machine below `path`, which must exist: files with
    /// their modes, symbolic links, folders.
    ///
    /// # Errors
    /// If a file is neither of these, a file cannot be read, or `out` fails.
    pub fn tree(&mut self, path: &str, from: &Path) -> anyhow::Result<()> {
        let failure = || format!("cannot read {}", from.display());
        for entry in fs::read_dir(from).with_context(failure)? {
            let entry = entry.with_context(failure)?;
            let source = entry.path();
            let name = entry.file_name();
            let name = name.to_str().with_context(|| format!("{name:?} is not UTF-8"))?;
            let path = format!("{path}/{name}");
            let metadata = entry.metadata().with_context(failure)?;
            if metadata.is_dir() {
                self.dir(&path)?;
                self.tree(&path, &source)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(&source)?;
                let target = target.to_str().with_context(|| format!("{target:?} is not UTF-8"))?;
                self.link(&path, target)?;
            } else {
                ensure!(metadata.is_file(), "{} is no regular file", source.display());
                self.copy(&path, metadata.permissions().mode() & 0o777, &source)?;
            }
        }
        Ok(())
    }

    /// Adds the plugin in each folder in which a libibverbs looks, under each name.
    fn plugin(&mut self, from: &Path) -> anyhow::Result<()> {
        for folder in PLUGIN_FOLDERS {
            // The second one is not in the base image.
            self.dir(folder)?;
            // Each folder has a file of its own, because a file is loaded only once in a process,
            // which may have a libibverbs of each kind.
            let mut numbers = vrnic_layouts::numbers();
            let name = |number: u32| format!("libvrnic-rdmav{number}.so");
            let Some(first) = numbers.next().map(name) else { continue };
            self.copy(&format!("{folder}/{first}"), 0o644, from)?;
            for number in numbers {
                self.link(&format!("{folder}/{}", name(number)), &first)?;
            }
        }
        Ok(())
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn finish(mut self) -> io::Result<W> {
        let out = self.out.take().ok_or(io::ErrorKind::BrokenPipe)?;
        newc::trailer(out)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        kind: ModeFileType,
        len: u32,
        data: &[u8],
    ) -> io::Result<()> {
        let out = self.out.take().ok_or(io::ErrorKind::BrokenPipe)?;
        self.inode += 1;
        let builder = newc::Builder::new(path.trim_start_matches('/'))
            .ino(self.inode)
            .mode(mode)
            .set_mode_file_type(kind);
        let mut writer = builder.write(out, len);
        writer.write_all(data)?;
        self.out = Some(writer.finish()?);
        Ok(())
    }
}

/// Folders in which a libibverbs looks for plugins: Debian's and Ubuntu's, and that of Fedora, Red
/// Hat and Python wheels.
pub(crate) const PLUGIN_FOLDERS: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs"];

/// Folder of the guests for the files of [`write_initramfs`]'s `tree`.
pub const TREE: &str = "/lab";

/// Writes the initramfs of guests: the base image and an overlay with everything that was built.
/// Adds the files of `extra` (path and content), the contents of the folder `tree` below [`TREE`],
/// and the table `names` of the guests' names.
///
/// # Errors
/// If a part is missing or `into` cannot be written.
pub fn write_initramfs(
    paths: &Paths,
    extra: &[(String, Vec<u8>)],
    tree: Option<&Path>,
    names: &str,
    into: &Path,
) -> anyhow::Result<()> {
    let mut out = File::create(into).with_context(|| format!("cannot write {}", into.display()))?;
    let mut base = File::open(paths.base_image())?;
    io::copy(&mut base, &mut out)?;
    let mut overlay = Overlay::new(io::BufWriter::new(out));
    overlay.file("/init", 0o755, INIT.as_bytes())?;
    overlay.file(hosts::FILE, 0o644, names.as_bytes())?;
    overlay.dir("/vrnic")?;
    overlay.file(hosts::SCRIPT, 0o644, hosts::COMPLETING.as_bytes())?;
    overlay.copy("/vrnic/agent", 0o755, &paths.bin.join("vrnic-agent"))?;
    if paths.module().exists() {
        overlay.copy("/vrnic/vrnic.ko", 0o644, &paths.module())?;
        for client in ["vrnic_kverbs.ko", "vrnic_kping.ko", "vrnic_kdirect.ko", "vrnic_kiscsi.ko"] {
            let file = paths.build.join(client);
            // A kernel without the SCSI layer has no initiator.
            if client != "vrnic_kiscsi.ko" || file.exists() {
                overlay.copy(&format!("/vrnic/{client}"), 0o644, &file)?;
            }
        }
    }
    if paths.provider().exists() {
        let plugin = "/usr/lib/x86_64-linux-gnu/libibverbs/libvrnic-rdmav34.so";
        overlay.plugin(&paths.provider())?;
        overlay.file("/etc/libibverbs.d/vrnic.driver", 0o644, b"driver vrnic\n")?;
        // For programs that use the plugin's direct verbs.
        overlay.link("/usr/lib/x86_64-linux-gnu/libvrnic.so.1", plugin)?;
        for program in PROGRAMS {
            let file = paths.build.join(program);
            if file.exists() {
                overlay.copy(&format!("/usr/bin/{program}"), 0o755, &file)?;
            }
        }
    }
    for program in ["vrnic-fault", "vrnic-verify", "vrnic-stress"] {
        let file = paths.bin.join(program);
        if file.exists() {
            overlay.copy(&format!("/usr/bin/{program}"), 0o755, &file)?;
        }
    }
    for (path, data) in extra {
        overlay.file(path, 0o755, data)?;
    }
    overlay.dir(TREE)?;
    if let Some(tree) = tree {
        overlay.tree(TREE, tree)?;
    }
    overlay.finish()?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_reads_back() -> io::Result<()> {
        let mut overlay = Overlay::new(Vec::new());
        overlay.dir("/a")?;
        overlay.file("/a/b", 0o600, b"text")?;
        let archive = overlay.finish()?;
        let dir = newc::Reader::new(archive.as_slice())?;
        assert_eq!((dir.entry().name(), dir.entry().mode() & 0o170_777), ("a", 0o040_755));
        let mut file = newc::Reader::new(dir.finish()?)?;
        let mut text = String::new();
        io::Read::read_to_string(&mut file, &mut text)?;
        assert_eq!((file.entry().name(), text.as_str()), ("a/b", "text"));
        assert!(newc::Reader::new(file.finish()?)?.entry().is_trailer());
        Ok(())
    }

    #[test]
    fn a_folder_is_copied_with_modes_and_links() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("sub"))?;
        fs::write(folder.path().join("sub/file"), "text")?;
        fs::set_permissions(folder.path().join("sub/file"), fs::Permissions::from_mode(0o4750))?;
        std::os::unix::fs::symlink("file", folder.path().join("sub/link"))?;
        let mut overlay = Overlay::new(Vec::new());
        overlay.tree("/lab", folder.path())?;
        let mut archive = overlay.finish()?;
        let mut found = Vec::new();
        loop {
            let mut reader = newc::Reader::new(archive.as_slice())?;
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = String::new();
            io::Read::read_to_string(&mut reader, &mut content)?;
            found.push((reader.entry().name().to_owned(), reader.entry().mode(), content));
            archive = reader.finish()?.to_vec();
        }
        found.sort();
        let expected = [
            ("lab/sub", 0o040_755, ""),
            ("lab/sub/file", 0o100_750, "text"),
            ("lab/sub/link", 0o120_777, "file"),
        ];
        assert_eq!(found, expected.map(|(name, mode, text)| (name.into(), mode, text.into())));
        Ok(())
    }
}

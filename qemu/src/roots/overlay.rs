//! Files on top of the base image: a second cpio archive after it, which the kernel unpacks after
//! it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use cpio::newc::{self, ModeFileType};

use crate::machine::paths::Paths;
use crate::roots::hosts;

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
    "vrnic_busy",
    "vrnic_ends",
    "vrnic_faults",
    "vrnic_flow",
    "vrnic_frames",
    "vrnic_import",
    "vrnic_liar",
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

/// The program in a guest that serves the harness.
const AGENT: &str = "vrnic-agent";

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

    /// Adds a copy of a program, library or module that was built, without its debug information,
    /// which is ten times as long.
    fn stripped(
        &mut self,
        paths: &Paths,
        path: &str,
        mode: u32,
        from: &Path,
    ) -> anyhow::Result<()> {
        self.copy(path, mode, &stripped(&paths.build, from).unwrap_or_else(|| from.to_owned()))
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
    fn plugin(&mut self, paths: &Paths) -> anyhow::Result<()> {
        for folder in PLUGIN_FOLDERS {
            // The second one is not in the base image.
            self.dir(folder)?;
            // Each folder has a file of its own, because a file is loaded only once in a process,
            // which may have a libibverbs of each kind.
            let mut numbers = vrnic_layouts::numbers();
            let name = |number: u32| format!("libvrnic-rdmav{number}.so");
            let Some(first) = numbers.next().map(name) else { continue };
            self.stripped(paths, &format!("{folder}/{first}"), 0o644, &paths.provider())?;
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

/// The path in the guests of the checker of programs that use verbs.
pub const CHECKER: &str = "/vrnic/libvrnic_check.so";

/// Returns the checker as a file of guests.
///
/// # Errors
/// If it was not built, or cannot be read.
pub fn checker(paths: &Paths) -> anyhow::Result<(String, Vec<u8>)> {
    let file = paths.checker();
    paths.need(&file, "scripts/lab --check")?;
    let file = stripped(&paths.build, &file).unwrap_or(file);
    let data = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok((CHECKER.to_owned(), data))
}

/// Returns a copy of a file without debug information, which is kept for later runs, or nothing if
/// this machine has no program that makes one.
fn stripped(build: &Path, from: &Path) -> Option<PathBuf> {
    let folder = build.join("stripped");
    let copy = folder.join(from.file_name()?);
    let modified = |file: &Path| fs::metadata(file).and_then(|it| it.modified()).ok();
    let made = modified(from)?;
    // The copy has the time of the file.
    if modified(&copy) != Some(made) {
        fs::create_dir_all(&folder).ok()?;
        // Other runs may read the copy or make it, too.
        let new = tempfile::Builder::new().tempfile_in(&folder).ok()?;
        let strip =
            Command::new("strip").args(["--strip-debug", "-o"]).args([new.path(), from]).output();
        if !strip.is_ok_and(|strip| strip.status.success()) {
            return None;
        }
        new.as_file().set_modified(made).ok()?;
        new.persist(&copy).ok()?;
    }
    Some(copy)
}

/// Contents of an overlay in addition to what was built.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// More files: path and content.
    pub files: &'a [(String, Vec<u8>)],
    /// A folder whose contents are copied to [`TREE`].
    pub tree: Option<&'a Path>,
    /// The table of the guests' names.
    pub names: &'a str,
}

/// Writes the initramfs of guests that boot: the base image, and an overlay with the start and the
/// contents.
///
/// # Errors
/// If a part is missing or `into` cannot be written.
pub fn write_initramfs(paths: &Paths, contents: Contents<'_>, into: &Path) -> anyhow::Result<()> {
    let mut overlay = started(paths, into)?;
    add(&mut overlay, paths, contents)?;
    overlay.finish()?.flush()?;
    Ok(())
}

/// Writes the initramfs of a guest that a snapshot is made of: the base image and the start.
///
/// # Errors
/// Fails as [`write_initramfs`] does.
pub(crate) fn write_start(paths: &Paths, into: &Path) -> anyhow::Result<()> {
    started(paths, into)?.finish()?.flush()?;
    Ok(())
}

/// Writes the contents for guests that such a snapshot has started.
///
/// # Errors
/// Fails as [`write_initramfs`] does.
pub(crate) fn write_contents(
    paths: &Paths,
    contents: Contents<'_>,
    into: &Path,
) -> anyhow::Result<()> {
    let out = File::create(into).with_context(|| format!("cannot write {}", into.display()))?;
    let mut overlay = Overlay::new(io::BufWriter::new(out));
    add(&mut overlay, paths, contents)?;
    overlay.finish()?.flush()?;
    Ok(())
}

/// Returns the bytes that decide what [`write_start`] adds to the base image.
///
/// # Errors
/// If the agent is missing.
pub(crate) fn start_bytes(paths: &Paths) -> anyhow::Result<Vec<u8>> {
    let agent = paths.bin.join(AGENT);
    let mut bytes = fs::read(&agent).with_context(|| format!("cannot read {}", agent.display()))?;
    bytes.extend(INIT.as_bytes());
    Ok(bytes)
}

/// Copies the base image, and returns an overlay after it that starts the agent.
fn started(paths: &Paths, into: &Path) -> anyhow::Result<Overlay<io::BufWriter<File>>> {
    let mut out = File::create(into).with_context(|| format!("cannot write {}", into.display()))?;
    let mut base = File::open(paths.base_image())?;
    io::copy(&mut base, &mut out)?;
    let mut overlay = Overlay::new(io::BufWriter::new(out));
    overlay.file("/init", 0o755, INIT.as_bytes())?;
    overlay.dir("/vrnic")?;
    overlay.copy("/vrnic/agent", 0o755, &paths.bin.join(AGENT))?;
    Ok(overlay)
}

/// Adds everything that was built, and the contents.
fn add<W: Write>(
    overlay: &mut Overlay<W>,
    paths: &Paths,
    contents: Contents<'_>,
) -> anyhow::Result<()> {
    let Contents { files, tree, names } = contents;
    overlay.file(hosts::FILE, 0o644, names.as_bytes())?;
    overlay.file(hosts::SCRIPT, 0o644, hosts::COMPLETING.as_bytes())?;
    if paths.module().exists() {
        overlay.stripped(paths, "/vrnic/vrnic.ko", 0o644, &paths.module())?;
        for client in [
            "vrnic_iscsi.ko",
            "vrnic_kverbs.ko",
            "vrnic_kping.ko",
            "vrnic_kdirect.ko",
            "vrnic_kswitch.ko",
            "vrnic_kiscsi.ko",
        ] {
            let file = paths.build.join(client);
            // A first run builds no clients, and a kernel without the SCSI layer has no initiators.
            if file.exists() {
                overlay.stripped(paths, &format!("/vrnic/{client}"), 0o644, &file)?;
            }
        }
    }
    if paths.provider().exists() {
        add_plugin(overlay, paths)?;
    }
    for program in ["vrnic-fault", "vrnic-verify", "vrnic-stress"] {
        let file = paths.bin.join(program);
        if file.exists() {
            overlay.stripped(paths, &format!("/usr/bin/{program}"), 0o755, &file)?;
        }
    }
    for (path, data) in files {
        overlay.file(path, 0o755, data)?;
    }
    overlay.dir(TREE)?;
    if let Some(tree) = tree {
        overlay.tree(TREE, tree)?;
    }
    Ok(())
}

/// Adds the plugin, and programs that use its direct verbs.
fn add_plugin<W: Write>(overlay: &mut Overlay<W>, paths: &Paths) -> anyhow::Result<()> {
    let plugin = "/usr/lib/x86_64-linux-gnu/libibverbs/libvrnic-rdmav34.so";
    overlay.plugin(paths)?;
    overlay.file("/etc/libibverbs.d/vrnic.driver", 0o644, b"driver vrnic\n")?;
    overlay.link("/usr/lib/x86_64-linux-gnu/libvrnic.so.1", plugin)?;
    for program in PROGRAMS {
        let file = paths.build.join(program);
        if file.exists() {
            overlay.copy(&format!("/usr/bin/{program}"), 0o755, &file)?;
        }
    }
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

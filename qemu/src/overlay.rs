//! Files on top of the base image: a second cpio archive behind it, which the kernel unpacks on
//! top.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use cpio::newc::{self, ModeFileType};

use crate::paths::Paths;

/// Starts the guest: file systems, modules of the console, the agent, a shell on the second serial
/// line.
const INIT: &str = include_str!("init.sh");

/// Builds an archive.
#[derive(Debug)]
pub struct Overlay<W: Write> {
    out: Option<W>,
    inode: u32,
}

impl<W: Write> Overlay<W> {
    /// An empty archive that is written to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Some(out), inode: 1 }
    }

    /// Adds a file; its folder must be there, in the base image or by [`Self::dir`].
    ///
    /// # Errors
    /// When `out` fails.
    pub fn file(&mut self, path: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        let len = u32::try_from(data.len()).map_err(io::Error::other)?;
        self.entry(path, mode, ModeFileType::Regular, len, data)
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn dir(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, 0o755, ModeFileType::Directory, 0, &[])
    }

    /// Adds a symbolic link to `target`.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let len = u32::try_from(target.len()).map_err(io::Error::other)?;
        self.entry(path, 0o777, ModeFileType::Symlink, len, target.as_bytes())
    }

    /// Adds a copy of a file of this machine.
    ///
    /// # Errors
    /// When it cannot be read or `out` fails.
    pub fn copy(&mut self, path: &str, mode: u32, from: &Path) -> anyhow::Result<()> {
        let data = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        Ok(self.file(path, mode, &data)?)
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// When `out` fails.
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

/// Writes the initramfs of guests: base image and overlay with all that was built.
///
/// # Errors
/// When a part is missing or `into` cannot be written.
pub fn write_initramfs(
    paths: &Paths,
    extra: &[(String, Vec<u8>)],
    into: &Path,
) -> anyhow::Result<()> {
    let mut out = File::create(into).with_context(|| format!("cannot write {}", into.display()))?;
    let mut base = File::open(paths.base_image())?;
    io::copy(&mut base, &mut out)?;
    let mut overlay = Overlay::new(io::BufWriter::new(out));
    overlay.file("/init", 0o755, INIT.as_bytes())?;
    overlay.dir("/vrnic")?;
    overlay.copy("/vrnic/agent", 0o755, &paths.bin.join("vrnic-agent"))?;
    if paths.module().exists() {
        overlay.copy("/vrnic/vrnic.ko", 0o644, &paths.module())?;
        for client in ["vrnic_kverbs.ko", "vrnic_kping.ko"] {
            overlay.copy(&format!("/vrnic/{client}"), 0o644, &paths.build.join(client))?;
        }
    }
    if paths.provider().exists() {
        let plugin = "/usr/lib/x86_64-linux-gnu/libibverbs/libvrnic-rdmav34.so";
        overlay.copy(plugin, 0o644, &paths.provider())?;
        overlay.file("/etc/libibverbs.d/vrnic.driver", 0o644, b"driver vrnic\n")?;
        // For programs that use its direct verbs.
        overlay.link("/usr/lib/x86_64-linux-gnu/libvrnic.so.1", plugin)?;
        let example = paths.build.join("vrnicdv_command");
        if example.exists() {
            overlay.copy("/usr/bin/vrnicdv_command", 0o755, &example)?;
        }
    }
    for program in ["vrnic-verify", "vrnic-stress"] {
        let file = paths.bin.join(program);
        if file.exists() {
            overlay.copy(&format!("/usr/bin/{program}"), 0o755, &file)?;
        }
    }
    for (path, data) in extra {
        overlay.file(path, 0o755, data)?;
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
}

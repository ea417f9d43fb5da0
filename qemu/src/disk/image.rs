//! The format of an image of a disk, and its contents.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::disk::nbd::Nbd;
use crate::paths::Paths;

/// Formats that QEMU knows, too, but in which nobody has started a guest here: how their files
/// begin, and their names.
const OTHERS: [(&[u8], &str); 3] =
    [(b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"<<< Oracle VM VirtualBox", "VDI")];
/// How an image of the format qcow2 begins.
const QCOW2: &[u8] = b"QFI\xfb";
/// Number of bytes of a file that are looked at.
const HEAD: u64 = 64;

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The disk itself.
    Raw,
    /// QEMU's format.
    Qcow2,
}

/// The contents of a disk.
pub trait Contents {
    /// Returns `len` bytes from `at`, or fewer at the end of the disk.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&mut self, at: u64, len: u32) -> Result<Vec<u8>>;
}

impl Format {
    /// Finds the format of a file.
    ///
    /// # Errors
    /// If that cannot be read, or has a format that guests do not start from.
    pub fn of(file: &Path) -> Result<Self> {
        let failure = || format!("cannot read the disk {}", file.display());
        let mut head = Vec::new();
        File::open(file)
            .with_context(failure)?
            .take(HEAD)
            .read_to_end(&mut head)
            .with_context(failure)?;
        if head.starts_with(QCOW2) {
            return Ok(Self::Qcow2);
        }
        if let Some((_, name)) = OTHERS.iter().find(|(start, _)| head.starts_with(start)) {
            bail!(
                "the disk {} has the format {name}; convert it with qemu-img convert -O qcow2",
                file.display()
            );
        }
        Ok(Self::Raw)
    }

    /// Returns its name as QEMU has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Opens an image to read its contents.
///
/// # Errors
/// If it is damaged, or needs a file that is not there.
pub fn open(paths: &Paths, file: &Path, format: Format) -> Result<Box<dyn Contents>> {
    Ok(match format {
        Format::Raw => Box::new(Raw::open(file)?),
        Format::Qcow2 => Box::new(
            Nbd::open(paths, file)
                .with_context(|| format!("cannot open the disk {}", file.display()))?,
        ),
    })
}

/// A file that is the disk itself.
struct Raw {
    file: File,
    size: u64,
}

impl Raw {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { file, size })
    }
}

impl Contents for Raw {
    fn read(&mut self, at: u64, len: u32) -> Result<Vec<u8>> {
        let left = self.size.saturating_sub(at);
        let len = u32::try_from(left).map_or(len, |left| left.min(len));
        let mut data = vec![0; usize::try_from(len)?];
        // No byte is asked for at a place that no file can have.
        if len > 0 {
            self.file.read_exact_at(&mut data, at)?;
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("disk");
        let format = |bytes: &[u8]| {
            std::fs::write(&file, bytes)?;
            Format::of(&file)
        };
        assert_eq!(format(b"QFI\xfb\0\0\0\x03")?, Format::Qcow2);
        assert_eq!(format(b"")?, Format::Raw);
        let error = format(b"KDMV\x01").map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("has the format VMDK; convert it")));
        std::fs::write(&file, b"0123456789")?;
        let mut raw = Raw::open(&file)?;
        assert_eq!(raw.read(8, 4)?, b"89");
        assert_eq!(raw.read(u64::MAX, 4)?, b"");
        Ok(())
    }
}

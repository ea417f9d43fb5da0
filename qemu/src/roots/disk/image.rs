//! The format of an image of a disk.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::machine::paths::Paths;
use crate::roots::disk::contents::{DiskContents, Raw};
use crate::roots::disk::nbd::Nbd;

/// Formats that QEMU knows, too, but in which nobody has started a guest here: how their files
/// begin, and their names.
const OTHERS: [(&[u8], &str); 3] =
    [(b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"<<< Oracle VM VirtualBox", "VDI")];
/// The first bytes of an image of the format qcow2.
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
pub fn open(paths: &Paths, file: &Path, format: Format) -> Result<Box<dyn DiskContents>> {
    Ok(match format {
        Format::Raw => Box::new(Raw::open(file)?),
        Format::Qcow2 => Box::new(
            Nbd::open(paths, file)
                .with_context(|| format!("cannot open the disk {}", file.display()))?,
        ),
    })
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
        Ok(())
    }
}

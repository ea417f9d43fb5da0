//! The contents of a disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;

/// What can be read of a disk.
pub trait DiskContents {
    /// Returns `len` bytes from `at`, or fewer at the end of the disk.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&mut self, at: u64, len: u32) -> Result<Vec<u8>>;
}

/// A file that is the disk itself.
#[derive(Debug)]
pub struct Raw {
    file: File,
    size: u64,
}

impl Raw {
    /// Opens it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { file, size })
    }
}

impl DiskContents for Raw {
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
    fn no_byte_behind_the_end_is_read() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("disk");
        std::fs::write(&file, b"0123456789")?;
        let mut raw = Raw::open(&file)?;
        assert_eq!(raw.read(8, 4)?, b"89");
        assert_eq!(raw.read(u64::MAX, 4)?, b"");
        Ok(())
    }
}

//! The memory and the room on the disk that guests need and that this machine has.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use nix::sys::statvfs::statvfs;

/// Memory in MiB that guests get in addition to the memory of their image.
const BESIDE_IMAGE: u64 = 1024;
/// Memory in MiB without which a guest does not boot, in addition to the memory of its image.
const BESIDE_LEAST: u64 = 128;
/// Minimum memory of a guest in MiB.
const LEAST: u64 = 1536;

/// Checks that this machine has the memory of this many guests with `memory` MiB each.
///
/// # Errors
/// If it does not. The text says what to do.
pub fn check(guests: u8, memory: u32) -> anyhow::Result<()> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let here = available(&text).context("/proc/meminfo has no line MemAvailable")?;
    let needed = u64::from(guests) * u64::from(memory);
    ensure!(
        needed <= here,
        "{guests} guests with {memory} MiB each need {needed} MiB of memory, and this machine has \
         {here} MiB available; choose fewer guests (--guests) or less memory (--memory)"
    );
    Ok(())
}

/// MiB on the disk that guests need in addition to their image: our programs, modules, logs.
const BESIDE_FILES: u64 = 48;

/// Checks that the folder for temporary files has room for what guests with this image boot from.
///
/// # Errors
/// If it does not, or the image is not there.
pub fn temporary(folder: &Path, image: &Path) -> anyhow::Result<()> {
    let failure = || format!("cannot read {}", image.display());
    let needed = (fs::metadata(image).with_context(failure)?.len() >> 20) + BESIDE_FILES;
    let disk = statvfs(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    let left = disk.blocks_available().saturating_mul(disk.fragment_size()) >> 20;
    ensure!(
        needed <= left,
        "the guests need {needed} MiB in the folder for temporary files, {}, which has {left} MiB \
         left; remove something there, or name another folder in TMPDIR",
        folder.display()
    );
    Ok(())
}

/// Checks that a guest with `memory` MiB can hold its image, which is there twice while it boots.
///
/// # Errors
/// If it cannot, or the image is not there.
pub fn holds(image: &Path, memory: u32) -> anyhow::Result<()> {
    let failure = || format!("cannot read {}", image.display());
    let image = fs::metadata(image).with_context(failure)?.len() >> 20;
    let needed = image.saturating_mul(2).saturating_add(BESIDE_LEAST);
    ensure!(
        u64::from(memory) >= needed,
        "guests with {memory} MiB of memory cannot hold their image, which needs {needed} MiB; \
         choose more with --memory"
    );
    Ok(())
}

/// Returns the memory in MiB of a guest with this image, if the user has not chosen one. While a
/// guest boots, it holds its image twice.
///
/// # Errors
/// If the image is not there.
pub fn for_image(image: &Path) -> anyhow::Result<u32> {
    let failure = || format!("cannot read {}", image.display());
    let bytes = fs::metadata(image).with_context(failure)?.len();
    memory_for(bytes >> 20).with_context(|| format!("{} is too large", image.display()))
}

/// Returns the memory in MiB of a guest whose image has `image` MiB.
fn memory_for(image: u64) -> Option<u32> {
    let needed = image.checked_mul(2)?.checked_add(BESIDE_IMAGE)?.max(LEAST);
    u32::try_from(needed).ok()
}

/// Returns the available memory in MiB in /proc/meminfo.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:       24574340 kB\nMemFree:          100 kB\n\
                    MemAvailable:   22940672 kB\n";
        assert_eq!(available(text), Some(22_403));
        assert_eq!(available("MemTotal:       24574340 kB\n"), None);
    }

    #[test]
    fn large_images_get_more_memory() {
        assert_eq!(memory_for(200), Some(1536));
        assert_eq!(memory_for(900), Some(2824));
        assert_eq!(memory_for(u64::MAX), None);
    }

    #[test]
    fn a_folder_without_room_is_named() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let image = tempfile::NamedTempFile::new()?;
        temporary(folder.path(), image.path())?;
        // A file without contents may be larger than the disk.
        image.as_file().set_len(1 << 43)?;
        let error = temporary(folder.path(), image.path()).map_err(|error| error.to_string());
        let named = format!("temporary files, {}, which has", folder.path().display());
        assert!(
            error.is_err_and(|text| text.contains("need 8388656 MiB") && text.contains(&named))
        );
        Ok(())
    }

    #[test]
    fn memory_that_no_machine_has_is_refused() {
        let error = check(16, u32::MAX).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("fewer guests")));
    }
}

//! The memory that guests need and this machine has.

use std::fs;

use anyhow::{Context, ensure};

/// Checks that this machine has the memory of this many guests with `memory` MiB each.
///
/// # Errors
/// When it has not. The text says what to do.
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

/// Returns the available memory in MiB that /proc/meminfo tells of.
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
    fn memory_that_no_machine_has_is_refused() {
        let error = check(16, u32::MAX).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("fewer guests")));
    }
}

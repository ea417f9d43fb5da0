//! Checks after every case.

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

/// Checks the kernels' logs, the daemons and their logs.
pub fn check(pair: &mut Pair) -> Result<()> {
    pair.guests().try_for_each(kernel)?;
    daemon(pair)
}

/// Checks the log of a kernel.
pub fn kernel(guest: &Guest) -> Result<()> {
    let faults = guest.kernel_faults();
    ensure!(
        faults.is_empty(),
        "the kernel of guest {} complains: {faults:?}\n{}",
        guest.setup().name,
        guest.kernel_log(80)
    );
    Ok(())
}

/// Checks the daemons.
pub fn daemon(pair: &mut Pair) -> Result<()> {
    for daemon in pair.daemons() {
        ensure!(daemon.alive(), "vrnicd ended");
        ensure!(!daemon.log(10_000).contains("panicked"), "a thread of vrnicd panicked");
    }
    Ok(())
}

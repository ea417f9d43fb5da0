//! Checks after every case.

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

/// Looks at both kernels' logs, the daemon and its log.
pub fn check(pair: &mut Pair) -> Result<()> {
    kernel(&pair.a)?;
    kernel(&pair.b)?;
    daemon(pair)
}

/// Looks at one kernel's log.
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

/// Looks at the daemon.
pub fn daemon(pair: &mut Pair) -> Result<()> {
    ensure!(pair.daemon.alive(), "vrnicd ended");
    ensure!(!pair.daemon.log(10_000).contains("panicked"), "a thread of vrnicd panicked");
    Ok(())
}

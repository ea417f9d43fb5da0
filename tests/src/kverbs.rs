//! The driver's own kernel client (`driver/tests/kverbs`), which tests the devices of its guest.

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;

use crate::commands::{LONG_TIMEOUT, PCI, SHORT_TIMEOUT, recovers, registration};

/// Loads the client, which runs its tests. Each of these devices must pass. Then unloads the
/// client.
pub fn passes(guest: &Guest, devices: &[String]) -> Result<()> {
    let load =
        "dmesg -C; insmod /vrnic/vrnic_kverbs.ko; r=$?; dmesg | grep -E 'kverbs|kclient'; exit $r";
    let said = guest.check(load, LONG_TIMEOUT)?;
    for device in devices {
        let line = format!("{device}: the kernel verbs test passed");
        ensure!(said.contains(&line), "'{line}' is missing in: {said}");
    }
    guest.check("rmmod vrnic_kverbs", SHORT_TIMEOUT)?;
    let left =
        guest.check("for kind in pd cq qp mr; do rdma res show $kind; done", SHORT_TIMEOUT)?;
    ensure!(!left.contains("kverbs"), "the kernel client has left behind: {left}");
    Ok(())
}

/// Resets the adapter while the client has outstanding requests. They must be flushed, and the
/// client gets the device that is registered again.
pub fn outlives_adapter(guest: &Guest) -> Result<()> {
    guest.check("dmesg -C; insmod /vrnic/vrnic_kverbs.ko hold=1", LONG_TIMEOUT)?;
    let before = registration(guest)?;
    guest.check(&format!("echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    recovers(guest, before)?;
    let report = "dmesg | grep -E 'kverbs|kclient'; \
                  dmesg | grep -q 'the kernel verbs test after death passed'";
    guest.check(report, SHORT_TIMEOUT)?;
    guest.check("rmmod vrnic_kverbs", SHORT_TIMEOUT)?;
    Ok(())
}

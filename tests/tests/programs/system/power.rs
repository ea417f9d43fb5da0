//! A reboot from inside the guest, and sleep.
//!
//! Shows: tools

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Pair, ready};
use vrnic_tests::commands::{SHORT_TIMEOUT, works};

use super::packages::install;

/// Time limit of a sleep.
const WAKE: Duration = Duration::from_secs(120);
/// Time between two checks whether a sleep has ended, and time limit of each check.
const WAKE_TIME: Duration = Duration::from_secs(15);

/// After a reboot everything works again, without a command.
pub(crate) fn starts(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    reboot(&pair.a)?;
    ready(&pair.a)?;
    works(pair)
}

/// Reboots a guest from inside.
fn reboot(guest: &Guest) -> Result<()> {
    let boot = || guest.check("cat /proc/sys/kernel/random/boot_id", SHORT_TIMEOUT);
    let before = boot()?;
    guest.restarts("systemctl reboot")?;
    ensure!(boot()? != before, "guest {} did not start again", guest.setup().name);
    Ok(())
}

/// A guest sleeps to idle for a few seconds, with the kernel's own test of it, since no clock wakes
/// it.
pub(crate) fn sleeps(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    let sleep = "echo devices >/sys/power/pm_test; echo freeze >/sys/power/state; \
                 echo none >/sys/power/pm_test";
    // The agent cannot report the end of the command, because its port is lost in the sleep.
    pair.a.check(&format!("dmesg -C; systemd-run --on-active=1 sh -c '{sleep}'"), SHORT_TIMEOUT)?;
    wakes(&mut pair.a)?;
    ready(&pair.a)?;
    works(pair)
}

/// Waits until a guest has slept and woken.
fn wakes(guest: &mut Guest) -> Result<()> {
    let end = Instant::now() + WAKE;
    loop {
        std::thread::sleep(WAKE_TIME);
        let slept = |guest: &Guest| guest.agent().run("dmesg | grep 'PM: suspend exit'", WAKE_TIME);
        if guest.reattach(WAKE_TIME).and_then(|()| slept(guest)).is_ok_and(|output| output.ok()) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "guest {} did not sleep and wake", guest.setup().name);
    }
}

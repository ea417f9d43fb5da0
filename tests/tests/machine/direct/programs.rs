//! Programs in the guests (`tests/programs`): direct transfers of processes, and objects that a
//! process imports from another process.
//!
//! Shows: direct

use anyhow::{Context, Result, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, settles, stop, works};
use vrnic_tests::object_counts::ObjectCounts;

use super::ranges::no_ranges;
use super::{MEMORY, number};

/// The cases of `vrnic_transfer`.
const CASES: [&str; 13] = [
    "early",
    "counted",
    "mapped",
    "mapped_read",
    "marked",
    "refused",
    "blocks",
    "pieces",
    "blocks_failed",
    "quota",
    "failed",
    "freed",
    "foreign",
];

/// Counts both guests' objects, calls `run`, and checks that no objects are left.
fn leaves_nothing(pair: &Pair, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    run()?;
    no_ranges(&pair.a)?;
    let left = number(&pair.a, "available")?;
    ensure!(left == MEMORY, "only {left} bytes of device memory came back");
    for (before, guest) in before.iter().zip([&pair.a, &pair.b]) {
        before.unchanged(pair, guest)?;
    }
    works(pair)
}

/// A process in guest a stores into ranges, and loads from them. The data is exchanged with a
/// process in guest b.
///
/// Shows: direct: processes transfer by ranges of their own
pub(super) fn transfers(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        let server = pair.b.agent().start("exec vrnic_transfer serve")?;
        let text = pair.a.check(&format!("vrnic_transfer {}", pair.b.ip()), LONG_TIMEOUT)?;
        for case in CASES {
            ensure!(text.contains(&format!("{case}: good")), "no '{case}' in\n{text}");
        }
        stop(server).map(drop)
    })
}

/// A process is killed while its ranges are armed and mapped, and TRANSFERs wait for them.
///
/// Shows: direct: ranges of a killed process come back
pub(super) fn killed(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        let server = pair.b.agent().start("exec vrnic_transfer serve")?;
        let hold = format!("exec vrnic_transfer {} hold > /tmp/held", pair.b.ip());
        let process = pair.a.agent().start(&hold)?;
        settles(&pair.a, "grep -q held /tmp/held", 20)?;
        let held =
            pair.a.check("cat /sys/kernel/debug/vrnic-*/ranges; rm /tmp/held", SHORT_TIMEOUT)?;
        ensure!(held.lines().count() == 4, "the process holds:\n{held}");
        stop(process)?;
        settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
        // So is its block.
        let quota = format!("vrnic_transfer {} quota", pair.b.ip());
        let text = pair.a.check(&quota, SHORT_TIMEOUT)?;
        ensure!(text.contains("quota: good"), "{text}");
        stop(server).map(drop)
    })
}

/// One user does not get all ranges or all device memory, and neither do all users together.
///
/// Shows: direct: limits of address ranges and device memory, for contexts and users
pub(super) fn users(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        // Half of the device memory is a few KiB less than 32 MiB, and three quarters than 48.
        let wanted = "user 65534: 12 ranges, 31 MiB\nuser 65533: 12 ranges, 16 MiB\n\
                      user 0: 0 ranges, 0 MiB\n";
        // All comes back when the processes end.
        for _ in 0..2 {
            let found = pair.a.check("vrnic_quota 65534 65533 0", LONG_TIMEOUT)?;
            ensure!(found == wanted, "{found}");
        }
        Ok(())
    })
}

/// A process uses the PD, the region and the device memory of another process.
///
/// Shows: direct: objects that a process imports from another
pub(super) fn imports(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        let text = pair.a.check("vrnic_import", SHORT_TIMEOUT).context("vrnic_import")?;
        ensure!(text.contains("imported"), "{text}");
        Ok(())
    })
}

//! NVMe over Fabrics between the guests, with the kernel's own `nvmet-rdma` (guest b, a RAM disk)
//! and `nvme-rdma` (guest a). These are storage clients that use kernel QPs, fast registration, and
//! invalidation for each command.
//!
//! Shows: driver

use anyhow::{Context, Result, ensure};
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{
    LONG_TIMEOUT, PCI, SHORT_TIMEOUT, counter, recovers, registration, works,
};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::storage::{
    DISK, attach, attach_in_turn, detach, ext4, with_shared_receives, write_and_read,
};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("blocks", blocks),
        Case::new("blocks_by_shared_receives", |pair| with_shared_receives(pair, blocks)),
        Case::new("file_system", file_system),
        Case::new("ten_connections_in_turn", |pair| attach_in_turn(pair, 10)),
        Case::new("initiator_driver_removed_in_use", initiator_removed),
        Case::new("target_driver_removed_in_use", target_removed),
        Case::new("adapter_reset_under_the_initiator", initiator_reset),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// Written data is on the target's disk, and is read back with fast registration.
fn blocks(pair: &mut Pair) -> Result<()> {
    attach(&pair.a, &pair.b)?;
    let before = (counter(&pair.a, "reg_wqes")?, counter(&pair.a, "remote_invalidations")?);
    write_and_read(&pair.a, &pair.b, 64)?;
    let registered = counter(&pair.a, "reg_wqes")? - before.0;
    let invalidated = counter(&pair.a, "remote_invalidations")? - before.1;
    ensure!(registered > 100, "only {registered} fast registrations");
    ensure!(
        invalidated == registered,
        "{invalidated} of {registered} were invalidated by the peer"
    );
    detach(&pair.a)
}

/// A file system on the disk: files are written, read after a new mount, and read by the target
/// itself.
fn file_system(pair: &mut Pair) -> Result<()> {
    attach(&pair.a, &pair.b)?;
    let image = ext4(pair.dir(), DISK)?;
    pair.a.agent().put(&image, "/tmp/ext4.gz", 0o600)?;
    let sums = pair.a.check(
        "set -e
        gzip -dc /tmp/ext4.gz | dd of=/dev/nvme0n1 bs=64k iflag=fullblock oflag=direct 2>/dev/null
        modprobe ext4; mkdir -p /mnt/disk; mount -t ext4 /dev/nvme0n1 /mnt/disk; cd /mnt/disk
        for n in $(seq 20); do mkdir d$n; head -c $((n * 54321)) /dev/urandom > d$n/file; done
        cp -r /usr/lib/modules big; ln d7/file link; rm -r d13; sync
        find . -type f | sort | xargs sha256sum > /tmp/sums
        cd /; umount /mnt/disk; echo 3 > /proc/sys/vm/drop_caches
        mount -t ext4 /dev/nvme0n1 /mnt/disk; cd /mnt/disk; sha256sum --quiet -c /tmp/sums
        cd /; umount /mnt/disk; cat /tmp/sums",
        LONG_TIMEOUT,
    )?;
    detach(&pair.a)?;
    let there = pair.b.check(
        "set -e; modprobe ext4; mkdir -p /mnt/disk; mount -t ext4 -o ro /dev/ram0 /mnt/disk; cd /mnt/disk
        find . -type f | sort | xargs sha256sum; cd /; umount /mnt/disk",
        LONG_TIMEOUT,
    )?;
    ensure!(sums.lines().count() > 20, "too few files: {sums}");
    ensure!(sums == there, "the target sees other files");
    Ok(())
}

/// Shell words that keep the disk busy until it is removed.
const BUSY: &str =
    "while dd if=/dev/nvme0n1 of=/dev/null bs=64k count=200 iflag=direct; do :; done";

/// The initiator's driver is unloaded while the disk is in use: the disk is removed first, and
/// comes back with the driver.
fn initiator_removed(pair: &mut Pair) -> Result<()> {
    attach(&pair.a, &pair.b)?;
    let reader = pair.a.agent().start(BUSY)?;
    pair.a.check("sleep 1; rmmod vrnic; ! [ -e /dev/nvme0 ]", SHORT_TIMEOUT)?;
    reader.wait(SHORT_TIMEOUT).context("the reader hangs")?;
    load_module(&pair.a)?;
    attach(&pair.a, &pair.b)?;
    pair.a.check("dd if=/dev/nvme0n1 of=/dev/null bs=1M count=16 iflag=direct", SHORT_TIMEOUT)?;
    detach(&pair.a)
}

/// Waits until the initiator has found its disk again.
fn reconnected(pair: &Pair) -> Result<()> {
    pair.a.check(
        "for n in $(seq 100); do [ $(cat /sys/class/nvme/nvme0/state) = live ] && exit 0; sleep 1; done; \
         cat /sys/class/nvme/nvme0/state; exit 1",
        LONG_TIMEOUT,
    )?;
    pair.a.check("dd if=/dev/nvme0n1 of=/dev/null bs=1M count=16 iflag=direct", SHORT_TIMEOUT)?;
    Ok(())
}

/// The target's driver is unloaded and loaded again, and its port is opened again: the initiator
/// finds its disk again.
fn target_removed(pair: &mut Pair) -> Result<()> {
    attach(&pair.a, &pair.b)?;
    let reader = pair.a.agent().start(BUSY)?;
    pair.b.check("sleep 1; rmmod vrnic", SHORT_TIMEOUT)?;
    load_module(&pair.b)?;
    pair.b.check(
        "cd /sys/kernel/config/nvmet/ports/1/subsystems && rm disk && ln -s ../../../subsystems/disk disk",
        SHORT_TIMEOUT,
    )?;
    works(pair)?;
    reconnected(pair)?;
    reader.kill()?;
    detach(&pair.a)?;
    reader.wait(SHORT_TIMEOUT).context("the reader hangs").map(|_| ())
}

/// The adapter is reset while the disk is in use: queues drain although no request completes, the
/// driver brings the adapter up again, and the initiator finds its disk again.
///
/// Shows: driver: an adapter reset under an NVMe initiator
fn initiator_reset(pair: &mut Pair) -> Result<()> {
    attach(&pair.a, &pair.b)?;
    let reader = pair.a.agent().start(BUSY)?;
    let before = registration(&pair.a)?;
    pair.a.check(&format!("sleep 1; echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    recovers(&pair.a, before)?;
    reconnected(pair)?;
    reader.kill()?;
    detach(&pair.a)?;
    reader.wait(SHORT_TIMEOUT).context("the reader hangs").map(|_| ())
}

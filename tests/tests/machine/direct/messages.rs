//! Transfers out of and into the memory of another device. The daemon has no mapping of it, so QEMU
//! reads and writes it for the daemon.
//!
//! Shows: direct

use anyhow::{Context, Result, ensure};
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT};
use vrnic_tests::storage;

/// MiB of the memory of the disk's controller.
pub(crate) const MEMORY: u32 = 32;
/// MiB that a transfer moves.
const DATA: u32 = 4;

/// The PCI device of guest b's own disk.
const CONTROLLER: &str = "/sys/class/nvme/nvme0/device";

/// A target's disk is served from the memory of its own controller: the controller stores blocks
/// there, and the adapter sends them to the initiator, and the other way round.
pub(crate) fn target(pair: &mut Pair) -> Result<()> {
    modules::load_nvme(&pair.b)?;
    storage::offer_device(&pair.b, "/dev/nvme0n1", "")?;
    let by_controller = format!(
        "set -e; cd /sys/kernel/config/nvmet/subsystems/disk/namespaces/1
        echo 0 > enable; dmesg -C
        echo $(basename $(readlink -f {CONTROLLER})) > p2pmem; echo 1 > enable"
    );
    pair.b.check(&by_controller, SHORT_TIMEOUT)?;
    let before = counts(pair)?;
    storage::connect(&pair.a, &pair.b)?;
    let name = format!("basename $(readlink -f {CONTROLLER})");
    let name = pair.b.check(&name, SHORT_TIMEOUT)?;
    let used = pair.b.check("dmesg | grep 'using p2pmem on'", SHORT_TIMEOUT)?;
    ensure!(used.contains(name.trim()), "the target does not use {name}: {used}");
    let sums = pair.a.check(
        &format!(
            "set -e; cd /tmp
            disk=/dev/$(basename $(dirname $(grep -l rdma /sys/class/nvme/nvme*/transport)))n1
            for n in $(seq 100); do [ -b $disk ] && break; sleep 0.1; done
            dd if=/dev/urandom of=written bs=1M count={DATA} 2>/dev/null
            dd if=written of=$disk bs=256k oflag=direct 2>/dev/null
            dd if=$disk of=read bs=64k count=$(({DATA} * 16)) iflag=direct 2>/dev/null
            cmp written read
            dd if=$disk of=read bs=4k count=100 iflag=direct 2>/dev/null
            cmp -n 409600 written read
            sha256sum < written; rm written read"
        ),
        LONG_TIMEOUT,
    )?;
    // The target itself also reads the same data from its disk, into its RAM.
    let there =
        format!("dd if=/dev/nvme0n1 bs=1M count={DATA} iflag=direct 2>/dev/null | sha256sum");
    let there = pair.b.check(&there, LONG_TIMEOUT)?;
    ensure!(sums == there, "the target's disk has other data: {sums} here, {there} there");
    let after = counts(pair)?;
    let moved = [0, 1].map(|nth| after[nth] - before[nth]);
    let least = u64::from(DATA) << 20;
    ensure!(moved.iter().all(|bytes| *bytes >= least), "{moved:?} bytes went by messages");
    storage::detach(&pair.a)
}

/// Returns the number of bytes that were read and written by messages to QEMU.
fn counts(pair: &Pair) -> Result<[u64; 2]> {
    let view: serde_json::Value = serde_json::from_str(&pair.function("b")?)?;
    let count = |name: &str| {
        let counter = view.pointer(&format!("/0/counters/{name}"));
        counter.and_then(serde_json::Value::as_u64).context("a counter is missing")
    };
    Ok([count("message_read_bytes")?, count("message_written_bytes")?])
}

//! Transfers between other PCI devices and the adapter: an NVMe controller of QEMU, below the same
//! PCIe switch as the adapter, reads and writes the adapter's memory.
//!
//! Shows: direct
//!
//! | module | contents |
//! | --- | --- |
//! | [`messages`] | transfers out of and into the memory of another device, by messages to QEMU |
//! | [`programs`] | transfers of processes; objects that processes import |
//! | [`ranges`] | transfers that are posted before the controller begins, and start by themselves |
//! | [`window`] | transfers whose bytes the controller stores into the window, or reads there |

mod messages;
mod programs;
mod ranges;
mod window;

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{LONG_TIMEOUT, PCI, SHORT_TIMEOUT, works};
use vrnic_tests::harness::{self, Case, Suite};
use vrnic_tests::storage;

/// MiB of a disk.
const DISK: u32 = 64;
/// MiB that a transfer moves.
const DATA: u32 = 16;
/// Bytes of device memory, without the adapter's blocks.
const MEMORY: u64 = (64 << 20) - BLOCKS;
/// Bytes of the blocks.
const BLOCKS: u64 = 128 << 10;
/// Bytes of the window, which the kernel counts as memory of the same pool.
const WINDOW: u64 = 2 << 20;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let mut cases = vec![
        Case::new("the_kernel_has_the_device_memory", offered),
        Case::new("disk_of_a_target_without_its_ram", target),
        Case::new("a_target_with_and_without_its_ram", speed),
        Case::new("a_peer_takes_blocks_that_leave_by_themselves", ranges::blocks_leave),
        Case::new("a_peer_gives_blocks_to_a_disk", ranges::blocks_come),
        Case::new("blocks_leave_and_come_by_marks", ranges::marked),
        Case::new("a_disk_moves_blocks_through_the_window", window::moves),
        Case::new("transfers_through_the_window_fail", window::fails),
        Case::new("a_transfer_that_is_never_done_ends_in_time", ranges::never_done),
        Case::new("a_disk_fails_while_ranges_are_armed", ranges::disk_fails),
        Case::new("a_peer_goes_while_ranges_are_armed", ranges::peer_goes),
        Case::new("a_server_goes_while_ranges_are_armed", ranges::server_goes),
        Case::new("the_driver_goes_and_comes", reloaded),
    ];
    // A message of iWARP begins when all of its bytes can be used.
    if !(harness::over_iwarp() && harness::over_packets()) {
        cases.push(Case::new("a_transfer_uses_one_range_again_and_again", window::one_range));
    }
    // Streams of iWARP do not wait for memory.
    if !harness::over_iwarp() {
        cases.push(Case::new("a_target_uses_memory_of_another_device", messages::target));
    }
    // These programs connect their queue pairs without the connection manager.
    if !harness::over_iwarp() {
        cases.extend([
            Case::new("processes_transfer_by_ranges_of_their_own", programs::transfers),
            Case::new("ranges_of_a_killed_process_come_back", programs::killed),
            Case::new("a_process_imports_objects_of_another", programs::imports),
            Case::new("users_have_a_part_of_ranges_and_memory", programs::users),
        ]);
    }
    // Last, because it adds a disk.
    cases.push(Case::new("two_controllers_have_stripes_of_a_transfer", window::stripes));
    let bad_sector = Some(ranges::BAD_SECTOR);
    let options = Options {
        disk: Some(DISK),
        controller_memory: messages::MEMORY,
        bad_sector,
        daemon: vec!["--dma-messages".to_owned()],
        ..Options::default()
    };
    Suite::with_modules(&modules::NVME, options, cases)
}

/// Reads a number of the adapter's peer-to-peer memory.
fn number(guest: &Guest, name: &str) -> Result<u64> {
    Ok(guest.check(&format!("cat {PCI}/p2pmem/{name}"), SHORT_TIMEOUT)?.trim().parse()?)
}

fn offered(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let found = ["size", "available", "published"].map(|name| number(guest, name).ok());
        ensure!(found == [Some(MEMORY + BLOCKS + WINDOW), Some(MEMORY), Some(1)], "{found:?}");
    }
    Ok(())
}

/// Makes guest b offer its disk to guest a, through device memory, and attaches it in a as
/// `/dev/nvme0n1`.
fn attach(pair: &Pair) -> Result<()> {
    modules::load_nvme(&pair.b)?;
    // The controller has memory, too, which the kernel could choose.
    let adapter = format!("echo $(basename {PCI}) > p2pmem");
    storage::offer_device(&pair.b, "/dev/nvme0n1", &adapter)?;
    storage::connect(&pair.a, &pair.b)
}

/// A target's NVMe controller moves blocks to and from device memory, and the adapter moves them
/// from there to the initiator and back. During this, pieces of device memory are in use.
///
/// Shows: direct: memory of another device behind the VMM
fn target(pair: &mut Pair) -> Result<()> {
    attach(pair)?;
    let used = pair.b.check("dmesg | grep 'using p2pmem on'", SHORT_TIMEOUT)?;
    ensure!(used.contains("nsid 1"), "the target uses its RAM: {used}");
    let watch = format!(
        "least={MEMORY}; while ! [ -e /tmp/stop ]; do read n < {PCI}/p2pmem/available; \
         [ $n -lt $least ] && least=$n; done; echo $least"
    );
    let watching = pair.b.agent().start(&watch)?;
    let sums = pair.a.check(
        &format!(
            "set -e; cd /tmp
            dd if=/dev/urandom of=written bs=1M count={DATA} 2>/dev/null
            dd if=written of=/dev/nvme0n1 bs=1M oflag=direct 2>/dev/null
            dd if=/dev/nvme0n1 of=read bs=256k count=$(({DATA} * 4)) iflag=direct 2>/dev/null
            cmp written read
            dd if=/dev/nvme0n1 of=read bs=4k count=1000 iflag=direct 2>/dev/null
            cmp -n 4096000 written read
            sha256sum < written; rm written read"
        ),
        LONG_TIMEOUT,
    )?;
    pair.b.check("touch /tmp/stop", SHORT_TIMEOUT)?;
    let least: u64 = watching.wait(SHORT_TIMEOUT)?.stdout.trim().parse()?;
    ensure!(least < MEMORY, "no device memory was seen in use");
    // The target itself also reads the same data from its disk, into its RAM.
    let there =
        format!("dd if=/dev/nvme0n1 bs=1M count={DATA} iflag=direct 2>/dev/null | sha256sum");
    let there = pair.b.check(&there, LONG_TIMEOUT)?;
    ensure!(sums == there, "the target's disk has other data: {sums} here, {there} there");
    storage::detach(&pair.a)?;
    let end = format!(
        "for n in $(seq 100); do read n < {PCI}/p2pmem/available; [ $n = {MEMORY} ] && exit 0; \
         sleep 0.1; done; echo only $n bytes came back; exit 1"
    );
    pair.b.check(&end, SHORT_TIMEOUT)?;
    Ok(())
}

/// Reads blocks of the target's disk through device memory and through the target's RAM, in turn.
/// Prints the rates, which are not checked.
fn speed(pair: &mut Pair) -> Result<()> {
    pair.b.check("ls -d /sys/kernel/config/nvmet/ports/1", SHORT_TIMEOUT)?;
    for by_device_memory in [1, 0, 1, 0] {
        let offer = format!(
            "set -e; cd /sys/kernel/config/nvmet/subsystems/disk/namespaces/1
            echo 0 > enable
            if [ {by_device_memory} = 1 ]; then echo $(basename {PCI}) > p2pmem; else echo 0 > p2pmem; fi
            echo 1 > enable"
        );
        pair.b.check(&offer, SHORT_TIMEOUT)?;
        storage::connect(&pair.a, &pair.b)?;
        for (bytes, count) in [(4 << 10, 512), (64 << 10, 128), (1 << 20, 16)] {
            let dd = |files: &str| {
                let timed = format!(
                    "s=$(date +%s%N); dd {files} bs={bytes} count={count} 2>/dev/null || exit 1
                    echo $(( ($(date +%s%N) - s) / 1000 ))"
                );
                let micros: u64 = pair.a.check(&timed, LONG_TIMEOUT)?.trim().parse()?;
                Ok::<_, anyhow::Error>(f64::from(bytes) * f64::from(count) / micros as f64)
            };
            let read = dd("if=/dev/nvme0n1 of=/dev/null iflag=direct")?;
            let written = dd("if=/dev/zero of=/dev/nvme0n1 oflag=direct")?;
            println!(
                "p2pmem {by_device_memory}, {bytes} bytes: {read:.1} MB/s read, {written:.1} written"
            );
        }
        storage::detach(&pair.a)?;
    }
    Ok(())
}

/// Device memory is removed with the driver, and comes back with it.
fn reloaded(pair: &mut Pair) -> Result<()> {
    pair.a.check(&format!("rmmod vrnic; ! [ -e {PCI}/p2pmem ]"), SHORT_TIMEOUT)?;
    load_module(&pair.a)?;
    let found = number(&pair.a, "available")?;
    ensure!(found == MEMORY, "{found} bytes of device memory");
    works(pair)
}

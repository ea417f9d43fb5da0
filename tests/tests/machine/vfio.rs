//! Memory of other PCI devices of the guest, which VFIO exports as DMA buffers, and takes back.
//!
//! Shows: direct
//!
//! Guest a has an IOMMU, which VFIO demands, and two devices for it: one whose BAR QEMU maps for
//! the daemon, as memory of a graphics processor would be, and one whose BAR QEMU emulates, and
//! reads and writes for the daemon by messages.

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::iommu::Iommu;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{
    LONG_TIMEOUT, PCI, SHORT_TIMEOUT, hears_fatal, recovers, registration, settles, stop, watch,
    works,
};
use vrnic_tests::harness::{self, Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;
use vrnic_tests::rules;

/// MiB of the BARs.
const BARS: u32 = 4;

/// The devices by vendor and number, and whether the daemon reaches the BAR by messages.
const DEVICES: [(&str, bool); 2] = [("0x1af4:0x1110", false), ("0x1b36:0x0010", true)];

/// The ways in which VFIO takes a BAR back.
const ENDINGS: [&str; 3] = ["reset", "memory", "close"];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let mut cases = vec![
        Case::new("memory_of_another_device_is_used_and_revoked", |pair| uses(pair, "identity")),
        Case::new("memory_of_another_device_behind_the_iommu", |pair| uses(pair, "DMA")),
        Case::new("a_process_is_killed_while_its_memory_is_used", killed),
    ];
    let mut daemon = vec!["--dma-messages".to_owned()];
    // Of several daemons, only one can have rules.
    if !harness::over_packets() {
        cases.push(Case::new("an_adapter_that_does_not_revoke_is_reset", refused));
        daemon.extend(rules::arguments());
    }
    let options = Options {
        iommus: [Some(Iommu::Intel), None],
        spare_bars: BARS,
        module: false,
        daemon,
        ..Options::default()
    };
    Suite::with_modules(&modules::VFIO, options, cases)
}

/// Loads the drivers, with this type of translation of guest a's adapter, and gives the devices to
/// VFIO.
fn prepare(pair: &Pair, kind: &str) -> Result<()> {
    let load =
        format!("! [ -e /sys/module/vrnic ] || rmmod vrnic; echo {kind} > {PCI}/iommu_group/type");
    pair.a.check(&load, SHORT_TIMEOUT)?;
    load_module(&pair.a)?;
    if !pair.b.agent().run("[ -e /sys/module/vrnic ]", SHORT_TIMEOUT)?.ok() {
        load_module(&pair.b)?;
    }
    modules::load(&pair.a, &modules::VFIO)?;
    let bind = "cd /sys/bus/pci/devices
        echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
        for device in *; do
            case $(cat $device/vendor):$(cat $device/device) in 0x1af4:0x1110|0x1b36:0x0010) ;; *) continue ;; esac
            echo vfio-pci > $device/driver_override
            [ -e $device/driver ] || echo $device > /sys/bus/pci/drivers_probe
            [ -e /sys/bus/pci/drivers/vfio-pci/$device ] || exit 1
        done";
    pair.a.check(bind, SHORT_TIMEOUT).map(drop)
}

/// Returns the IOMMU group and the address of a device.
fn place(guest: &Guest, device: &str) -> Result<String> {
    let find = format!(
        "cd /sys/bus/pci/devices
        for at in *; do
            [ $(cat $at/vendor):$(cat $at/device) = {device} ] || continue
            echo $(basename $(readlink -f $at/iommu_group)) $at
        done"
    );
    let found = guest.check(&find, SHORT_TIMEOUT)?;
    ensure!(found.lines().count() == 1, "devices {device}: {found}");
    Ok(found.trim().to_owned())
}

/// Returns the number of bytes that were written by messages to QEMU.
fn written_by_messages(pair: &Pair) -> Result<u64> {
    let view: serde_json::Value = serde_json::from_str(&pair.function("a")?)?;
    let count = view.pointer("/0/counters/message_written_bytes");
    count.and_then(serde_json::Value::as_u64).context("a counter is missing")
}

/// A process uses each device's memory, until VFIO takes it back, in each way.
fn uses(pair: &mut Pair, kind: &str) -> Result<()> {
    prepare(pair, kind)?;
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    let server = pair.b.agent().start("exec vrnic_vfio serve")?;
    for (device, by_messages) in DEVICES {
        let place = place(&pair.a, device)?;
        let written = written_by_messages(pair)?;
        for ending in ENDINGS {
            let run = format!("vrnic_vfio {} {place} {ending}", pair.b.ip());
            let text = pair.a.check(&run, LONG_TIMEOUT).context(run)?;
            ensure!(text.contains(&format!("{ending}: good")), "{text}");
        }
        let moved = written_by_messages(pair)? > written;
        ensure!(moved == by_messages, "messages for {device}: {moved}");
    }
    stop(server)?;
    for (before, guest) in before.iter().zip([&pair.a, &pair.b]) {
        before.unchanged(pair, guest)?;
    }
    works(pair)
}

/// A process is killed while a peer writes to the memory of a device.
fn killed(pair: &mut Pair) -> Result<()> {
    prepare(pair, "identity")?;
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    let server = pair.b.agent().start("exec vrnic_vfio serve")?;
    for (device, _) in DEVICES {
        let place = place(&pair.a, device)?;
        let hold = format!("exec vrnic_vfio {} {place} hold > /tmp/held", pair.b.ip());
        let process = pair.a.agent().start(&hold)?;
        settles(&pair.a, "grep -q held /tmp/held", 60)?;
        stop(process)?;
        pair.a.check("rm /tmp/held", SHORT_TIMEOUT)?;
    }
    settles(&pair.b, "! pgrep -P $(pgrep -o vrnic_vfio)", 30)?;
    stop(server)?;
    for (before, guest) in before.iter().zip([&pair.a, &pair.b]) {
        before.unchanged(pair, guest)?;
    }
    works(pair)
}

/// The adapter refuses to end its access. The driver resets it before VFIO resets the device, and
/// brings it up again.
fn refused(pair: &mut Pair) -> Result<()> {
    prepare(pair, "identity")?;
    let rule = "add fail-command status=internal command=revoke-mr function=a times=1";
    rules::fault(pair, &rule.split(' ').collect::<Vec<_>>())?;
    let server = pair.b.agent().start("exec vrnic_vfio serve")?;
    let (before, watcher) = (registration(&pair.a)?, watch(&pair.a)?);
    let place = place(&pair.a, DEVICES[0].0)?;
    let run = format!("vrnic_vfio {} {place} leave", pair.b.ip());
    let text = pair.a.check(&run, LONG_TIMEOUT).context(run)?;
    ensure!(text.contains("leave: good"), "{text}");
    recovers(&pair.a, before)?;
    hears_fatal(watcher)?;
    stop(server)?;
    rules::fault(pair, &["clear"])?;
    works(pair)
}

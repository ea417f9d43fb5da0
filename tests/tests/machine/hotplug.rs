//! Adapters and memory that are plugged into running guests, and guests that are paused.
//!
//! Shows: driver

use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::memory::{MemoryDevice, PLUGGED_MEMORY};
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair, load_module, ready};
use vrnic_tests::commands::{
    PCI, SHORT_TIMEOUT, recovers, registration, settles, succeed, transfer, works,
};
use vrnic_tests::conformance::{between, run};
use vrnic_tests::harness::{Case, Suite};

/// Messages whose buffers do not fit into a guest's initial memory. Each byte is checked.
const HUGE: &str = "--huge --only data/write/1GiB";
/// The driver of a [`MemoryDevice::Virtio`].
const VIRTIO_MEM: &str = "virtio_mem";
/// MiB of memory that a guest has at first, too little for a message of 1 GiB.
const MEMORY: u32 = 1280;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("plugged_into_running_machines", plugged),
        Case::new("remove_and_rescan_behind_the_port", remove),
        Case::new("reset_behind_the_port", reset),
        Case::new("memory_plugged_into_running_machines", memory),
        Case::new("memory_asked_back_under_traffic", asked_back),
        Case::new("a_machine_stands_still_for_20_s", still),
    ];
    let options = Options {
        plugged: true,
        more_memory: [MemoryDevice::Module, MemoryDevice::Virtio],
        module: false,
        memory: MEMORY,
        ..Options::default()
    };
    Suite::with_modules(&[VIRTIO_MEM], options, cases)
}

/// One adapter is plugged before the driver is loaded, the other adapter after it.
fn plugged(pair: &mut Pair) -> Result<()> {
    pair.a.check("modprobe -a ib_uverbs rdma_ucm; insmod /vrnic/vrnic.ko", SHORT_TIMEOUT)?;
    pair.a.plug()?;
    ready(&pair.a)?;
    pair.b.plug()?;
    load_module(&pair.b)?;
    works(pair)
}

/// The guest can remove the adapter. QEMU cannot.
fn remove(pair: &mut Pair) -> Result<()> {
    pair.a.check(&format!("echo 1 > {PCI}/remove; ! ls /sys/class/infiniband/*"), SHORT_TIMEOUT)?;
    pair.a.check("echo 1 > /sys/bus/pci/rescan", SHORT_TIMEOUT)?;
    ready(&pair.a)?;
    works(pair)
}

fn reset(pair: &mut Pair) -> Result<()> {
    let before = registration(&pair.a)?;
    pair.a.check(&format!("echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    recovers(&pair.a, before)?;
    works(pair)
}

/// Returns the KiB of a guest's memory that are available to programs.
fn available(guest: &Guest) -> Result<u32> {
    let text = guest.check("awk '/^MemAvailable/ { print $2 }' /proc/meminfo", SHORT_TIMEOUT)?;
    Ok(text.trim().parse()?)
}

/// Messages of 1 GiB, whose buffers need the plugged memory, arrive with each byte right.
fn memory(pair: &mut Pair) -> Result<()> {
    modules::load(&pair.b, &[VIRTIO_MEM])?;
    for guest in [&pair.a, &pair.b] {
        let before = available(guest)?;
        ensure!(before < 1 << 20, "{before} KiB are available without the module");
        guest.plug_memory()?;
        let more = before + (PLUGGED_MEMORY << 10) * 9 / 10;
        let online = format!(
            "until [ $(awk '/^MemAvailable/ {{ print $2 }}' /proc/meminfo) -ge {more} ]; \
             do sleep 0.1; done"
        );
        guest.check(&online, SHORT_TIMEOUT)?;
    }
    run(pair, HUGE, "guest")
}

/// Memory with a registered region stays in the guest when QEMU asks for it. The guest returns
/// memory that is not in use.
///
/// Shows: driver: memory plugged into running machines, and asked back
fn asked_back(pair: &mut Pair) -> Result<()> {
    let guests: &Pair = pair;
    thread::scope(|scope| {
        let messages = scope.spawn(|| between(&guests.b, &guests.a, HUGE));
        for guest in [&guests.a, &guests.b] {
            settles(guest, "rdma res show mr | grep -Eq 'mrlen 1[0-9]{9} '", 60)?;
        }
        guests.a.unplug_memory()?;
        guests.b.unplug_memory()?;
        messages.join().map_err(|_| anyhow!("a panic"))?
    })?;
    // The driver tries again after 50 s, and then after 100 s (`VIRTIO_MEM_RETRY_TIMER_MIN_MS` of
    // drivers/virtio/virtio_mem.c), if pages were in use when it was asked.
    settles(&pair.b, "[ $(awk '/^MemTotal/ { print $2 }' /proc/meminfo) -lt 1500000 ]", 150)
        .context("virtio-mem keeps memory that is not in use")?;
    works(pair)
}

/// A guest whose virtual processors are paused while its adapter is in use goes on afterwards.
///
/// Shows: driver: machines that stand still for 20 s
fn still(pair: &mut Pair) -> Result<()> {
    let before = registration(&pair.a)?;
    let (server, client) = transfer(pair, "ib_write_bw", 10, 18700)?;
    pair.a.qmp(r#"{"execute":"stop"}"#)?;
    sleep(Duration::from_secs(20));
    pair.a.qmp(r#"{"execute":"cont"}"#)?;
    succeed([client, server], Duration::from_secs(90))?;
    ensure!(registration(&pair.a)? == before, "the adapter was reset");
    works(pair)
}

//! Guests whose adapters access memory through an IOMMU: Intel's in guest a, virtio-iommu in guest
//! b.
//!
//! Shows: memory

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::iommu::Iommu;
use vrnic_qemu::modules::VIRTIO_IOMMU;
use vrnic_qemu::pair::{Options, Pair, load_module};
use vrnic_tests::commands::{LONG_TIMEOUT, PCI, SHORT_TIMEOUT, succeed, transfer, works};
use vrnic_tests::conformance::{between, run};
use vrnic_tests::harness::{Case, Suite};

/// Messages of 64 MiB, each byte of which is checked.
const LARGE: &str = "--only data/write/64MiB";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("strict", |pair| translated(pair, "DMA")),
        Case::new("regions_come_and_go_under_traffic", regions),
        Case::new("lazy", |pair| translated(pair, "DMA-FQ")),
        Case::new("passthrough", |pair| translated(pair, "identity")),
    ];
    let iommus = [Some(Iommu::Intel), Some(Iommu::Virtio)];
    let options = Options { iommus, module: false, ..Options::default() };
    Suite::with_modules(&[VIRTIO_IOMMU], options, cases)
}

/// The adapters work with a type of translation of the kernel.
fn translated(pair: &mut Pair, kind: &str) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        translate(guest, kind)?;
    }
    works(pair)?;
    run(pair, LARGE, "guest")
}

/// Regions are mapped and unmapped while the same adapters move data.
fn regions(pair: &mut Pair) -> Result<()> {
    let (server, client) = transfer(pair, "ib_write_bw", 10, 18700)?;
    between(&pair.b, &pair.a, "--only regions")?;
    succeed([client, server], LONG_TIMEOUT)?;
    let refused = pair.daemon.log(usize::MAX).contains("was refused");
    ensure!(!refused, "the daemon refused a range");
    Ok(())
}

/// Sets the type of translation of the guest's adapter, and loads the driver.
fn translate(guest: &Guest, kind: &str) -> Result<()> {
    let file = format!("{PCI}/iommu_group/type");
    guest.check(
        &format!("! [ -e /sys/module/vrnic ] || rmmod vrnic; echo {kind} > {file}"),
        SHORT_TIMEOUT,
    )?;
    load_module(guest)?;
    let now = guest.check(&format!("cat {file}"), SHORT_TIMEOUT)?;
    ensure!(now.trim() == kind, "the type is {now}");
    Ok(())
}

//! Adapters that are plugged into running machines.

use std::process::ExitCode;

use anyhow::Result;
use vrnic_qemu::pair::{Options, Pair, load_module, ready};
use vrnic_tests::commands::{PCI, SHORT, recovers, registration, works};
use vrnic_tests::harness::{self, Case};

fn main() -> ExitCode {
    let cases = vec![
        Case::new("plugged_into_running_machines", plugged),
        Case::new("remove_and_rescan_behind_the_port", remove),
        Case::new("reset_behind_the_port", reset),
    ];
    harness::main(Options { plugged: true, module: false, ..Options::default() }, cases)
}

/// One comes before the driver, the other after it.
fn plugged(pair: &mut Pair) -> Result<()> {
    pair.a.check("modprobe -a ib_uverbs rdma_ucm; insmod /vrnic/vrnic.ko", SHORT)?;
    pair.a.plug()?;
    ready(&pair.a)?;
    pair.b.plug()?;
    load_module(&pair.b)?;
    works(pair)
}

/// The guest can remove the adapter, which QEMU cannot.
fn remove(pair: &mut Pair) -> Result<()> {
    pair.a.check(&format!("echo 1 > {PCI}/remove; ! ls /sys/class/infiniband/*"), SHORT)?;
    pair.a.check("echo 1 > /sys/bus/pci/rescan", SHORT)?;
    ready(&pair.a)?;
    works(pair)
}

fn reset(pair: &mut Pair) -> Result<()> {
    let before = registration(&pair.a)?;
    pair.a.check(&format!("echo 1 > {PCI}/reset"), SHORT)?;
    recovers(&pair.a, before)?;
    works(pair)
}

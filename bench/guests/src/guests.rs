//! One RDMA device after the other in both guests, and perftest over it.
//!
//! Each device is alone while it is measured: they share the guests' NIC, and the connection manager would
//! take the first device that has the address.

use std::time::Duration;

use anyhow::Context;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;
use vrnic_qemu::perftest::{Case, Figure};
use vrnic_qemu::progress::step;

use crate::plan::{Device, LATENCY_BYTES, OPERATIONS};
use crate::results::{Bandwidth, Failure, Latency, Results};

/// Where the guests have siw.ko.
pub(crate) const SIW_MODULE: &str = "/vrnic/siw.ko";
/// For a command that only configures something, on a loaded machine.
const SHORT: Duration = Duration::from_secs(60);

/// Makes `device` in both guests, measures it with messages of `sizes` bytes and removes it. A test that
/// fails is noted among the results.
///
/// # Errors
/// When a guest is gone, or the device cannot be made or removed.
pub(crate) fn measure(
    pair: &Pair,
    device: Device,
    sizes: &[u64],
    results: &mut Results,
) -> anyhow::Result<()> {
    both(pair, &add(device))?;
    for operation in OPERATIONS {
        for &bytes in sizes {
            let case = device.bandwidth(operation, bytes);
            if let Some(Figure::Bandwidth { average, rate, .. }) = run(pair, &case, results)? {
                let point = Bandwidth::new(device, operation, bytes, average, rate);
                results.bandwidth.push(point);
            }
        }
    }
    for operation in OPERATIONS {
        let case = device.latency(operation);
        if let Some(Figure::Latency { typical, .. }) = run(pair, &case, results)? {
            let latency = Latency { device, operation, bytes: LATENCY_BYTES, typical_us: typical };
            results.latency.push(latency);
        }
    }
    both(pair, remove(device))
}

fn run(pair: &Pair, case: &Case, results: &mut Results) -> anyhow::Result<Option<Figure>> {
    let outcome = pair.perftest(case).with_context(|| pair.report())?;
    let test = format!("{} {}", case.tool, case.options);
    match outcome.figure {
        Some(figure) if outcome.code == 0 => {
            step(format!("{test}: {figure}"));
            Ok(Some(figure))
        }
        _ => {
            step(format!("{test}: failed with {}", outcome.code));
            results.failures.push(Failure { test, code: outcome.code, text: outcome.text });
            Ok(None)
        }
    }
}

fn both(pair: &Pair, script: &str) -> anyhow::Result<()> {
    let on = |guest: &Guest| guest.check(script, SHORT).map(|_| ());
    on(&pair.a)?;
    on(&pair.b)
}

/// Script that makes the device and waits until its port is active and, for RoCE, has its IPv4 GID.
fn add(device: Device) -> String {
    let name = device.ibdev();
    let make = match device {
        // The pair was booted with it.
        Device::Vrnic => String::new(),
        Device::Rxe => {
            format!("modprobe -a rdma_ucm rdma_rxe && rdma link add {name} type rxe netdev eth0")
        }
        Device::Siw => format!(
            "modprobe -a rdma_ucm && insmod {SIW_MODULE} && rdma link add {name} type siw netdev eth0"
        ),
    };
    let gid = if device == Device::Siw { "" } else { "0000:0000:0000:0000:0000:ffff" };
    format!(
        "set -e\n{make}\nport=/sys/class/infiniband/{name}/ports/1\n\
         for n in $(seq 200); do \
           grep -qs ACTIVE $port/state && grep -qs '{gid}' $port/gids/* && exit 0; sleep 0.1; \
         done\n\
         echo {name} did not become active; rdma link; exit 1"
    )
}

fn remove(device: Device) -> &'static str {
    match device {
        Device::Vrnic => "rmmod vrnic",
        Device::Rxe => "rdma link delete rxe0",
        Device::Siw => "rdma link delete siw0",
    }
}

//! Runs perftest, and checks that it prints figures. The figures may have any size.

use std::time::Duration;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_qemu::traffic::perftest::{Case as Run, between, case, with_sound_clocks};
use vrnic_tests::harness::Case;

use super::both_ways;
use super::ends::Way;
use super::network::{more_addresses, set_mtu, with_losses};

/// Time limit of a perftest. The software device is slow under TCG.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Packets of 1024 bytes. rxe has neither XRC nor atomics of larger words.
const RUNS: &[Run] = &[
    case("ib_send_bw", "-s 4096 -n 200"),
    case("ib_send_bw", "-s 65536 -n 20"),
    case("ib_send_bw", "-c UC -s 4096 -n 200"),
    case("ib_send_bw", "-c UD -s 1024 -n 200"),
    case("ib_send_bw", "-e -s 1000 -n 200"),
    case("ib_send_lat", "-n 100"),
    case("ib_send_lat", "-c UC -n 100"),
    case("ib_write_bw", "-s 65536 -n 30"),
    case("ib_write_bw", "-q 4 -s 4096 -n 50"),
    case("ib_write_bw", "-c UC -s 65536 -n 30"),
    case("ib_write_lat", "-n 100"),
    case("ib_write_lat", "-c UC -n 100"),
    case("ib_read_bw", "-s 65536 -n 30"),
    case("ib_read_lat", "-n 100"),
    case("ib_atomic_bw", "-n 100"),
    case("ib_atomic_bw", "-A CMP_AND_SWAP -n 100"),
];

/// The index of the GID that is an IPv6 address.
const GID: &str = "-x $(grep -l fd09 /sys/class/infiniband/*/ports/1/gids/* | sed 's|.*/||')";

/// Over IPv6, each with [`GID`].
const IPV6: &[Run] = &[
    case("ib_send_bw", "-s 4096 -n 200"),
    case("ib_send_bw", "-c UD -s 1024 -n 200"),
    case("ib_write_bw", "-s 65536 -n 30"),
    case("ib_read_bw", "-s 65536 -n 30"),
];

/// Packets of 4096 bytes. All messages of a UC run fit into the queue of a network device, because
/// the switch drops frames that do not fit.
const JUMBO: &[Run] = &[
    case("ib_send_bw", "-s 65536 -n 50"),
    case("ib_send_bw", "-c UC -s 65536 -n 20"),
    case("ib_send_bw", "-c UD -s 4096 -n 200"),
    case("ib_write_bw", "-s 65536 -n 50"),
    case("ib_read_bw", "-s 65536 -n 50"),
    case("ib_atomic_bw", "-n 100"),
];

/// With memory that neither end pins.
const ON_DEMAND: &[Run] = &[
    case("ib_send_bw", "--odp -s 65536 -n 20"),
    case("ib_write_bw", "--odp -s 65536 -n 30"),
    case("ib_read_bw", "--odp -s 65536 -n 30"),
    case("ib_atomic_bw", "--odp -n 100"),
];

/// Cases while 1 % of the packets is lost.
const LOSSY: &[Run] = &[
    case("ib_send_bw", "-s 8192 -n 500"),
    case("ib_write_bw", "-s 65536 -n 100"),
    case("ib_read_bw", "-s 65536 -n 100"),
    case("ib_atomic_bw", "-n 2000"),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for run in RUNS {
        let name = format!("{} {}", run.tool, run.options);
        cases.extend(both_ways(&name, move |pair, way| measure(pair, run, way, 1500).map(drop)));
    }
    for run in JUMBO {
        let name = format!("MTU 4096: {} {}", run.tool, run.options);
        cases.extend(both_ways(&name, move |pair, way| measure(pair, run, way, 9000).map(drop)));
    }
    for run in IPV6 {
        let name = format!("IPv6: {} {}", run.tool, run.options);
        cases.extend(both_ways(&name, move |pair, way| {
            let (_server, _client) = way.ends(pair)?;
            more_addresses(pair)?;
            let options = format!("{GID} {}", run.options).into();
            let shown = measure(pair, &Run { tool: run.tool, options }, way, 1500)?;
            // perftest prints the bytes of GIDs as decimal numbers.
            ensure!(shown.matches("GID: 253:09:").count() == 2, "other addresses in\n{shown}");
            Ok(())
        }));
    }
    for run in ON_DEMAND {
        let name = format!("on demand: {} {}", run.tool, run.options);
        cases.extend(both_ways(&name, move |pair, way| measure(pair, run, way, 1500).map(drop)));
    }
    for run in LOSSY {
        let name = format!("losses: {} {}", run.tool, run.options);
        cases.extend(both_ways(&name, move |pair, way| {
            let (_server, _client) = way.ends(pair)?;
            with_losses(pair, 10, || measure(pair, run, way, 1500).map(drop))
        }));
    }
    cases
}

/// Runs perftest with network cards of this MTU. Returns the client's output.
fn measure(pair: &Pair, run: &Run, way: Way, mtu: u32) -> Result<String> {
    let (server, client) = way.ends(pair)?;
    set_mtu(pair, mtu)?;
    let outcome = with_sound_clocks(
        || between(server, client, run, TIMEOUT),
        |outcome| (outcome.code != 0).then(|| outcome.text.clone()),
    )?;
    ensure!(outcome.code == 0, "rc={}\n{}", outcome.code, outcome.text);
    ensure!(outcome.figure.is_some(), "no figure in\n{}", outcome.text);
    let path = if mtu < 4200 { "1024[B]" } else { "4096[B]" };
    let shown = outcome.text.lines().find(|line| line.contains("Mtu"));
    ensure!(shown.is_some_and(|line| line.contains(path)), "other packets in\n{}", outcome.text);
    Ok(outcome.text)
}

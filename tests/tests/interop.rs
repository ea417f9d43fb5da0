//! RDMA between vrnic and the kernel's software device (rxe): guest a keeps its adapter, guest b
//! lets its own go and makes a software device on its network card.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_qemu::perftest::{Case as Run, between, case, with_sound_clocks};
use vrnic_tests::bench::{self, Case};
use vrnic_tests::talk::{SHORT, connect, settles};

/// Time limit of a perftest; the software device is slow where its code is translated.
const PATIENCE: Duration = Duration::from_secs(90);

/// The perftest runs, each in both directions. XRC and atomics of larger words are nothing that rxe
/// has.
const RUNS: &[Run] = &[
    case("ib_send_bw", "-s 4096 -n 200"),
    case("ib_send_bw", "-s 65536 -n 20"),
    case("ib_send_bw", "-c UD -s 1024 -n 200"),
    case("ib_send_bw", "-e -s 1000 -n 200"),
    case("ib_send_lat", "-n 100"),
    case("ib_write_bw", "-s 65536 -n 30"),
    case("ib_write_bw", "-q 4 -s 4096 -n 50"),
    case("ib_write_lat", "-n 100"),
    case("ib_read_bw", "-s 65536 -n 30"),
    case("ib_read_lat", "-n 100"),
    case("ib_atomic_bw", "-n 100"),
    case("ib_atomic_bw", "-A CMP_AND_SWAP -n 100"),
];

fn main() -> ExitCode {
    let mut cases = vec![Case::new("a_software_device", software_device)];
    for run in RUNS {
        for to_rxe in [true, false] {
            let way = if to_rxe { "to rxe" } else { "from rxe" };
            let name = format!("{} {} {way}", run.tool, run.options);
            cases.push(Case::new(name, move |pair: &mut Pair| perftest(pair, run, to_rxe)));
        }
    }
    for (name, serve, call) in [
        // Content is checked by the program itself.
        ("rping", "rping -V -C 20 -s -a ADDRESS", "rping -V -C 20 -c -a ADDRESS"),
        ("ucmatose", "ucmatose -c 2 -C 20", "ucmatose -c 2 -C 20 -s ADDRESS"),
        ("udaddy", "udaddy -c 2 -C 20", "udaddy -c 2 -C 20 -s ADDRESS"),
    ] {
        for to_rxe in [true, false] {
            let way = if to_rxe { "to rxe" } else { "from rxe" };
            let run = move |pair: &mut Pair| managed(pair, (serve, call), to_rxe);
            cases.push(Case::new(format!("{name} {way}"), run));
        }
    }
    bench::main(Options::default(), cases)
}

/// Replaces the adapter of guest b by a software device.
fn software_device(pair: &mut Pair) -> Result<()> {
    let script = "rmmod vrnic && modprobe -a rdma_ucm rdma_rxe && \
                  rdma link add rxe0 type rxe netdev eth0";
    pair.b.check(script, SHORT)?;
    let port = "/sys/class/infiniband/rxe0/ports/1";
    settles(&pair.b, &format!("grep -qs ACTIVE {port}/state"), 30)?;
    settles(&pair.b, &format!("grep -qs 0000:0000:0000:0000:0000:ffff {port}/gids/*"), 30)?;
    pair.a.check("modprobe rdma_ucm; ping -c 2 -W 5 10.9.0.2", SHORT)?;
    Ok(())
}

/// The guests as server and client.
fn ends(pair: &Pair, to_rxe: bool) -> (&Guest, &Guest) {
    if to_rxe { (&pair.b, &pair.a) } else { (&pair.a, &pair.b) }
}

fn perftest(pair: &Pair, run: &Run, to_rxe: bool) -> Result<()> {
    let (server, client) = ends(pair, to_rxe);
    let outcome = with_sound_clocks(
        || between(server, client, run, PATIENCE),
        |outcome| (outcome.code != 0).then(|| outcome.text.clone()),
    )?;
    ensure!(outcome.code == 0, "rc={}\n{}", outcome.code, outcome.text);
    ensure!(outcome.figure.is_some(), "no figure in\n{}", outcome.text);
    Ok(())
}

/// A server and a client that meet by the RDMA connection manager.
fn managed(pair: &Pair, (serve, call): (&str, &str), to_rxe: bool) -> Result<()> {
    let (server, client) = ends(pair, to_rxe);
    let (serve, call) =
        (serve.replace("ADDRESS", server.ip()), call.replace("ADDRESS", server.ip()));
    let _said = connect((server, &serve), (client, &call))?;
    Ok(())
}

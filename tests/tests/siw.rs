//! RDMA between an adapter of iWARP and the kernel's software iWARP (siw): guest a keeps its
//! adapter, and guest b unloads the driver of its adapter and creates siw on its network card.

use std::process::ExitCode;

use anyhow::{Context, Result};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::harness::{self, Case};
use vrnic_tests::talk::{LONG, SHORT, connect};

/// Path of siw.ko in the guests.
const MODULE: &str = "/vrnic/siw.ko";

/// The guest that runs the server.
#[derive(Clone, Copy)]
enum Server {
    Vrnic,
    Siw,
}

fn main() -> ExitCode {
    let Some(file) = std::env::var_os("VRNIC_SIW") else {
        return harness::skipped("siw: VRNIC_SIW names no module; scripts/test siw builds one");
    };
    let module = match std::fs::read(&file).with_context(|| file.display().to_string()) {
        Ok(module) => module,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    let cases = [Server::Siw, Server::Vrnic].into_iter().flat_map(cases).collect();
    let files = vec![(MODULE.to_owned(), module)];
    harness::main(Options { personality: Transport::Iwarp, files, ..Options::default() }, cases)
}

/// The cases of one direction.
fn cases(server: Server) -> Vec<Case> {
    let way = match server {
        Server::Vrnic => "from siw",
        Server::Siw => "to siw",
    };
    let mut tools = vec![
        ("rping", "rping -v -V -C 10", "rping -v -V -C 10 -c -a"),
        ("rping, 60,000 bytes", "rping -V -C 10 -S 60000", "rping -V -C 10 -S 60000 -c -a"),
    ];
    let perftest = [
        ("ib_send_bw", "ib_send_bw -R -F -n 200", "ib_send_bw -R -F -n 200"),
        ("ib_write_bw", "ib_write_bw -R -F -n 200", "ib_write_bw -R -F -n 200"),
        ("ib_read_bw", "ib_read_bw -R -F -n 200", "ib_read_bw -R -F -n 200"),
        ("ib_send_lat", "ib_send_lat -R -F -n 200", "ib_send_lat -R -F -n 200"),
        ("ib_write_lat", "ib_write_lat -R -F -n 200", "ib_write_lat -R -F -n 200"),
        ("ib_read_lat", "ib_read_lat -R -F -n 200", "ib_read_lat -R -F -n 200"),
    ];
    // perftest makes a second connection, for which its server listens anew. Its client ends if siw
    // says at once that the server does not listen yet.
    if matches!(server, Server::Siw) {
        tools.extend(perftest);
    }
    let case = |(name, serve, call)| {
        Case::new(format!("{name} {way}"), move |pair: &mut Pair| run(pair, server, serve, call))
    };
    tools.into_iter().map(case).collect()
}

/// Runs a tool in both guests. Its client takes the server's address as the last argument.
fn run(pair: &Pair, server: Server, serve: &str, call: &str) -> Result<()> {
    software(&pair.b)?;
    let (server, client) = match server {
        Server::Vrnic => (&pair.a, &pair.b),
        Server::Siw => (&pair.b, &pair.a),
    };
    let serve = if serve.starts_with("rping") { format!("{serve} -s") } else { serve.to_owned() };
    connect((server, &serve), (client, &format!("{call} {}", server.ip()))).map(drop)
}

/// Creates siw on the network card of a guest, if it has none.
fn software(guest: &Guest) -> Result<()> {
    if guest.agent().run("rdma dev show siw0", SHORT)?.ok() {
        return Ok(());
    }
    guest.check("rmmod vrnic; modprobe rdma_ucm", SHORT)?;
    guest.check(&format!("insmod {MODULE}"), SHORT)?;
    guest.check("rdma link add siw0 type siw netdev eth0", LONG).map(drop)
}

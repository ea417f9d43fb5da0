//! RDMA between an iWARP adapter and the kernel's software iWARP (siw): guest a keeps its adapter,
//! and guest b unloads the driver of its adapter and creates siw on its network card.
//!
//! Shows: iwarp
//!
//! | module | contents |
//! | --- | --- |
//! | [`ends`] | the guest that runs the server |
//! | [`network`] | fault injection |

mod ends;
mod network;

use anyhow::{Context, Result};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{SHORT_TIMEOUT, listens, stop};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::rules;
use vrnic_tests::siw;
use vrnic_tests::storage::{attach, detach, write_and_read};

use ends::{Server, run};

/// Tools, each with a server and a client, whose last argument is the server's address.
const TOOLS: [(&str, &str, &str); 2] = [
    ("rping", "rping -v -V -C 10 -s", "rping -v -V -C 10 -c -a"),
    ("rping, 60,000 bytes", LARGE.0, LARGE.1),
];
/// Messages of many segments.
const LARGE: (&str, &str) = ("rping -V -C 10 -S 60000 -s", "rping -V -C 10 -S 60000 -c -a");
/// Like [`LARGE`], with more messages.
const LARGE_REPEATED: (&str, &str) =
    ("rping -V -C 40 -S 60000 -s", "rping -V -C 40 -S 60000 -c -a");

/// Tests of perftest, with the same options at both ends.
const PERFTEST: [&str; 8] = [
    "ib_send_bw -R -F -n 200",
    "ib_write_bw -R -F -n 200",
    "ib_read_bw -R -F -n 200",
    "ib_send_lat -R -F -n 200",
    "ib_read_lat -R -F -n 200",
    "ib_send_lat -R -F -e -n 200",
    "ib_read_bw -R -F -e -n 200",
    "ib_write_bw -R -F -q 8 -n 50",
];
/// A test of perftest that runs only with its server on siw. The reason is in docs/iwarp.md.
const SERVED_BY_SIW: &str = "ib_write_lat -R -F -n 200";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let Some(files) = files()? else {
        return Ok(Suite::skipped("VRNIC_SIW names no module; scripts/test siw builds one"));
    };
    let daemon = rules::arguments();
    let last = Case::new("operations that siw does not know", unknown);
    let cases = [Server::Siw, Server::Vrnic].into_iter().flat_map(cases).chain([last]).collect();
    let options = Options { personality: Transport::Iwarp, files, daemon, ..Options::default() };
    Ok(Suite::new(options, cases).changing_guests())
}

/// The names and contents of files for a guest.
type Files = Vec<(String, Vec<u8>)>;

/// Returns the modules that guests need: siw, and the modules that simulate losses. Returns `None`
/// if siw was not built.
fn files() -> Result<Option<Files>> {
    let Some(module) = siw::file()? else { return Ok(None) };
    let mut files = modules::files(&network::MODULES)?;
    files.push(module);
    Ok(Some(files))
}

/// Returns the cases of one direction.
fn cases(server: Server) -> Vec<Case> {
    let way = match server {
        Server::Vrnic => "from siw",
        Server::Siw => "to siw",
    };
    let mut tools = TOOLS.to_vec();
    if matches!(server, Server::Siw) {
        // The servers of ucmatose and ib_write_lat send first. But the adapter as a responder must
        // wait for a message of siw, which sends none by itself.
        tools.push(("ucmatose", "ucmatose -c 10 -C 5", "ucmatose -c 10 -C 5 -s"));
        tools.push((SERVED_BY_SIW, SERVED_BY_SIW, SERVED_BY_SIW));
    }
    tools.extend(PERFTEST.map(|command| (command, command, command)));
    let tools = tools.into_iter().map(|(name, serve, call)| {
        Case::new(format!("{name} {way}"), move |pair: &mut Pair| run(pair, server, serve, call))
    });
    let lossy = Case::new(format!("losses {way}"), move |pair: &mut Pair| {
        siw::create(&pair.b)?;
        network::bad(pair, || run(pair, server, LARGE_REPEATED.0, LARGE_REPEATED.1))
    });
    let large = Case::new(format!("MTU 9000 {way}"), move |pair: &mut Pair| large(pair, server));
    let blocks = Case::new(format!("NVMe {way}"), move |pair: &mut Pair| blocks(pair, server));
    let rejections =
        Case::new(format!("rejections {way}"), move |pair: &mut Pair| rejections(pair, server));
    tools.chain([rejections, lossy, large, blocks]).collect()
}

/// The adapter posts atomics and immediate data, which siw does not support. siw does not let a
/// process end whose connection it has ended with a Terminate, so this case is the last, and does
/// not wait for the server.
fn unknown(pair: &mut Pair) -> Result<()> {
    let (server, client) = Server::Siw.ends(pair)?;
    let answering = server.agent().start("modprobe rdma_ucm; exec vrnic-stress answer")?;
    listens(server)?;
    let call = format!("modprobe rdma_ucm; exec vrnic-stress unknown {}", server.ip());
    client.check(&call, SHORT_TIMEOUT)?;
    answering.kill()
}

/// The server rejects the request, with private data.
fn rejections(pair: &Pair, server: Server) -> Result<()> {
    let (server, client) = server.ends(pair)?;
    let answering = server.agent().start("modprobe rdma_ucm; exec vrnic-stress answer")?;
    listens(server)?;
    let call = format!("modprobe rdma_ucm; exec vrnic-stress reject {}", server.ip());
    let said = client.check(&call, SHORT_TIMEOUT);
    let answered = stop(answering)?;
    said.with_context(|| answered.stderr).map(drop)
}

/// Attaches a disk of the server, and uses it.
fn blocks(pair: &Pair, server: Server) -> Result<()> {
    let (target, initiator) = server.ends(pair)?;
    attach(initiator, target)?;
    write_and_read(initiator, target, 4)?;
    detach(initiator)
}

/// Connects over network cards with a larger MTU than the adapter uses.
fn large(pair: &Pair, server: Server) -> Result<()> {
    let set = |mtu: u32| {
        let set = format!("ip link set eth0 mtu {mtu}");
        [&pair.a, &pair.b]
            .into_iter()
            .try_for_each(|guest| guest.check(&set, SHORT_TIMEOUT).map(drop))
    };
    set(9000)?;
    run(pair, server, LARGE.0, LARGE.1)?;
    set(1500)
}

//! iWARP adapters: the device, its pairing with the network card, and connections over the
//! adapter's TCP.
//!
//! Shows: iwarp
//!
//! | module | what it shows |
//! | --- | --- |
//! | [`conformance`] | the conformance program |
//! | [`storage`] | the driver's own kernel client |
//! | [`networks`] | IPv6, VLANs, network namespaces, bridges, bonds, pods with macvlan devices |
//! | [`programs`] | more programs, and many connections |
//! | [`sockets`] | TCP sockets that the guest ends |
//! | [`removal`] | devices that are removed while they are in use |

mod conformance;
mod networks;
mod programs;
mod removal;
mod sockets;
mod storage;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair, ready};
use vrnic_tests::commands::{
    LONG_TIMEOUT, PCI, SHORT_TIMEOUT, connect, describes, endless_pings, hears_fatal, netdev_up,
    recovers, registration, reload, said, serve_pings, settles, stop, watch,
};
use vrnic_tests::harness::{self, Case, Suite};
use vrnic_tests::{places, rules};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let (daemon, of_one_daemon) = match harness::over_packets() {
        true => (Vec::new(), Vec::new()),
        false => {
            let port = Case::new("all_devices_follow_the_adapters_port", port);
            (rules::arguments(), vec![Case::new("messages_are_copied", copied), port])
        }
    };
    let own = vec![
        Case::new("device", device),
        Case::new("node_description", |pair| describes(&pair.a)),
        Case::new("reliable_connections_alone", connections_alone),
        Case::new("rping", |pair| connected(&pair.b, &pair.a, "rping -v -V -C 10")),
        Case::new("rping_other_way", |pair| connected(&pair.a, &pair.b, "rping -V -C 10 -S 60000")),
        Case::new("rping_to_oneself", oneself),
        Case::new("connection_refused", refused),
        Case::new("20_connections_in_turn", in_turn),
        Case::new("ports_that_tcp_has", ports_in_use),
        Case::new("perftest_send", |pair| measured(pair, "ib_send_lat -R -n 200")),
        Case::new("perftest_write", |pair| measured(pair, "ib_write_bw -R -n 200")),
        Case::new("perftest_read", |pair| measured(pair, "ib_read_bw -R -n 200")),
        Case::new("perftest_atomic", |pair| measured(pair, "ib_atomic_bw -R -n 200")),
        Case::new("perftest_immediate", |pair| {
            measured(pair, "ib_write_bw -R --write_with_imm -n 200")
        }),
        Case::new("connections_can_be_seen", seen),
        Case::new("killed_peers", killed),
        Case::new("card_goes_and_comes", card),
        Case::new("module_without_card", module_without_card),
        Case::new("reload", |pair| reload(&pair.a, "")),
        Case::new("adapter_dies", dies),
    ];
    let cases = [
        own,
        of_one_daemon,
        conformance::cases(),
        storage::cases(),
        networks::cases(),
        programs::cases(),
        sockets::cases(),
        removal::cases(),
    ];
    Suite::with_modules(
        &[&networks::MODULES[..], &networks::DUMMY, &places::MODULES, &sockets::MODULES].concat(),
        Options { personality: Transport::Iwarp, daemon, ..Options::default() },
        cases.into_iter().flatten().collect(),
    )
}

/// The RDMA devices of the network card and of a macvlan device on top of it are down while the
/// adapter's port has no link.
fn port(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    modules::load(guest, &places::MODULES)?;
    let add = "ip link add link eth0 name m0 address 52:54:00:00:dd:77 type macvlan mode bridge && \
               ip link set m0 up";
    guest.check(add, SHORT_TIMEOUT)?;
    let both = |state: &str| {
        let count = format!("[ $(rdma link show | grep -c 'state {state}') = 2 ]");
        settles(guest, &count, 30)
    };
    both("ACTIVE")?;
    rules::fault(pair, &["add", "port-down", "function=a"])?;
    both("DOWN")?;
    rules::fault(pair, &["clear"])?;
    both("ACTIVE")?;
    guest.check("ip link del m0", SHORT_TIMEOUT)?;
    settles(guest, "[ $(rdma dev show | wc -l) = 1 ]", 30)?;
    connected(&pair.b, guest, "rping -V -C 10")
}

/// Tools show an iWARP device. Its only GID is the MAC of its port.
fn device(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let text = guest.check("rdma dev show", SHORT_TIMEOUT)?;
    ensure!(text.contains("node_type rnic protocol iw"), "rdma says: {text}");
    let text = guest.check("rdma link show", SHORT_TIMEOUT)?;
    ensure!(text.contains("state ACTIVE") && text.contains("netdev eth0"), "rdma says: {text}");
    let text = guest.check("ibv_devinfo -v", SHORT_TIMEOUT)?;
    for line in ["iWARP (1)", "Ethernet", "ATOMIC_HCA", "max_mcast_grp:\t\t\t0\n"] {
        ensure!(text.contains(line), "no '{line}' in\n{text}");
    }
    let mac = guest.setup().adapter.mac.replace(':', "");
    let gids = guest.check("cat /sys/class/infiniband/vrnic*/ports/1/gids/*", SHORT_TIMEOUT)?;
    ensure!(gids.replace(':', "").trim() == format!("{mac}{}", "0".repeat(20)), "GIDs: {gids}");
    let shown = pair.function("a")?;
    ensure!(shown.contains("\"enabled\": true"), "the daemon says: {shown}");
    Ok(())
}

/// Runs a tool that takes `-s` as the server and `-c -a ADDRESS` as the client.
fn connected(server: &Guest, client: &Guest, command: &str) -> Result<()> {
    let call = format!("{command} -c -a {}", server.ip());
    connect((server, &format!("{command} -s")), (client, &call)).map(drop)
}

/// Runs a test of perftest whose connection is made by the connection manager.
fn measured(pair: &Pair, command: &str) -> Result<()> {
    let call = format!("{command} -F {}", pair.b.ip());
    connect((&pair.b, &format!("{command} -F")), (&pair.a, &call)).map(drop)
}

/// A guest connects to itself: to a server at a wildcard address, and to a server at its own
/// address.
fn oneself(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let tool = "rping -V -C 10";
    connected(guest, guest, tool)?;
    let call = format!("{tool} -c -a {}", guest.ip());
    connect((guest, &format!("{tool} -s -a {}", guest.ip())), (guest, &call))?;
    empty(guest)
}

/// The driver's file and the daemon show a connection with its ends, and `rdma` shows its numbers.
fn seen(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let ip = pair.b.ip();
    let client = pair.a.agent().start(&endless_pings(ip))?;
    let file = "cat /sys/kernel/debug/vrnic-*/connections";
    let remote = format!("remote {ip}:7174");
    settles(&pair.a, &format!("{file} | grep -q '{remote} tcp_state ESTAB'"), 30)?;
    let line = pair.a.check(file, SHORT_TIMEOUT)?;
    let attributes = pair.a.check("rdma resource show qp -dd", SHORT_TIMEOUT)?;
    let shown = pair.monitor(&["show", "connection", "--function", "a", "--json"])?;
    let ended = stop(client).and_then(|_| stop(server));
    for (text, parts) in [
        (&line, &["carries iwarp ", " mss ", " rtt ", " cwnd ", " retrans 0 ", " bytes_sent "]),
        (
            &attributes,
            &["carries iwarp", "tcp_state ESTAB", "rtt_us ", "cwnd ", "retrans 0", "age_ms "],
        ),
        (
            &shown,
            &["\"iwarp\"", "\"estab\"", "\"rtt_us\"", "\"cwnd\"", "\"retrans\": 0", "\"age_ms\""],
        ),
    ] {
        for part in parts {
            ensure!(text.contains(part), "no '{part}' in\n{text}");
        }
    }
    ensure!(shown.contains(&format!("\"{ip}:7174\"")), "{shown}");
    ended.map(drop)
}

/// A client gets an error if no server listens.
fn refused(pair: &mut Pair) -> Result<()> {
    let call = format!("modprobe rdma_ucm; exec rping -c -a {}", pair.b.ip());
    let output = pair.a.agent().run(&call, SHORT_TIMEOUT)?;
    ensure!(!output.ok() && said(&output).contains("REJECTED"), "rping: {}", said(&output));
    Ok(())
}

/// Connections are made and ended one after the other. No objects are left.
fn in_turn(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let call = format!("for n in $(seq 20); do rping -c -a {} -C 2 || exit 1; done", pair.b.ip());
    pair.a.check(&call, LONG_TIMEOUT)?;
    stop(server)?;
    for guest in [&pair.a, &pair.b] {
        empty(guest)?;
    }
    Ok(())
}

/// The connection manager chooses ports without asking TCP. Clients connect although TCP already
/// uses half of the ports that are chosen from.
fn ports_in_use(pair: &mut Pair) -> Result<()> {
    const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let usual = pair.a.check(&format!("cat {RANGE}"), SHORT_TIMEOUT)?;
    let taken =
        "for p in $(seq 40000 40015); do vrnic-verify serve --listen 0.0.0.0:$p & done; wait";
    let taken = pair.a.agent().start(taken)?;
    settles(&pair.a, "[ $(ss -Hlnt | grep -c ':400[01]') = 16 ]", 20)?;
    pair.a.check(&format!("echo 40000 40031 > {RANGE}"), SHORT_TIMEOUT)?;
    in_turn(pair)?;
    pair.a.check(&format!("echo {} > {RANGE}", usual.trim()), SHORT_TIMEOUT)?;
    stop(taken).map(drop)
}

/// Guests of one daemon exchange messages by memory copies: fault rules that match each packet
/// match none.
///
/// Shows: iwarp: messages within a daemon are copied
fn copied(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let call = endless_pings(pair.b.ip());
    let client = pair.a.agent().start(&call)?;
    transfers(pair)?;
    for function in ["function=a", "function=b"] {
        rules::fault(pair, &["add", "duplicate", function, "prob=1"])?;
    }
    transfers(pair)?;
    let hits = rules::hits(pair)?;
    rules::fault(pair, &["clear"])?;
    stop(client)?;
    stop(server)?;
    ensure!(hits == [0, 0], "messages were sent in packets: {hits:?}");
    settles(&pair.b, "[ -z \"$(rdma res show cm_id)$(rdma res show qp)\" ]", 20)
}

/// Programs can be killed in the middle of a transfer, and their peers are notified.
fn killed(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let call = endless_pings(pair.b.ip());
    let client = pair.a.agent().start(&call)?;
    transfers(pair)?;
    stop(client)?;
    settles(&pair.b, "! rdma res show cm_id | grep -q 'state CONNECT'", 20)?;
    let client = pair.a.agent().start(&call)?;
    transfers(pair)?;
    stop(server)?;
    let output = client.wait(SHORT_TIMEOUT)?;
    ensure!(said(&output).contains("DISCONNECT EVENT"), "the client says: {}", said(&output));
    empty(&pair.a)
}

/// Waits until a guest has no connections and no queue pairs.
fn empty(guest: &Guest) -> Result<()> {
    settles(guest, "[ -z \"$(rdma res show cm_id)$(rdma res show qp)\" ]", 20)
}

/// Waits until messages are exchanged. An rping server does not end a connection that ends earlier.
fn transfers(pair: &Pair) -> Result<()> {
    [&pair.a, &pair.b].into_iter().try_for_each(|guest| {
        let count = "rdma statistic show | grep -o 'rx_send_req [0-9]*'";
        let grows = format!("n=$({count}); sleep 0.2; [ \"$n\" != \"$({count})\" ]");
        settles(guest, &grows, 20)
    })
}

/// A program that wants a datagram QP gets an error.
fn connections_alone(pair: &mut Pair) -> Result<()> {
    let output = pair.a.agent().run("exec ibv_ud_pingpong", SHORT_TIMEOUT)?;
    ensure!(!output.ok(), "ibv_ud_pingpong works: {}", said(&output));
    Ok(())
}

/// Returns the name of the virtio device that is the guest's network card.
fn card_of(guest: &Guest) -> Result<String> {
    let name = guest.check("basename $(readlink /sys/class/net/eth0/device)", SHORT_TIMEOUT)?;
    Ok(name.trim().to_owned())
}

/// Binds the guest's network card to its driver, or unbinds it.
fn drive(guest: &Guest, act: &str, card: &str) -> Result<()> {
    let command = format!("echo {card} > /sys/bus/virtio/drivers/virtio_net/{act}");
    guest.check(&command, SHORT_TIMEOUT).map(drop)
}

/// The device exists only while its network card does. The card can be removed at any time.
fn card(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    for _ in 0..3 {
        let (card, before) = (card_of(guest)?, registration(guest)?);
        drive(guest, "unbind", &card).context("the network card cannot go")?;
        settles(guest, "[ -z \"$(rdma dev show)\" ]", 20)?;
        drive(guest, "bind", &card)?;
        netdev_up(guest)?;
        recovers(guest, before)?;
    }
    Ok(())
}

/// The module loads without a network card, and its device appears with the card. It can also be
/// unloaded without a network card.
fn module_without_card(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let card = card_of(guest)?;
    guest.check("rmmod vrnic", SHORT_TIMEOUT)?;
    drive(guest, "unbind", &card)?;
    guest.check("insmod /vrnic/vrnic.ko && sleep 1 && rmmod vrnic", SHORT_TIMEOUT)?;
    guest
        .check("insmod /vrnic/vrnic.ko && sleep 1 && [ -z \"$(rdma dev show)\" ]", SHORT_TIMEOUT)?;
    drive(guest, "bind", &card)?;
    netdev_up(guest)?;
    ready(guest)
}

/// The adapter is reset while the driver uses it, and the driver brings it up again.
fn dies(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let (watcher, before) = (watch(guest)?, registration(guest)?);
    guest.check(&format!("echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    recovers(guest, before)?;
    hears_fatal(watcher)
}

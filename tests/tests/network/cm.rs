//! The RDMA connection manager over RoCE: management datagrams, connections, and the programs that
//! use them.
//!
//! Shows: programs

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    Ends, LONG_TIMEOUT, SHORT_TIMEOUT, connect, listens, said, settles, stop,
};
use vrnic_tests::harness::{Case, Suite};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("general_services", general_services),
        Case::new("rping", |pair| connected(&pair.b, &pair.a, "rping -V -C 100")),
        Case::new("rping_other_way", |pair| connected(&pair.a, &pair.b, "rping -V -C 10 -S 60000")),
        Case::new("rping_to_oneself", |pair| connected(&pair.a, &pair.a, "rping -V -C 10")),
        Case::new("rping_ipv6", ipv6),
        Case::new("connection_refused", refused),
        Case::new("ucmatose", |pair| called(pair, "ucmatose", "-s")),
        Case::new("ucmatose_many", |pair| called(pair, "ucmatose -c 20 -C 5", "-s")),
        Case::new("udaddy", |pair| called(pair, "udaddy -c 4", "-s")),
        Case::new("mckey", multicast),
        Case::new("rstream", |pair| called(pair, "rstream -S all -C 20", "-s")),
        Case::new("perftest_rc", |pair| called(pair, "ib_write_bw -F -R -n 1000", "")),
        Case::new("perftest_ud", |pair| called(pair, "ib_send_bw -F -R -c UD -n 1000", "")),
        Case::new("rcopy", copied),
        Case::new("500_connections_at_once", |pair| called(pair, "cmtime -c 500", "-s")),
        Case::new("100_connections_in_turn", in_turn),
        Case::new("4000_connections", thousands),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// The MAD layer has opened the GSI QP.
fn general_services(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        guest.check("modprobe rdma_ucm && test -e /dev/infiniband/rdma_cm", SHORT_TIMEOUT)?;
        let text = guest.check("rdma res show qp", SHORT_TIMEOUT)?;
        ensure!(text.contains("lqpn 1 type GSI state RTS"), "rdma res says: {text}");
    }
    Ok(())
}

/// Runs a tool that takes `-s` as the server and `-c -a ADDRESS` as the client.
fn connected(server: &Guest, client: &Guest, command: &str) -> Result<()> {
    let call = format!("{command} -c -a {}", server.ip());
    connect((server, &format!("{command} -s")), (client, &call)).map(drop)
}

/// Runs a tool without options as the server in b, and with `option ADDRESS` as the client in a.
fn called(pair: &Pair, command: &str, option: &str) -> Result<()> {
    let call = format!("{command} {option} {}", pair.b.ip());
    connect((&pair.b, command), (&pair.a, &call)).map(drop)
}

/// Connects over IPv6, with addresses that are added and removed.
fn ipv6(pair: &mut Pair) -> Result<()> {
    for (guest, last) in [(&pair.a, 1), (&pair.b, 2)] {
        guest.check(&format!("ip addr add fd00::{last}/64 dev eth0 nodad"), SHORT_TIMEOUT)?;
    }
    let (serve, call) = ("rping -V -C 10 -s -a fd00::2", "rping -V -C 10 -c -a fd00::2");
    connect((&pair.b, serve), (&pair.a, call))?;
    for (guest, last) in [(&pair.a, 1), (&pair.b, 2)] {
        guest.check(&format!("ip addr del fd00::{last}/64 dev eth0"), SHORT_TIMEOUT)?;
    }
    Ok(())
}

/// Messages to an IPv4 multicast group reach the members that have joined it. IPv6 is not tested,
/// because the kernel joins no IPv6 groups over RoCE v2.
fn multicast(pair: &mut Pair) -> Result<()> {
    let command = |own| format!("modprobe rdma_ucm; exec mckey -m 239.1.1.1 -b {own} -C 50");
    let member = pair.b.agent().start(&command(pair.b.ip()))?;
    settles(&pair.b, "rdma res show qp | grep -q mckey", 10)?;
    let sender =
        pair.a.agent().run(&format!("sleep 1; {} -s", command(pair.a.ip())), LONG_TIMEOUT)?;
    Ends::of(member, sender)?.succeed("mckey").map(drop)
}

/// A file arrives complete.
fn copied(pair: &mut Pair) -> Result<()> {
    let server = pair.b.agent().start("exec rcopy")?;
    listens(&pair.b)?;
    let copy = format!(
        "head -c 8M /dev/urandom >/tmp/sent && rcopy /tmp/sent {}:/tmp/came >&2 && \
         sha256sum </tmp/sent && rm /tmp/sent",
        pair.b.ip()
    );
    let sent = pair.a.check(&copy, LONG_TIMEOUT)?;
    stop(server)?;
    let came = pair.b.check("sha256sum </tmp/came; rm /tmp/came", SHORT_TIMEOUT)?;
    ensure!(sent == came && !sent.is_empty(), "sent {sent}, came {came}");
    Ok(())
}

/// A connection to a port without a listener is rejected at once.
fn refused(pair: &mut Pair) -> Result<()> {
    let ip = pair.b.ip();
    let output =
        pair.a.agent().run(&format!("exec rping -c -a {ip} -p 7999 -C 1"), SHORT_TIMEOUT)?;
    let text = said(&output);
    ensure!(!output.ok() && text.contains("REJECTED"), "rping says ({}): {text}", output.code);
    Ok(())
}

/// Makes thousands of connections, in batches. No objects are left.
fn thousands(pair: &mut Pair) -> Result<()> {
    let objects = "rdma res show | sed 's/cm_id [0-9]*//'";
    let before = [pair.a.check(objects, SHORT_TIMEOUT)?, pair.b.check(objects, SHORT_TIMEOUT)?];
    for batch in 0..10 {
        called(pair, "cmtime -c 400", "-s").with_context(|| format!("batch {batch}"))?;
    }
    let after = [pair.a.check(objects, SHORT_TIMEOUT)?, pair.b.check(objects, SHORT_TIMEOUT)?];
    ensure!(before == after, "objects before {before:?}, after {after:?}");
    Ok(())
}

/// Makes and ends connections one after the other. No objects are left.
fn in_turn(pair: &mut Pair) -> Result<()> {
    let count = "rdma res show qp | wc -l";
    let before = pair.b.check(count, SHORT_TIMEOUT)?;
    let server = pair.b.agent().start("exec rping -s -P")?;
    listens(&pair.b)?;
    let ip = pair.b.ip();
    pair.a
        .check(
            &format!("for n in $(seq 100); do rping -c -a {ip} -C 1 || exit 1; done"),
            LONG_TIMEOUT,
        )
        .context("a connection failed")?;
    stop(server)?;
    let after = pair.b.check(count, SHORT_TIMEOUT)?;
    ensure!(after == before, "queue pairs left behind: {after}");
    Ok(())
}

//! The port: its attributes, its state, which is the state of the network device, and the events
//! that programs get.
//!
//! Shows: network

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    COUNTERS, LONG_TIMEOUT, PCI, SHORT_TIMEOUT, counter, describes, hears_fatal, link_is,
    netdev_up, pingpong, receives, said, serve, settles, stop, stop_all, transfer, watch, works,
};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};

/// The folder of the RDMA device in sysfs.
const DEVICE: &str = "/sys/class/infiniband/*";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("guids_and_version", identity),
        Case::new("rate_and_tables", tables),
        Case::new("node_description", |pair| describes(&pair.a)),
        Case::new("events_follow_the_link", events),
        Case::new("mtu_follows_the_netdev", mtu),
        Case::new("a_port_that_is_down_stops_connections", stopped),
        Case::new("connections_go_on_when_the_port_returns", interrupted),
        Case::new("a_port_that_is_down_drops_datagrams", dropped),
        Case::new("removal_under_open_programs", removal),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// GUIDs are made from the MAC (EUI-64), the firmware version is a version, and the guests have
/// different GUIDs.
fn identity(pair: &mut Pair) -> Result<()> {
    let mut guids = Vec::new();
    for guest in [&pair.a, &pair.b] {
        let read = |file: &str| guest.check(&format!("cat {DEVICE}/{file}"), SHORT_TIMEOUT);
        let mac = guest.check("cat /sys/class/net/eth0/address", SHORT_TIMEOUT)?;
        let mac: Vec<u8> = mac
            .trim()
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect::<Result<_, _>>()?;
        ensure!(mac.len() == 6, "MAC {mac:x?}");
        let eui = [mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]];
        let words: Vec<_> =
            eui.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
        let want = words.join(":");
        for file in ["node_guid", "sys_image_guid"] {
            let guid = read(file)?;
            ensure!(guid.trim() == want, "{file} is {guid}, not {want}");
        }
        guids.push(want);
        let version = read("fw_ver")?;
        let parts = version.trim().split('.').filter(|part| part.parse::<u16>().is_ok()).count();
        ensure!(parts == 3, "firmware version '{version}'");
        ensure!(read("node_type")?.starts_with("1: CA"), "node type");
    }
    ensure!(guids[0] != guids[1], "both guests have {}", guids[0]);
    Ok(())
}

fn tables(pair: &mut Pair) -> Result<()> {
    let read = |file: &str| pair.a.check(&format!("cat {DEVICE}/ports/1/{file}"), SHORT_TIMEOUT);
    for (file, want) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "100 Gb/sec (4X EDR)"),
        ("link_layer", "Ethernet"),
        ("lid", "0x0"),
        ("pkeys/0", "0xffff"),
        ("gid_attrs/types/0", "RoCE v2"),
        ("gid_attrs/ndevs/0", "eth0"),
    ] {
        let got = read(file)?;
        ensure!(got.trim() == want, "{file} is '{}', not '{want}'", got.trim());
    }
    Ok(())
}

/// Events that a RoCE port never has: they are about alternate paths and about the subnet manager.
const NEVER_TRUE: [&str; 5] =
    ["PATH_MIG", "LID_CHANGE", "SM_CHANGE", "PKEY_CHANGE", "CLIENT_REREGISTER"];

/// The port goes down and up with its network device, with one event each. A new address raises an
/// event of the GID table. No events about paths are raised.
fn events(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let watcher = watch(guest)?;
    guest.check("ip link set eth0 down", SHORT_TIMEOUT)?;
    link_is(guest, "DOWN")?;
    netdev_up(guest)?;
    link_is(guest, "ACTIVE")?;
    guest.check("ip addr add 10.8.8.8/24 dev eth0", SHORT_TIMEOUT)?;
    settles(guest, "grep -q 0a08:0808 /sys/class/infiniband/*/ports/1/gids/*", 10)?;
    guest.check("ip addr del 10.8.8.8/24 dev eth0", SHORT_TIMEOUT)?;
    works(pair)?;
    sleep(Duration::from_secs(1));
    let text = said(&stop(watcher)?);
    let count = |kind: &str| text.matches(kind).count();
    ensure!(
        (count("PORT_ERR"), count("PORT_ACTIVE")) == (1, 1),
        "not one event of either kind in\n{text}"
    );
    ensure!(count("GID_CHANGE") >= 1, "no change of the GID table in\n{text}");
    for untrue in NEVER_TRUE.iter().chain(&["FATAL"]) {
        ensure!(count(untrue) == 0, "'{untrue}' is not true in\n{text}");
    }
    Ok(())
}

/// The path MTU is the largest that fits the MTU of the network device, without delay. So is the
/// maximum length of a datagram.
fn mtu(pair: &mut Pair) -> Result<()> {
    for (bytes, path) in [(9000, 4096), (4200, 4096), (2200, 2048), (1500, 1024), (1000, 512)] {
        for guest in [&pair.a, &pair.b] {
            guest.check(&format!("ip link set eth0 mtu {bytes}"), SHORT_TIMEOUT)?;
            settles(guest, &format!("ibv_devinfo | grep -q 'active_mtu:.*{path} '"), 10)?;
        }
        run(pair, "--only datagrams/longest --only states/walk", "guest")
            .with_context(|| format!("MTU {bytes}"))?;
    }
    for guest in [&pair.a, &pair.b] {
        guest.check("ip link set eth0 mtu 1500", SHORT_TIMEOUT)?;
    }
    works(pair)
}

/// If the port of either side is down, requests fail as if the peer did not answer.
fn stopped(pair: &mut Pair) -> Result<()> {
    for name in ["a", "b"] {
        let (server, client) = transfer(pair, "ib_write_bw", 60, 18802)?;
        let guest = if name == "a" { &pair.a } else { &pair.b };
        guest.check("ip link set eth0 down", SHORT_TIMEOUT)?;
        let output = client.wait(SHORT_TIMEOUT).with_context(|| format!("{name} is down"))?;
        let text = said(&output);
        // perftest prints the status: 12 is "transport retry counter exceeded".
        let exceeded = text.contains("status 12") || text.contains("retry counter exceeded");
        ensure!(!output.ok() && exceeded, "no retry error though {name} is down: {text}");
        guest.check("ip link set eth0 up", SHORT_TIMEOUT)?;
        link_is(guest, "ACTIVE")?;
        stop(server)?;
    }
    works(pair)
}

/// Number of times that the port goes down and comes back.
const BREAKS: u64 = 5;

/// Ports go down and come back before the retries end: each message arrives once, with its content.
///
/// Shows: network: messages go on if a port comes back before the retries end
fn interrupted(pair: &mut Pair) -> Result<()> {
    let downs = || anyhow::Ok([counter(&pair.a, "link_downed")?, counter(&pair.b, "link_downed")?]);
    let late = || {
        anyhow::Ok(
            counter(&pair.a, "local_ack_timeout_err")? + counter(&pair.b, "local_ack_timeout_err")?,
        )
    };
    let (before, timeouts) = (downs()?, late()?);
    let rounds = 100_000;
    let programs = pingpong(pair, rounds)?;
    for n in 1..=BREAKS {
        for (guest, before) in [&pair.a, &pair.b].into_iter().zip(before) {
            guest.check(
                "printf 'link set eth0 down\\nlink set eth0 up\\n' | ip -b -",
                SHORT_TIMEOUT,
            )?;
            // The driver notifies the adapter with a delay. It reports several changes as one if it
            // has not yet reported the first.
            settles(guest, &format!("[ $(cat {COUNTERS}/link_downed) = {} ]", before + n), 10)?;
        }
    }
    for program in programs {
        let output = program.wait(LONG_TIMEOUT)?;
        let text = said(&output);
        ensure!(output.ok() && text.contains(&format!("{rounds} iters")), "{text}");
        ensure!(!text.contains("invalid data"), "wrong content: {text}");
    }
    let after = downs()?;
    ensure!(after == before.map(|n| n + BREAKS), "ports went down {before:?} -> {after:?} times");
    ensure!(late()? > timeouts, "no request met a port that was down");
    Ok(())
}

/// While a port is down, datagrams complete with success and are lost: on the way to the peer if
/// its port is down, before they leave if the sender's port is down.
fn dropped(pair: &mut Pair) -> Result<()> {
    let command = "ib_send_bw -c UD -s 1024 --run_infinitely -p 18801";
    let server = serve(&pair.b, command, 18801)?;
    let client = pair.a.agent().start(&format!("exec {command} {}", pair.b.ip()))?;
    receives(&pair.b)?;
    for (name, sends) in [("b", true), ("a", false)] {
        let guest = if name == "a" { &pair.a } else { &pair.b };
        let downs = counter(guest, "link_downed")?;
        guest.check("ip link set eth0 down", SHORT_TIMEOUT)?;
        // The driver notifies the adapter with a delay.
        settles(guest, &format!("[ $(cat {COUNTERS}/link_downed) -gt {downs} ]"), 10)?;
        sleep(Duration::from_millis(100));
        let read = |name: &str| anyhow::Ok([counter(&pair.a, name)?, counter(&pair.b, name)?]);
        let names = ["tx_send_req", "tx_roce_discards", "tx_pkts", "rx_pkts", "req_cqe_error"];
        let before = names.map(read);
        sleep(Duration::from_secs(1));
        for (counter, before) in names.into_iter().zip(before) {
            let (before, after) = (before?, read(counter)?);
            let more = [after[0] - before[0], after[1] - before[1]];
            let fits = match counter {
                "tx_send_req" | "tx_roce_discards" => more[0] > 100,
                "tx_pkts" => (more[0] > 100) == sends,
                _ => more == [0, 0],
            };
            ensure!(fits, "{name} is down: {counter} of a and b grew by {more:?}");
        }
        guest.check("ip link set eth0 up", SHORT_TIMEOUT)?;
        link_is(guest, "ACTIVE")?;
        receives(&pair.b)?;
    }
    stop_all([client, server])?;
    works(pair)
}

/// The adapter is removed while programs have it open, one of them with objects: they get the fatal
/// event and can end, and the next adapter works.
fn removal(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let watcher = watch(guest)?;
    let holder = guest.agent().start("exec ibv_rc_pingpong -g 1")?;
    settles(guest, "rdma res show qp | grep -q pingpong", 10)?;
    guest.check(&format!("echo 1 > {PCI}/remove; ! ls {DEVICE} 2>/dev/null"), SHORT_TIMEOUT)?;
    sleep(Duration::from_secs(1));
    hears_fatal(watcher)?;
    stop(holder).context("the program whose device went away")?;
    guest.check("echo 1 > /sys/bus/pci/rescan", SHORT_TIMEOUT)?;
    link_is(guest, "ACTIVE")?;
    works(pair)
}

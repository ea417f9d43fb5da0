//! Ethernet frames by verbs, between the guests: perftest's tools for raw packets, and a packet
//! generator and a sniffer of our own (`tests/programs/frames.c`). The conformance program has the
//! rest (its group `raw`).
//!
//! Shows: raw

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{Ends, LONG_TIMEOUT, SHORT_TIMEOUT, said, settles, stop};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;

/// Bytes of the header of a pcap file, and of that of a record.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// The file of a sniffer in a guest.
const SNIFFED: &str = "/tmp/sniffed.pcap";

/// The folder with test programs of libpcap (`scripts/test raw` builds them).
const LIBPCAP: &str = "VRNIC_CAPTURE";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let perftest = |name: &'static str, command: &'static str, alone: bool| {
        let name = format!("perftest, {name}");
        Case::new(name, move |pair: &mut Pair| {
            leaves_nothing(pair, |pair| tool(pair, command, alone))
        })
    };
    let mut cases = vec![
        perftest("bandwidth", "raw_ethernet_bw -s 1024 -D 3", false),
        perftest("bandwidth of small frames", "raw_ethernet_bw -s 64 -D 3", false),
        perftest("latency", "raw_ethernet_lat -s 64 -n 200", false),
        perftest("rate of flows", "raw_ethernet_fs_rate -n 200", true),
        Case::new("packet_generator", |pair| leaves_nothing(pair, generator)),
        Case::new("sniffer", |pair| leaves_nothing(pair, sniffer)),
        Case::new("killed_sniffer", |pair| leaves_nothing(pair, killed)),
    ];
    let tree = std::env::var_os(LIBPCAP).map(PathBuf::from);
    if tree.is_some() {
        cases.push(Case::new("libpcap", |pair| leaves_nothing(pair, libpcap)));
    }
    Ok(Suite::new(Options { tree, ..Options::default() }, cases))
}

/// Runs a case, which must leave no objects.
fn leaves_nothing(pair: &Pair, run: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    run(pair)?;
    for (before, guest) in before.iter().zip([&pair.a, &pair.b]) {
        before.unchanged(pair, guest)?;
    }
    Ok(())
}

/// Waits until a program has a QP of raw packets that can receive.
fn has_queue_pair(guest: &Guest) -> Result<()> {
    settles(guest, "rdma res show qp | grep RAW_PACKET | grep -q 'state RT'", 30)
}

/// Runs a tool of perftest as server in guest b and as client in guest a, or one that needs no
/// peer.
fn tool(pair: &Pair, command: &str, alone: bool) -> Result<()> {
    let (a, b) = (&pair.a, &pair.b);
    // Both ends have the client's address first.
    let ends = |own: &Guest, peer: &Guest| {
        let macs = [own, peer].map(|guest| &guest.setup().adapter.mac);
        format!("-F -B {} -E {} -j {} -J {} -k 2000 -K 2001", macs[0], macs[1], a.ip(), b.ip())
    };
    let serve = format!("exec {command} --server {}", ends(b, a));
    let call = format!("exec {command} --client {}", ends(a, b));
    let text = if alone {
        let output = b.agent().run(&serve, LONG_TIMEOUT)?;
        ensure!(output.ok(), "'{serve}' ended with {}\n{}", output.code, said(&output));
        said(&output)
    } else {
        let server = b.agent().start(&serve)?;
        has_queue_pair(b)?;
        let client = a.agent().run(&call, LONG_TIMEOUT)?;
        Ends::of(server, client)?.succeed(command)?
    };
    // The table has only numbers.
    let row = text.lines().filter(|line| !line.contains('[')).find_map(|line| {
        let numbers: Option<Vec<f64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 4)
    });
    let row = row.with_context(|| format!("no figures in\n{text}"))?;
    ensure!(
        row.iter().skip(1).any(|figure| *figure > 0.0),
        "no figure above zero: {row:?}\n{text}"
    );
    Ok(())
}

/// Frames of a generator in guest a reach a receiver in guest b, in good order of magnitude.
fn generator(pair: &Pair) -> Result<()> {
    const COUNT: u32 = 2000;
    for size in [60, 1514] {
        let receiver = start(&pair.b, &format!("receive {COUNT}"))?;
        // The receiver may lose some: it has fewer processors than there are frames.
        let to = &pair.b.setup().adapter.mac;
        let call = format!("vrnic_frames send {to} {} {size}", 20 * COUNT);
        let sent = pair.a.check(&call, LONG_TIMEOUT)?;
        let received = receiver.wait(SHORT_TIMEOUT)?;
        ensure!(received.ok(), "the receiver: {}", said(&received));
        let frames = format!("sent {} frames, {} bytes", 20 * COUNT, 20 * COUNT * size);
        ensure!(sent.starts_with(&frames), "{sent}");
        let frames = format!("received {COUNT} frames, ");
        ensure!(received.stdout.starts_with(&frames), "{}", said(&received));
    }
    Ok(())
}

/// Starts `vrnic_frames`, and waits until it can receive.
fn start(guest: &Guest, command: &str) -> Result<Running> {
    let program = guest.agent().start(&format!("exec vrnic_frames {command} 2>/tmp/frames"))?;
    settles(guest, "grep -q ready /tmp/frames", 20)?;
    guest.check("rm /tmp/frames", SHORT_TIMEOUT)?;
    Ok(program)
}

/// A sniffer sees the echo requests and replies of the guest's own network card, which still work.
fn sniffer(pair: &Pair) -> Result<()> {
    let program = start(&pair.b, &format!("sniff 40 > {SNIFFED}"))?;
    pair.a.check(&format!("ping -c 25 -i 0.05 {}", pair.b.ip()), SHORT_TIMEOUT)?;
    let output = program.wait(SHORT_TIMEOUT)?;
    ensure!(output.ok(), "the sniffer: {}", said(&output));
    let file = file(&pair.b)?;
    let count = frames(&file)?.len();
    ensure!(count == 40, "{count} frames");
    has_echoes(&file)
}

/// Removes the file of a sniffer from a guest, and returns its content.
fn file(guest: &Guest) -> Result<Vec<u8>> {
    let hex = guest.check(&format!("od -An -v -tx1 {SNIFFED}; rm {SNIFFED}"), SHORT_TIMEOUT)?;
    let bytes = hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16));
    Ok(bytes.collect::<Result<_, _>>()?)
}

/// Checks that a file has echo requests and replies: ICMP over IPv4, with the types 8 and 0.
fn has_echoes(file: &[u8]) -> Result<()> {
    let frames = frames(file)?;
    let echoes = |kind: u8| {
        let is = |frame: &&&[u8]| frame.get(23) == Some(&1) && frame.get(34) == Some(&kind);
        frames.iter().filter(is).count()
    };
    ensure!(echoes(8) >= 5 && echoes(0) >= 5, "{} requests, {} replies", echoes(8), echoes(0));
    Ok(())
}

/// Returns the frames of a pcap file.
fn frames(file: &[u8]) -> Result<Vec<&[u8]>> {
    let (header, mut rest) = file.split_at_checked(FILE_HEADER).context("no header")?;
    ensure!(header[..4] == 0xa1b2_c3d4_u32.to_ne_bytes(), "no pcap file");
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (record, more) = rest.split_at_checked(RECORD_HEADER).context("a record is cut off")?;
        let length = u32::from_ne_bytes(*record[8..].first_chunk().context("a length")?);
        let (frame, more) = more.split_at_checked(length as usize).context("a frame is cut off")?;
        frames.push(frame);
        rest = more;
    }
    Ok(frames)
}

/// libpcap, with which tcpdump captures, lists the RDMA device and captures its frames.
fn libpcap(pair: &Pair) -> Result<()> {
    let name = pair.b.check("basename /sys/class/infiniband/*", SHORT_TIMEOUT)?;
    let name = name.trim();
    let found = pair.b.check("/lab/findalldevstest 2>&1", SHORT_TIMEOUT)?;
    ensure!(found.contains(&format!("{name}\n\tDescription: RDMA sniffer")), "{found}");
    let program = format!("exec /lab/writecaptest -i {name} -w {SNIFFED}");
    let program = pair.b.agent().start(&program)?;
    has_queue_pair(&pair.b)?;
    pair.a.check(&format!("ping -c 25 -i 0.05 {}", pair.b.ip()), SHORT_TIMEOUT)?;
    // The program ends with what it has at an interrupt.
    pair.b.check("sleep 1; pkill -INT writecaptest", SHORT_TIMEOUT)?;
    let output = program.wait(SHORT_TIMEOUT)?;
    has_echoes(&file(&pair.b)?).with_context(|| said(&output))
}

/// A sniffer that is killed leaves nothing, and the network goes on.
fn killed(pair: &Pair) -> Result<()> {
    let program = start(&pair.b, "sniff 1000000 > /dev/null")?;
    pair.a.check(&format!("ping -c 5 -i 0.05 {}", pair.b.ip()), SHORT_TIMEOUT)?;
    stop(program)?;
    pair.a.check(&format!("ping -c 5 -i 0.05 {}", pair.b.ip()), SHORT_TIMEOUT).map(drop)
}

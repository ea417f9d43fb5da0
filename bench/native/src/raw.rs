//! Raw packets between two functions of a daemon: as many in flight as the queues hold, a doorbell
//! and a completion for each batch of sends. Each frame must arrive.

use std::hint::spin_loop;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use vrnic_abi::flow::Kind;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::{Flags, Opcode, SegmentSeg};
use vrnic_figures::{Quantity, Subject};
use vrnic_packet::ip::{Addresses, Header, Protocol};
use vrnic_packet::{EtherType, Ethernet, MacAddr, Writer};
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::rate::{Runs, await_batch};
use crate::report::Report;
use crate::rig::{LOG_WQES, Pair, Rig};

/// Lengths of frames in bytes.
const LENGTHS: [u32; 3] = [64, 1514, 9000];
/// Lengths of those with checksums.
const SUMMED: [u32; 2] = [64, 9000];
/// Bytes of a SEGMENT, and of the payload of each of its frames.
const SEGMENT: u32 = 64 << 10;
const MSS: u16 = 9000 - 54;
/// Number of sends of a batch.
const BATCH: u32 = 16;
/// Longest wait for a frame.
const LIMIT: Duration = Duration::from_secs(10);

/// A work request, and the frames that arrive for it.
struct Load {
    wr: Wr,
    /// Bytes of all frames.
    bytes: u32,
    /// Number of frames.
    frames: u32,
}

/// Measures frames of several lengths, with and without checksums, and SEGMENT.
///
/// # Errors
/// When an operation fails, or a frame is lost.
pub(crate) fn measure(
    report: &mut Report,
    daemon: &Path,
    pin: Option<usize>,
    runs: Runs,
) -> anyhow::Result<()> {
    let rig = Rig::start(daemon, 1, pin)?;
    let setup = Setup { kind: Type::RawPacket, ..Setup::default() };
    let mut pair = Pair::apart(&rig, setup);
    pair.a.ready_for_frames();
    pair.b.ready_for_frames();
    let added = pair.b.add_flow(&rule(Kind::AllDefault));
    ensure!(added.is_ok(), "the adapter refuses a flow rule");
    for len in LENGTHS {
        let load = plain(&pair, len);
        one(report, &mut pair, Subject::RawPackets(len), &load, runs)?;
    }
    for len in SUMMED {
        let load = summed(&pair, len)?;
        one(report, &mut pair, Subject::SummedPackets(len), &load, runs)?;
    }
    let load = segment(&pair)?;
    one(report, &mut pair, Subject::CutSegments(SEGMENT >> 10), &load, runs)
}

/// Measures one kind of work requests.
fn one(
    report: &mut Report,
    pair: &mut Pair,
    subject: Subject,
    load: &Load,
    runs: Runs,
) -> anyhow::Result<()> {
    report.beside_round_trips(|report| {
        let [rate] = runs.best(|span| Ok([run(pair, load, span)?]))?;
        report.figure(subject, Quantity::Millions, rate * f64::from(load.frames) / 1e6);
        report.figure(subject, Quantity::Gigabytes, rate * f64::from(load.bytes) / 1e9);
        Ok(())
    })
}

/// Makes one run of at least `span`. Returns the number of work requests per second.
fn run(pair: &mut Pair, load: &Load, span: Duration) -> anyhow::Result<f64> {
    let wqe = |flags| Wr { flags: load.wr.flags | flags, ..load.wr.clone() }.encode();
    let (plain, signaled) = (wqe(Flags::empty()), wqe(Flags::SIGNALED));
    let batch = (BATCH / load.frames).max(1);
    let (mut posted, mut done) = (0u32, 0u32);
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= span;
        while !over && (posted - done + batch) * load.frames <= 1 << LOG_WQES {
            for _ in 0..batch * load.frames {
                let place = pair.b.sge(0, 9216);
                pair.b.post_recv(1, &[place]);
            }
            for _ in 1..batch {
                pair.a.store_encoded(&plain);
            }
            pair.a.store_encoded(&signaled);
            pair.a.ring();
            posted += batch;
        }
        if posted == done {
            break;
        }
        await_batch(pair);
        for _ in 0..batch * load.frames {
            arrived(pair)?;
        }
        done += batch;
    }
    Ok(f64::from(done) / start.elapsed().as_secs_f64())
}

/// Waits for the next frame.
fn arrived(pair: &mut Pair) -> anyhow::Result<()> {
    let mut since = None;
    while !pair.b.recv_cq.ready() {
        spin_loop();
        let since: &mut Instant = since.get_or_insert_with(Instant::now);
        ensure!(since.elapsed() < LIMIT, "a frame was lost");
    }
    pair.b.recv_cq.poll_success();
    Ok(())
}

/// Returns the MACs of a frame from A to B.
fn ethernet(pair: &Pair) -> Ethernet {
    let Pair { a, b } = pair;
    Ethernet { destination: MacAddr(b.guest.mac()), source: MacAddr(a.guest.mac()), vlan: None }
}

/// Returns a SEND of a frame without IP.
fn plain(pair: &Pair, len: u32) -> Load {
    let Ethernet { destination, source, .. } = ethernet(pair);
    pair.a.fill(0, &[&destination.0[..], &source.0, &[0x88, 0xb5]].concat());
    let wr = Wr::new(Opcode::Send, &[pair.a.sge(0, len)]).flags(Flags::empty());
    Load { wr, bytes: len, frames: 1 }
}

/// Returns the headers of a frame of IPv4 with this many bytes after its IP header.
fn headers(pair: &Pair, protocol: Protocol, len: usize) -> anyhow::Result<Vec<u8>> {
    let addresses =
        Addresses::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() };
    let network = Header { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let mut bytes = [0; 34];
    let mut to = Writer::new(&mut bytes);
    let written = ethernet(pair).write(EtherType::IPV4, &mut to);
    let written = written.and_then(|()| network.write(protocol, len, 0, &mut to));
    ensure!(written.is_ok(), "the headers are too long");
    Ok(bytes.to_vec())
}

/// Returns a SEND of a UDP datagram, whose checksums the adapters compute and check.
fn summed(pair: &Pair, len: u32) -> anyhow::Result<Load> {
    // CAST: frames are short.
    let udp = (len - 34) as u16;
    let mut frame = headers(pair, Protocol::UDP, udp.into())?;
    frame.extend([0, 7, 0, 7]);
    frame.extend(udp.to_be_bytes());
    frame.extend([0; 2]);
    pair.a.fill(0, &frame);
    let wr = Wr::new(Opcode::Send, &[pair.a.sge(0, len)]).flags(Flags::IP_CSUM);
    Ok(Load { wr, bytes: len, frames: 1 })
}

/// Returns a load of SEGMENTs.
fn segment(pair: &Pair) -> anyhow::Result<Load> {
    let mut head = headers(pair, Protocol::TCP, 20)?;
    head.extend([0, 7, 0, 7, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    // CAST: they are 54 bytes.
    let len = head.len() as u16;
    let seg = SegmentSeg { mss: MSS.into(), header_len: len.into(), reserved: [0; 12] };
    let mut body = [seg.as_bytes(), &head].concat();
    body.resize(body.len().next_multiple_of(16), 0);
    let payload = SEGMENT - u32::from(len);
    let frames = payload.div_ceil(MSS.into());
    let bytes = payload + frames * u32::from(len);
    let wr = Wr::new(Opcode::Segment, &[pair.a.sge(0, payload)]).flags(Flags::empty()).body(&body);
    Ok(Load { wr, bytes, frames })
}

//! Work queues, and QPs of raw packets that spread frames over them.
//!
//! Shows: raw

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::env::End;
use crate::suite::fixture::frame::{PROTOCOL_TCP, Packet, Station};
use crate::suite::fixture::raw::RawSide;
use crate::suite::fixture::region::Region;
use crate::suite::fixture::{Env, expect_errno};
use vrnic_verbs::model::flow::Ipv4;
use vrnic_verbs::model::rss::{fields, wq_state};
use vrnic_verbs::model::{
    FlowAttr, Hash, RecvWr, Spec, Status, Wc, WqAttr, WqChange, access, qp_type,
};

/// An address that no station has, from which the packets of these cases come.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 99, 7, 7);
/// Receives of a work queue, and bytes of each.
const RECEIVES: u64 = 64;
const BUFFER_LEN: u64 = 512;
/// log2 of the number of entries of most tables here.
const LOG_ENTRIES: u32 = 3;
/// Time in milliseconds for a frame to arrive, and for which a case checks that none does.
const TIMEOUT_MS: u64 = 10_000;
const QUIET_MS: u64 = 200;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("raw/spread_by_a_hash", spread),
        Case::new("raw/states_of_work_queues", states),
        Case::new("raw/work_queues_in_use", in_use),
        Case::new("raw/refused_work_queues", refused),
        Case::new("raw/spreading_without_the_right", without_right),
    ]
}

fn key() -> Vec<u8> {
    (0..40u8).map(|at| at.wrapping_mul(201) ^ 0x3c).collect()
}

fn hash() -> Hash {
    let fields = fields::IPV4 | fields::TCP | fields::UDP;
    Hash { function: Hash::TOEPLITZ, fields, key: key() }
}

/// Returns the Toeplitz hash of the addresses and ports of a packet, a bit at a time.
fn hash_of(packet: &Packet) -> u32 {
    let [from, to] = packet.ports.map(u16::to_be_bytes);
    let (source, destination) = (packet.from.ip.octets(), packet.to.ip.octets());
    let input = [&source[..], &destination, &from, &to].concat();
    let key = key();
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let mut hash = 0;
    for at in (0..8 * input.len()).filter(|at| bit(&input, *at) == 1) {
        hash ^= (at..at + 32).fold(0, |word, at| word << 1 | bit(&key, at));
    }
    hash
}

/// A work queue with a CQ of its own.
struct Queue {
    end: End,
    wq: u32,
    number: u32,
    cq: u32,
    inbox: Region,
}

impl Queue {
    /// Creates a work queue.
    fn new(end: &End, pd: u32) -> Result<Self> {
        let cq = end.agent.create_cq(128, None, 0)?.cq;
        let attr = WqAttr { max_wr: u32::try_from(RECEIVES)?, ..WqAttr::default() };
        let made = end.agent.create_wq(pd, cq, attr)?;
        ensure!(u64::from(made.max_wr) >= RECEIVES, "{made:?}");
        let inbox = Region::new(end, pd, RECEIVES * BUFFER_LEN, 0, access::ALL)?;
        Ok(Self { end: end.clone(), wq: made.wq, number: made.number, cq, inbox })
    }

    fn to(&self, state: u32) -> Result<()> {
        let change = WqChange { state: Some(state), ..WqChange::default() };
        Ok(self.end.agent.modify_wq(self.wq, change)?)
    }

    /// Makes it ready, and posts all of its receives.
    fn open(&self) -> Result<()> {
        self.to(wq_state::READY)?;
        for slot in 0..RECEIVES {
            ensure!(self.post(slot)?, "receive {slot} was refused");
        }
        Ok(())
    }

    /// Posts a receive. Returns whether it was taken.
    fn post(&self, slot: u64) -> Result<bool> {
        let sges = vec![self.inbox.part(slot * BUFFER_LEN, BUFFER_LEN)];
        let posted = self.end.agent.post_wq_recv(self.wq, vec![RecvWr { wr_id: slot, sges }])?;
        Ok(posted.refused.is_none())
    }

    fn poll(&self, count: usize, timeout_ms: u64) -> Result<Vec<Wc>> {
        Ok(self.end.agent.poll(self.cq, count, timeout_ms)?)
    }

    /// Fails unless these frames arrive next, in order, and nothing else. The first of them uses
    /// this receive.
    fn expect(&self, first: u64, frames: &[Vec<u8>]) -> Result<()> {
        let done = self.poll(frames.len(), TIMEOUT_MS)?;
        ensure!(done.len() == frames.len(), "{} frames, not {}", done.len(), frames.len());
        let more = self.poll(1, QUIET_MS)?;
        ensure!(more.is_empty(), "one more: {more:?}");
        for ((slot, wc), frame) in (first..).zip(&done).zip(frames) {
            ensure!(wc.status == Status::Success as u32 && wc.wr_id == slot, "{wc:?}");
            ensure!(wc.qpn == self.number, "{wc:?} of work queue {}", self.number);
            let length = wc.byte_len.into();
            let found = self.end.agent.read(self.inbox.buffer, slot * BUFFER_LEN, length)?;
            ensure!(found == *frame, "receive {slot}: {found:x?}, not {frame:x?}");
        }
        Ok(())
    }
}

/// A QP that spreads frames over work queues, with a flow for the packets of these cases.
struct Rig {
    queues: Vec<Queue>,
    pd: u32,
    table: u32,
    qp: u32,
    flow: u32,
}

impl Rig {
    fn new(end: &End, count: usize) -> Result<Self> {
        let agent = &end.agent;
        let pd = agent.alloc_pd()?;
        let queues: Vec<_> = (0..count).map(|_| Queue::new(end, pd)).collect::<Result<_>>()?;
        let numbers = queues.iter().map(|queue| queue.wq).collect();
        let table = agent.create_wq_table(LOG_ENTRIES, numbers)?;
        let qp = agent.create_spreading_qp(pd, table, qp_type::RAW_PACKET, hash())?.qp;
        let value = Ipv4 { source: SOURCE.octets(), ..Ipv4::default() };
        let mask = Ipv4 { source: [0xff; 4], ..Ipv4::default() };
        let specs = vec![Spec::ipv4_addresses(value, mask)];
        let flow = agent.create_flow(qp, FlowAttr { specs, ..FlowAttr::default() })?;
        Ok(Self { queues, pd, table, qp, flow })
    }

    /// Returns the work queue of a packet.
    fn queue_of(&self, packet: &Packet) -> usize {
        (hash_of(packet) as usize % (1 << LOG_ENTRIES)) % self.queues.len()
    }
}

/// Returns packets with different ports.
fn packets(from: &RawSide, to: &End) -> Result<Vec<Packet>> {
    let from = Station { ip: SOURCE, ..from.station };
    let to = Station::of(to)?;
    Ok((0..96u16)
        .map(|nth| {
            let packet = Packet::udp(from, to, [1000 + 37 * nth, 4000 + nth % 7]);
            if nth % 3 == 0 { Packet { protocol: PROTOCOL_TCP, ..packet } } else { packet }
        })
        .collect())
}

/// Each frame reaches the work queue that a Toeplitz hash in software selects, in order.
fn spread(env: &Env) -> Result<()> {
    let a = RawSide::new(&env.a)?;
    let rig = Rig::new(&env.b, 4)?;
    rig.queues.iter().try_for_each(Queue::open)?;
    let mut wanted = vec![Vec::new(); rig.queues.len()];
    for packet in packets(&a, &env.b)? {
        let frame = packet.checked(b"some payload");
        a.send(&frame)?;
        wanted[rig.queue_of(&packet)].push(frame);
    }
    ensure!(wanted.iter().all(|frames| frames.len() > 8), "the hash selects few work queues");
    for (queue, frames) in rig.queues.iter().zip(&wanted) {
        queue.expect(0, frames)?;
    }
    // Without the flow, nothing comes any more.
    env.b.agent.destroy_flow(rig.flow)?;
    let packet = packets(&a, &env.b)?[0];
    a.send(&packet.checked(b"late"))?;
    rig.queues[rig.queue_of(&packet)].expect(0, &[])
}

/// Only a work queue that is ready receives. Receives are flushed by the error state.
fn states(env: &Env) -> Result<()> {
    let a = RawSide::new(&env.a)?;
    let rig = Rig::new(&env.b, 1)?;
    let [queue] = &rig.queues[..] else { anyhow::bail!("one work queue") };
    let agent = &env.b.agent;
    let packet = packets(&a, &env.b)?[1];
    let frame = packet.checked(b"payload");
    ensure!(!queue.post(0)?, "a receive was taken in the state RESET");
    let change = |current, state| {
        let change = WqChange { state: Some(state), current: Some(current), flags: None };
        agent.modify_wq(queue.wq, change)
    };
    let wrong = change(wq_state::READY, wq_state::READY);
    expect_errno("another present state", wrong, Errno::INVAL)?;
    let flags = WqChange { flags: Some(1), ..WqChange::default() };
    expect_errno("flags", agent.modify_wq(queue.wq, flags), Errno::OPNOTSUPP)?;
    a.send(&frame)?;
    change(wq_state::RESET, wq_state::READY)?;
    ensure!(queue.post(0)? && queue.post(1)? && queue.post(2)?, "a receive was refused");
    queue.expect(0, &[])?;
    a.send(&frame)?;
    queue.expect(0, std::slice::from_ref(&frame))?;
    queue.to(wq_state::READY)?;
    change(wq_state::READY, wq_state::ERROR)?;
    let flushed = queue.poll(2, TIMEOUT_MS)?;
    let are_flushed = flushed.iter().all(|wc| wc.status == Status::WrFlushErr as u32);
    ensure!(flushed.len() == 2 && are_flushed, "{flushed:?}");
    let again = change(wq_state::ERROR, wq_state::READY);
    expect_errno("from ERR to RDY", again, Errno::INVAL)?;
    a.send(&frame)?;
    queue.expect(0, &[])?;
    queue.to(wq_state::RESET)?;
    queue.open()?;
    a.send(&frame)?;
    queue.expect(0, &[frame])
}

/// A CQ, PD, work queue, table or QP that is in use is not destroyed.
fn in_use(env: &Env) -> Result<()> {
    let agent = &env.b.agent;
    let rig = Rig::new(&env.b, 2)?;
    let busy = Errno::BUSY;
    let queue = &rig.queues[1];
    expect_errno("CQ", agent.destroy_cq(queue.cq), busy)?;
    expect_errno("PD", agent.dealloc_pd(rig.pd), busy)?;
    expect_errno("work queue", agent.destroy_wq(queue.wq), busy)?;
    expect_errno("table", agent.destroy_wq_table(rig.table), busy)?;
    expect_errno("QP", agent.destroy_qp(rig.qp), busy)?;
    agent.destroy_flow(rig.flow)?;
    agent.destroy_qp(rig.qp)?;
    expect_errno("work queue of a table without a QP", agent.destroy_wq(queue.wq), busy)?;
    agent.destroy_wq_table(rig.table)?;
    for queue in &rig.queues {
        agent.destroy_wq(queue.wq)?;
        agent.destroy_cq(queue.cq)?;
        queue.inbox.deregister()?;
    }
    Ok(agent.dealloc_pd(rig.pd)?)
}

/// Refused calls change nothing: the objects can be used and destroyed afterwards.
fn refused(env: &Env) -> Result<()> {
    let agent = &env.b.agent;
    let (pd, other_pd) = (agent.alloc_pd()?, agent.alloc_pd()?);
    let queue = Queue::new(&env.b, pd)?;
    let (invalid, missing) = (Errno::INVAL, Errno::OPNOTSUPP);
    let good = WqAttr::default();
    for (what, attr, errno) in [
        ("another type", WqAttr { kind: 1, ..good }, invalid),
        ("no room", WqAttr { max_wr: 0, ..good }, invalid),
        ("much room", WqAttr { max_wr: u32::MAX, ..good }, invalid),
        ("many segments", WqAttr { max_sge: 1000, ..good }, invalid),
        ("VLAN stripping", WqAttr { flags: 1, ..good }, missing),
        ("delayed drops", WqAttr { flags: 1 << 2, ..good }, missing),
    ] {
        expect_errno(what, agent.create_wq(pd, queue.cq, attr), errno)?;
    }
    for log_entries in [8, 13, 31, u32::MAX] {
        let table = agent.create_wq_table(log_entries, vec![queue.wq]);
        expect_errno("a large table", table, invalid).with_context(|| log_entries.to_string())?;
    }
    let table = agent.create_wq_table(7, vec![queue.wq])?;
    let raw = qp_type::RAW_PACKET;
    let create = |pd, kind, hash| agent.create_spreading_qp(pd, table, kind, hash);
    for (what, pd, kind, hash, errno) in [
        ("datagrams", pd, qp_type::UD, hash(), missing),
        ("no function", pd, raw, Hash { function: 0, ..hash() }, missing),
        ("another function", pd, raw, Hash { function: 2, ..hash() }, missing),
        ("a short key", pd, raw, Hash { key: vec![1; 39], ..hash() }, invalid),
        ("a long key", pd, raw, Hash { key: vec![1; 41], ..hash() }, invalid),
        ("IPsec", pd, raw, Hash { fields: fields::IPSEC, ..hash() }, missing),
        ("unknown fields", pd, raw, Hash { fields: 1 << 40, ..hash() }, missing),
        ("another PD", other_pd, raw, hash(), invalid),
    ] {
        expect_errno(what, create(pd, kind, hash), errno)?;
    }
    let qp = create(pd, raw, hash())?;
    agent.destroy_qp(qp.qp)?;
    agent.destroy_wq_table(table)?;
    Ok(agent.destroy_wq(queue.wq)?)
}

/// A process needs the right to use raw packets (CAP_NET_RAW) for a QP that spreads them.
fn without_right(env: &Env) -> Result<()> {
    let end = env.another_a()?;
    let pd = end.agent.alloc_pd()?;
    let queue = Queue::new(&end, pd)?;
    let table = end.agent.create_wq_table(0, vec![queue.wq])?;
    end.agent.renounce_raw_packets()?;
    let made = end.agent.create_spreading_qp(pd, table, qp_type::RAW_PACKET, hash());
    expect_errno("a QP that spreads", made, Errno::PERM)
}

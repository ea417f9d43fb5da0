//! Direct transfers (docs/direct.md) with the functions of the crate `vrnicdv`: the program moves
//! bytes of device memory itself, and reports the end with its range or with a mark. Other devices
//! fail these cases.
//!
//! Shows: direct

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rustix::io::Errno;
use vrnic_verbs::model::{Op, Sge, Status, access};
use vrnic_verbs::prng::generate;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side, expect_errno};

/// Bytes of a transfer.
const LEN: u32 = 100_000;
/// Time limit of a transfer in milliseconds.
const LIMIT: u32 = 30_000;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("direct/transfer/range", by_range),
        Case::new("direct/transfer/mark", by_marks),
        Case::new("direct/transfer/refused", refused),
    ]
}

/// Device memory of one side.
struct Packet<'a> {
    side: &'a Side,
    dm: u32,
    lkey: u32,
}

impl<'a> Packet<'a> {
    fn new(side: &'a Side) -> Result<Self> {
        let dm = side.end.agent.alloc_dm(LEN.into(), 0)?;
        let rights = access::ALL | access::ZERO_BASED;
        let lkey = side.end.agent.reg_dm(side.pd, dm, 0, LEN.into(), rights)?.lkey;
        Ok(Self { side, dm, lkey })
    }

    /// Posts a WRITE or READ of all of the memory.
    fn post(&self, op: Op, wr_id: u64, far: &Region) -> Result<()> {
        let all = Sge { addr: 0, length: LEN, lkey: self.lkey };
        self.side.post(&[Side::request(op, wr_id, &[all]).at(far.addr, far.rkey)])
    }

    fn fill(&self, seed: u64) -> Result<()> {
        let mut bytes = vec![0; LEN as usize];
        generate(seed, 0, &mut bytes);
        Ok(self.side.end.agent.write_dm(self.dm, 0, bytes)?)
    }

    fn check(&self, seed: u64) -> Result<()> {
        let mut want = vec![0; LEN as usize];
        generate(seed, 0, &mut want);
        let found = self.side.end.agent.read_dm(self.dm, 0, LEN.into())?;
        ensure!(found == want, "device memory differs");
        Ok(())
    }
}

/// Data that the program has stored leave when the range is done. Data of a READ can be loaded.
fn by_range(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (packet, far) = (Packet::new(&a)?, b.region(LEN.into(), 0)?);
    let agent = &a.end.agent;
    let range = agent.alloc_range(a.qp)?;
    for seed in 1..4 {
        agent.arm_range(range, packet.dm, LEN, LIMIT, true)?;
        agent.post_transfer(range, 1)?;
        packet.post(Op::Write, 2, &far)?;
        packet.fill(seed)?;
        opens(&a, range)?;
        agent.range_done(range)?;
        a.expect_sent(1, Status::Success)?;
        a.expect_sent(2, Status::Success)?;
        far.check(seed)?;
        far.fill(seed + 10)?;
        agent.arm_range(range, packet.dm, LEN, LIMIT, false)?;
        packet.post(Op::Read, 3, &far)?;
        agent.post_transfer(range, 4)?;
        a.expect_sent(3, Status::Success)?;
        opens(&a, range)?;
        packet.check(seed + 10)?;
        agent.range_done(range)?;
        a.expect_sent(4, Status::Success)?;
    }
    Ok(agent.free_range(range)?)
}

/// Waits for some seconds until the adapter has begun the transfer of a range.
fn opens(side: &Side, range: u32) -> Result<()> {
    for _ in 0..500 {
        match side.end.agent.query_range(range)? {
            (0, 1, 0, 0) => return Ok(()),
            // The data of a READ has arrived, and its TRANSFER has not been executed yet.
            (0, 0, 0 | 1, 0) => sleep(Duration::from_millis(10)),
            other => bail!("the range has the state {other:?}"),
        }
    }
    bail!("the range does not open")
}

/// The same with marks, which may be stored before their AWAIT.
fn by_marks(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (packet, far) = (Packet::new(&a)?, b.region(LEN.into(), 0)?);
    let agent = &a.end.agent;
    for (seed, word, first) in [(1, 0, false), (2, 13, true), (3, 0, true)] {
        let data = u64::from(seed);
        packet.fill(data)?;
        let mark = || agent.mark(a.qp, word, seed, false);
        if first {
            mark()?;
        }
        agent.post_await(a.qp, 1, word, seed, LIMIT)?;
        packet.post(Op::Write, 2, &far)?;
        if !first {
            mark()?;
        }
        a.expect_sent(1, Status::Success)?;
        a.expect_sent(2, Status::Success)?;
        far.check(data)?;
        far.fill(data + 10)?;
        packet.post(Op::Read, 3, &far)?;
        agent.post_await(a.qp, 4, word, seed + 100, LIMIT)?;
        a.expect_sent(3, Status::Success)?;
        packet.check(data + 10)?;
        agent.mark(a.qp, word, seed + 100, false)?;
        a.expect_sent(4, Status::Success)?;
    }
    Ok(())
}

/// Calls that the functions refuse, and a transfer that fails.
fn refused(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (packet, far) = (Packet::new(&a)?, b.region(LEN.into(), 0)?);
    let agent = &a.end.agent;
    let range = agent.alloc_range(a.qp)?;
    let arm = |length, limit| agent.arm_range(range, packet.dm, length, limit, true);
    expect_errno("more than the memory", arm(LEN + 1, LIMIT), Errno::INVAL)?;
    expect_errno("no time", arm(LEN, 0), Errno::INVAL)?;
    arm(LEN, LIMIT)?;
    expect_errno("a second transfer", arm(LEN, LIMIT), Errno::BUSY)?;
    agent.free_range(range)?;
    let wait = |word, mark, limit| agent.post_await(a.qp, 1, word, mark, limit);
    expect_errno("a word that is not there", wait(14, 1, LIMIT), Errno::INVAL)?;
    expect_errno("no mark", wait(0, 0, LIMIT), Errno::INVAL)?;
    expect_errno("no time", wait(0, 1, 0), Errno::INVAL)?;
    expect_errno("a word that is not there", agent.mark(a.qp, 14, 1, false), Errno::INVAL)?;
    far.fill(9)?;
    wait(0, 1, LIMIT)?;
    packet.post(Op::Write, 2, &far)?;
    agent.mark(a.qp, 0, 1, true)?;
    a.expect_sent(1, Status::MwBindErr)?;
    a.expect_sent(2, Status::WrFlushErr)?;
    far.check(9)
}

//! Memory of the device: as the source and target of operations, its bounds, and its end.
//!
//! Shows: direct

use std::ops::Range;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_errno};
use vrnic_verbs::model::{Op, Sge, Status, access};
use vrnic_verbs::prng::generate;

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("device_memory/operations", operations),
        Case::new("device_memory/atomics", atomics),
        Case::new("device_memory/bounds", bounds),
        Case::new("device_memory/in_use", in_use),
        Case::new("device_memory/zeroed", zeroed),
        Case::new("device_memory/exhausted", exhausted),
    ]
}

/// Regions of device memory are zero-based.
const ALL: u32 = access::ALL | access::ZERO_BASED;

/// Device memory with a region, which begins at `offset` and contains all the rest.
struct Memory<'a> {
    side: &'a Side,
    dm: u32,
    offset: u64,
    lkey: u32,
    rkey: u32,
}

impl<'a> Memory<'a> {
    fn new(side: &'a Side, length: u64, offset: u64) -> Result<Self> {
        let agent = &side.end.agent;
        let dm = agent.alloc_dm(length, 0)?;
        let mr = agent.reg_dm(side.pd, dm, offset, length - offset, ALL)?;
        Ok(Self { side, dm, offset, lkey: mr.lkey, rkey: mr.rkey })
    }

    /// Returns a part of the region as a segment.
    fn part(&self, addr: u64, length: u64) -> Sge {
        Sge { addr, length: length as u32, lkey: self.lkey }
    }

    /// Returns the words of the memory that contain a part of the region: the offset of the first
    /// word, their bytes, and the place of the part in them. Copies consist of whole words.
    fn words(&self, at: u64, length: usize) -> Result<(u64, Vec<u8>, Range<usize>)> {
        let start = self.offset + at;
        let first = start & !3;
        let before = (start - first) as usize;
        let all = (before + length).next_multiple_of(4);
        let bytes = self.side.end.agent.read_dm(self.dm, first, all as u64)?;
        Ok((first, bytes, before..before + length))
    }

    /// Fills a part of the region.
    fn fill(&self, at: u64, length: usize, seed: u64) -> Result<()> {
        let (first, mut bytes, part) = self.words(at, length)?;
        generate(seed, 0, &mut bytes[part]);
        Ok(self.side.end.agent.write_dm(self.dm, first, bytes)?)
    }

    /// Compares a part of the region.
    fn check(&self, at: u64, length: usize, seed: u64) -> Result<()> {
        let mut want = vec![0; length];
        generate(seed, 0, &mut want);
        let (_, bytes, part) = self.words(at, length)?;
        ensure!(bytes[part] == want, "device memory at {at:#x}+{length:#x} differs");
        Ok(())
    }

    fn word(&self, at: u64) -> Result<u64> {
        let bytes = self.side.end.agent.read_dm(self.dm, self.offset + at, 8)?;
        Ok(u64::from_le_bytes(bytes.as_slice().try_into()?))
    }
}

/// Operations between device memories, and between device memory and ordinary memory.
fn operations(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    for (length, offset, at) in [(1, 0, 0), (4096, 100, 1), (300_001, 4095, 77)] {
        let (near, far) =
            (Memory::new(&a, 400_000, offset)?, Memory::new(&b, 400_000, offset / 2)?);
        let (ram, len) = (a.region(length, 0)?, length as usize);
        near.fill(at, len, 1)?;
        let own = near.part(at, length);
        a.run(Side::request(Op::Write, 1, &[own]).at(5, far.rkey), Status::Success)?;
        far.check(5, len, 1)?;
        far.fill(5, len, 2)?;
        a.run(Side::request(Op::Read, 2, &[own]).at(5, far.rkey), Status::Success)?;
        near.check(at, len, 2)?;
        a.run(Side::request(Op::Read, 3, &[ram.sge()]).at(5, far.rkey), Status::Success)?;
        ram.check(2)?;
        ram.fill(3)?;
        a.send(&b, &[ram.sge()], &[far.part(9, length)])?;
        far.check(9, len, 3)?;
    }
    Ok(())
}

fn atomics(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let (near, far) = (Memory::new(&a, 64, 0)?, Memory::new(&b, 64, 0)?);
    b.end.agent.write_dm(far.dm, 8, 40u64.to_le_bytes().to_vec())?;
    for (op, compare_add, swap, before, after) in
        [(Op::FetchAdd, 2, 0, 40, 42), (Op::CmpSwp, 42, 7, 42, 7), (Op::CmpSwp, 42, 9, 7, 7)]
    {
        let mut request = Side::request(op, 1, &[near.part(16, 8)]).at(8, far.rkey);
        (request.compare_add, request.swap) = (compare_add, swap);
        a.run(request, Status::Success)?;
        let (fetched, now) = (near.word(16)?, far.word(8)?);
        ensure!((fetched, now) == (before, after), "fetched {fetched}, and there is {now}");
    }
    Ok(())
}

fn bounds(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::impatient())?;
    let agent = &b.end.agent;
    let largest = agent.most_device_memory()?;
    ensure!(largest > 0, "the device has no memory");
    expect_errno("no bytes", agent.alloc_dm(0, 0), Errno::INVAL)?;
    expect_errno("too many bytes", agent.alloc_dm(largest + 1, 0), Errno::NOMEM)?;
    expect_errno("as many as there are numbers", agent.alloc_dm(u64::MAX, 0), Errno::NOMEM)?;
    expect_errno("too large an alignment", agent.alloc_dm(4096, 40), Errno::INVAL)?;
    let far = Memory::new(&b, 5000, 0)?;
    let register = |offset, length, access| agent.reg_dm(b.pd, far.dm, offset, length, access);
    expect_errno("a region beyond the end", register(4000, 1001, ALL), Errno::INVAL)?;
    expect_errno("a region that wraps", register(8, u64::MAX - 4, ALL), Errno::INVAL)?;
    expect_errno("one not from zero on", register(0, 8, access::ALL), Errno::INVAL)?;
    agent.write_dm(far.dm, 4996, vec![1; 4])?;
    // The mapping consists of whole pages, the memory does not. Copies consist of whole words.
    for (what, offset, length) in [
        ("a copy beyond the end", 4996, 8),
        ("one from the end on", 5000, 4),
        ("one beyond the mapping", 8192, 4),
        ("one that wraps", u64::MAX - 3, 8),
        ("one of half a word", 8, 2),
        ("one across two words", 2, 4),
    ] {
        let bytes = vec![1; length];
        expect_errno(what, agent.write_dm(far.dm, offset, bytes), Errno::INVAL)?;
        expect_errno(what, agent.read_dm(far.dm, offset, length as u64), Errno::INVAL)?;
    }
    // Memory of the last page after the region's last byte cannot be reached by the peer.
    let near = a.region(8, 0)?;
    a.run(Side::request(Op::Write, 1, &[near.sge()]).at(4993, far.rkey), Status::RemAccessErr)?;
    Ok(())
}

/// Memory with a region cannot be freed.
fn in_use(env: &Env) -> Result<()> {
    let a = Side::new(&env.a, &Options::default())?;
    let agent = &a.end.agent;
    let dm = agent.alloc_dm(4096, 12)?;
    let mr = agent.reg_dm(a.pd, dm, 0, 4096, ALL)?;
    expect_errno("memory with a region", agent.free_dm(dm), Errno::BUSY)?;
    agent.write_dm(dm, 0, vec![7; 8])?;
    agent.dereg_mr(mr.mr)?;
    Ok(agent.free_dm(dm)?)
}

/// New memory does not contain bytes of another process.
fn zeroed(env: &Env) -> Result<()> {
    let length = env.a.agent.most_device_memory()? / 2;
    for _ in 0..3 {
        let other = env.another_a()?;
        for agent in [&env.a.agent, &other.agent] {
            let dm = agent.alloc_dm(length, 0)?;
            for at in [0, length / 2, length - 4096] {
                let found = agent.read_dm(dm, at, 4096)?;
                ensure!(found.iter().all(|byte| *byte == 0), "memory is not zero at {at:#x}");
                agent.write_dm(dm, at, vec![0xee; 4096])?;
            }
            agent.free_dm(dm)?;
        }
    }
    Ok(())
}

/// All of the memory can be allocated, but no more, and all of it again.
fn exhausted(env: &Env) -> Result<()> {
    let agent = &env.a.agent;
    let part = agent.most_device_memory()? / 4;
    for _ in 0..2 {
        let parts = (0..4).map(|_| agent.alloc_dm(part, 0)).collect::<Result<Vec<_>, _>>()?;
        expect_errno("one page more", agent.alloc_dm(4096, 0), Errno::NOMEM)?;
        parts.into_iter().try_for_each(|dm| agent.free_dm(dm))?;
    }
    Ok(())
}

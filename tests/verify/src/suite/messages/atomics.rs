//! Compare-and-swap, fetch-and-add, and atomic write.
//!
//! Shows: data

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::flush::{FLUSHABLE, fails};
use crate::rpc::values::Stream;
use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Region, Side};
use vrnic_verbs::model::{Op, SendWr, Status, access};

pub(in crate::suite) fn cases() -> Vec<Case> {
    vec![
        Case::new("atomics/fetch_add", fetch_add),
        Case::new("atomics/cmp_swp", cmp_swp),
        Case::new("atomics/fetch_add_of_two_peers", fetch_add_contended),
        Case::new("atomics/cmp_swp_of_two_peers", cmp_swp_contended),
        Case::new("atomics/fetch_add_against_processor", against_processor),
        Case::new("atomics/atomic_write", atomic_write),
        Case::new("atomics/atomic_write_refused", atomic_write_refused),
    ]
}

/// Runs one atomic and returns the fetched value.
fn one(
    link: &Link,
    (near, far): (&Region, &Region),
    op: Op,
    compare_add: u64,
    swap: u64,
) -> Result<u64> {
    near.set_word(0, 0xbad_bad_bad)?;
    let mut request = Side::request(op, 70, &[near.part(0, 8)]).at(far.addr + 8, far.rkey);
    (request.compare_add, request.swap) = (compare_add, swap);
    let wc = link.a.run(request, Status::Success)?;
    ensure!(wc.opcode == op.wc_opcode(), "opcode {}", wc.opcode);
    ensure!(wc.byte_len == 8, "byte_len {}", wc.byte_len);
    near.word(0)
}

fn expect_words(far: &Region, want: u64) -> Result<()> {
    let (before, word, behind) = (far.word(0)?, far.word(8)?, far.word(16)?);
    ensure!(word == want, "the word is {word:#x}, not {want:#x}");
    ensure!(before == 1 && behind == 2, "a neighbour changed: {before:#x}, {behind:#x}");
    Ok(())
}

fn regions(link: &Link) -> Result<(Region, Region)> {
    let (near, far) = (link.a.region(8, 0)?, link.b.region(24, 0)?);
    far.set_word(0, 1)?;
    far.set_word(16, 2)?;
    Ok((near, far))
}

fn fetch_add(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let (near, far) = regions(&link)?;
    for (start, add) in
        [(0, 1), (5, 0), (u64::MAX, 1), (u64::from(u32::MAX), 1), (7, u64::MAX), (1 << 63, 1 << 63)]
    {
        far.set_word(8, start)?;
        let fetched = one(&link, (&near, &far), Op::FetchAdd, add, 0)?;
        ensure!(fetched == start, "fetched {fetched:#x}, not {start:#x}");
        expect_words(&far, start.wrapping_add(add))?;
    }
    Ok(())
}

fn cmp_swp(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let (near, far) = regions(&link)?;
    let (value, other) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
    for (compare, want) in [(value, other), (value ^ 1, value), (value ^ (1 << 63), value)] {
        far.set_word(8, value)?;
        let fetched = one(&link, (&near, &far), Op::CmpSwp, compare, other)?;
        ensure!(fetched == value, "fetched {fetched:#x}, not {value:#x}");
        expect_words(&far, want)?;
    }
    Ok(())
}

/// Stores a word, which the peer gets after the bytes of a WRITE before it.
///
/// Shows: data: atomic writes of 8 bytes
fn atomic_write(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let (near, far) = regions(&link)?;
    for value in [0x0123_4567_89ab_cdef, 0, u64::MAX] {
        near.set_word(0, value)?;
        let request = Side::request(Op::AtomicWrite, 70, &[near.part(0, 8)]);
        let wc = link.a.run(request.at(far.addr + 8, far.rkey), Status::Success)?;
        ensure!(wc.opcode == Op::AtomicWrite.wc_opcode(), "opcode {}", wc.opcode);
        expect_words(&far, value)?;
    }
    link.prove()
}

/// Returns an ATOMIC WRITE of the first word to this place.
fn word(near: &Region, addr: u64, rkey: u32) -> SendWr {
    Side::request(Op::AtomicWrite, 70, &[near.part(0, 8)]).at(addr, rkey)
}

fn atomic_write_refused(env: &Env) -> Result<()> {
    let (all, no_write) = (FLUSHABLE, FLUSHABLE & !access::REMOTE_WRITE);
    fails(env, all, |near, far, _| word(near, far.addr + 4, far.rkey), Status::RemInvReqErr)?;
    fails(env, all, |near, far, _| word(near, far.addr, !far.rkey), Status::RemAccessErr)?;
    fails(env, all, |near, far, _| word(near, far.addr + 64, far.rkey), Status::RemAccessErr)?;
    fails(env, all, |near, _, plain| word(near, plain.addr, plain.rkey), Status::RemAccessErr)?;
    fails(env, no_write, |near, far, _| word(near, far.addr, far.rkey), Status::RemInvReqErr)
}

/// Returns a stream of `side` that adds 3 to the word of `far`, and the buffer of its results.
fn adding(side: &Side, far: &Region, count: u64) -> Result<(Stream, u32)> {
    let near = side.region(16 * 8, 0)?;
    let request = Side::request(Op::FetchAdd, 0, &[near.part(0, 8)]).at(far.addr, far.rkey);
    let stream = side.stream(SendWr { compare_add: 3, ..request }, count, 16);
    Ok((Stream { step: 8, ..stream }, near.buffer))
}

/// Returns a second connection, from another process at end a to a QP of `b`'s PD.
fn second_link(env: &Env, first: &Link) -> Result<Link> {
    let a = Side::new(&env.another_a()?, &Options::default())?;
    let b = Side::within(&env.b, first.b.pd, &Options::default())?;
    Link::of(a, b)
}

/// Two QPs add to one word: no addition is lost, and no value is fetched twice.
fn fetch_add_contended(env: &Env) -> Result<()> {
    let one = Link::new(env, &Options::default())?;
    let two = second_link(env, &one)?;
    let far = one.b.region(8, 0)?;
    let count = 2000;
    let (first, second) = (adding(&one.a, &far, count)?, adding(&two.a, &far, count)?);
    let first = one.a.end.agent.begin().fetch_add_many(first.0, first.1)?;
    let second = two.a.end.agent.begin().fetch_add_many(second.0, second.1)?;
    let (first, second) = (first.finish()?, second.finish()?);
    for fetched in [&first, &second] {
        ensure!(fetched.is_sorted(), "a peer's fetched values go down");
    }
    let all: BTreeSet<_> = first.iter().chain(&second).copied().collect();
    let want: BTreeSet<_> = (0..2 * count).map(|i| 3 * i).collect();
    ensure!(all == want, "{} different values of {}", all.len(), 2 * count);
    ensure!(far.word(0)? == 6 * count, "the word is {}", far.word(0)?);
    Ok(())
}

/// Two QPs increment one word by compare-and-swap: the word is the number of swaps that have
/// succeeded.
fn cmp_swp_contended(env: &Env) -> Result<()> {
    let one = Link::new(env, &Options::default())?;
    let two = second_link(env, &one)?;
    let far = one.b.region(8, 0)?;
    let count = 300;
    let work = |side: &Side| -> Result<_> {
        let near = side.region(8, 0)?;
        let request = Side::request(Op::CmpSwp, 0, &[near.sge()]).at(far.addr, far.rkey);
        Ok((side.stream(request, count, 1), near.buffer))
    };
    let (first, second) = (work(&one.a)?, work(&two.a)?);
    let first = one.a.end.agent.begin().cas_increment(first.0, first.1)?;
    let second = two.a.end.agent.begin().cas_increment(second.0, second.1)?;
    let attempts = [first.finish()?, second.finish()?];
    ensure!(attempts.iter().all(|n| *n >= count), "{attempts:?} attempts");
    ensure!(far.word(0)? == 2 * count, "the word is {}, not {}", far.word(0)?, 2 * count);
    Ok(())
}

/// The responder's own processor adds to the word at the same time.
fn against_processor(env: &Env) -> Result<()> {
    let link = Link::new(env, &Options::default())?;
    let far = link.b.region(8, 0)?;
    let (remote, local) = (2000, 20_000_000);
    let (work, results) = adding(&link.a, &far, remote)?;
    let device = link.a.end.agent.begin().fetch_add_many(work, results)?;
    let processor = link.b.end.agent.begin().cpu_fetch_add(far.buffer, 0, 5, local)?;
    device.finish()?;
    processor.finish()?;
    let want = remote * 3 + local * 5;
    ensure!(far.word(0)? == want, "the word is {}, not {want}: an addition was lost", far.word(0)?);
    Ok(())
}

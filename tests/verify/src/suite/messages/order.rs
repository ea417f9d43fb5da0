//! Ordering of operations.
//!
//! Shows: data: the order of operations

use anyhow::{Context, Result, ensure};

use crate::suite::Case;
use crate::suite::fixture::{Env, Link, Options, Side, expect_in_order};
use vrnic_verbs::model::{Op, SendWr, Status, flags};

pub(in crate::suite) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("order/last_byte_lands_last", last_byte),
        Case::new("order/fence_send_after_read", fenced_send),
        Case::new("order/write_then_send", write_then_send),
        Case::new("order/read_sees_earlier_write", read_after_write),
    ];
    for window in [1, 2, 16] {
        let name = format!("order/reads_in_window_of_{window}");
        cases.push(Case::new(name, move |env| read_window(env, window)));
    }
    cases
}

/// A reader that polls the last byte of an RDMA WRITE and has seen it also sees all other bytes.
fn last_byte(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    for (round, len) in [9, 64, 100, 4097, 65537, 1 << 20].into_iter().cycle().take(24).enumerate()
    {
        let (near, far) = (a.region(len, round as u64)?, b.region(len, 3)?);
        // The target must not contain the awaited byte before, so seeds are tried until it does
        // not.
        let seed = 77 + round as u64;
        near.fill(seed)?;
        let last = |seed| {
            let mut byte = [0u8];
            vrnic_verbs::prng::generate(seed, len - 1, &mut byte);
            byte[0]
        };
        let before = (1000..).find(|s| last(*s) != last(seed)).context("no seed")?;
        far.fill(before)?;
        let waiting = far.begin_spin(seed)?;
        a.run(Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey), Status::Success)?;
        waiting.finish().with_context(|| format!("round {round}, {len} bytes"))?;
        near.free()?;
        far.free()?;
    }
    Ok(())
}

/// A fenced SEND of the bytes that an earlier READ fetches sends the fetched bytes.
fn fenced_send(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let len = 512 << 10;
    let (near, source, target) = (a.region(len, 1)?, b.region(len, 2)?, b.region(len, 3)?);
    for round in 0..10 {
        near.fill(1)?;
        target.fill(2)?;
        source.fill(100 + round)?;
        b.post_recv(round, &[target.sge()])?;
        let read = Side::request(Op::Read, 1, &[near.sge()]).at(source.addr, source.rkey);
        let mut send = Side::request(Op::Send, 2, &[near.sge()]);
        send.flags |= flags::FENCE;
        a.post(&[read, send])?;
        a.expect_sent(1, Status::Success)?;
        a.expect_sent(2, Status::Success)?;
        b.expect_received(round, Status::Success)?;
        target.check(100 + round)?;
    }
    Ok(())
}

/// When a SEND is received, the data of earlier WRITEs have been placed.
fn write_then_send(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let len = 256 << 10;
    let (near, far) = (a.region(len, 7)?, b.region(len, 0)?);
    for round in 0..20 {
        near.fill(round)?;
        b.post_recv(round, &[])?;
        let write = Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey);
        let write = SendWr { flags: 0, ..write };
        a.post(&[write, Side::request(Op::Send, round, &[])])?;
        b.expect_received(round, Status::Success)?;
        far.check(round)?;
        a.expect_sent(round, Status::Success)?;
    }
    Ok(())
}

/// A READ after a WRITE to the same place fetches the written bytes.
fn read_after_write(env: &Env) -> Result<()> {
    let Link { a, b } = Link::new(env, &Options::default())?;
    let len = 100_000;
    let (near, back, far) = (a.region(len, 7)?, a.region(len, 1)?, b.region(len, 0)?);
    for round in 0..10 {
        near.fill(round)?;
        let write = Side::request(Op::Write, 1, &[near.sge()]).at(far.addr, far.rkey);
        let read = Side::request(Op::Read, 2, &[back.sge()]).at(far.addr, far.rkey);
        a.post(&[write, read])?;
        a.expect_sent(1, Status::Success)?;
        a.expect_sent(2, Status::Success)?;
        back.check(round)?;
    }
    Ok(())
}

/// More READs and atomics than may be outstanding: all complete, in order.
fn read_window(env: &Env, window: u8) -> Result<()> {
    let options = Options { rd_atomic: window, ..Options::default() };
    let Link { a, b } = Link::new(env, &options)?;
    let (count, len) = (48, 10_000);
    let (near, far) = (a.region(count * len, 1)?, b.region(count * len, 0)?);
    let (words, counter) = (a.region(8 * count, 0)?, b.region(8, 0)?);
    far.fill(3)?;
    counter.set_word(0, 0)?;
    let mut chain = Vec::new();
    for i in 0..count {
        let read = Side::request(Op::Read, i, &[near.part(i * len, len)]);
        let read = SendWr { flags: 0, ..read.at(far.addr + i * len, far.rkey) };
        let add = Side::request(Op::FetchAdd, i, &[words.part(8 * i, 8)]);
        let add = SendWr { compare_add: 1, ..add.at(counter.addr, counter.rkey) };
        chain.extend([read, add]);
    }
    for (n, part) in (0..).zip(chain.chunks(48)) {
        a.post(part)?;
        expect_in_order(&a.sent(24)?, n * 24)?;
    }
    near.check(3)?;
    for i in 0..count {
        ensure!(words.word(8 * i)? == i, "atomic {i} fetched {}", words.word(8 * i)?);
    }
    ensure!(counter.word(0)? == count, "counter is {}", counter.word(0)?);
    Ok(())
}

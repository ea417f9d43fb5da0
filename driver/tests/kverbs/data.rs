// SPDX-License-Identifier: GPL-2.0
//! SEND, WRITE, READ, atomics, errors.

use kernel::prelude::*;

use crate::{
    bindings,
    check::{ends, expect},
    kclient::{memory::all_memory::AllMemory, remote::Remote, request::Status, work::Op},
    sides::{BUFFER, HALF, INLINE, Test},
};

/// SENDs, of many lengths. There are more than entries in a piece of a large completion queue's
/// ring.
const ROUNDS: usize = 1100;

/// Runs the test; it ends with a connection.
pub(crate) fn run(test: &Test) -> Result {
    test.connect()?;
    for round in 0..ROUNDS {
        send(test, 1 + round * 20 % HALF, false, "SEND")?;
    }
    send(test, INLINE, true, "inline SEND")?;
    write(test)?;
    read(test)?;
    atomics(test)?;
    errors(test)
}

/// Tests a SEND of `length` bytes from a to b, and that nothing else in b's buffer changes.
fn send(test: &Test, length: usize, inline: bool, what: &str) -> Result {
    let Test { a, b, .. } = test;
    let data = a.buffer.randomize(0, length)?;
    b.buffer.write(0, &KVec::from_elem(0, BUFFER, GFP_KERNEL)?)?;
    b.receive()?;
    let number = u32::try_from(length)?;
    let op = Op::SendImm(number);
    if inline {
        a.qp.post_inline(&a.sent, &op, &data)?
    } else {
        a.post(&op, length)?
    }
    ends(&a.sent, Status::SUCCESS, what)?;
    let got = ends(&b.received, Status::SUCCESS, what)?;
    let buffer = b.buffer.bytes(0, BUFFER)?;
    let (before, half) = buffer.split_at(HALF);
    let (message, behind) = half.split_at(length);
    expect(got.length == number, what)?;
    expect(got.immediate == Some(number), what)?;
    expect(got.qp == b.qp.id(), what)?;
    expect(message == &data[..], what)?;
    expect([before, behind].iter().all(|part| part.iter().all(|byte| *byte == 0)), what)
}

/// Returns the start of b's buffer, under the key of all memory.
fn of_b(test: &Test) -> Result<Remote> {
    Remote::under_global_key(&test.pd, &test.b.part(0..HALF)?)
}

fn write(test: &Test) -> Result {
    let data = test.a.buffer.randomize(0, HALF)?;
    test.b.buffer.randomize(0, HALF)?;
    test.a.post(&Op::Write(of_b(test)?), HALF)?;
    ends(&test.a.sent, Status::SUCCESS, "WRITE")?;
    expect(test.a.buffer.bytes(0, HALF)?[..] == data[..], "source of a WRITE")?;
    expect(test.b.buffer.bytes(0, HALF)?[..] == data[..], "WRITE")
}

fn read(test: &Test) -> Result {
    test.a.buffer.randomize(0, HALF)?;
    let data = test.b.buffer.randomize(0, HALF)?;
    test.a.post(&Op::Read(of_b(test)?), HALF)?;
    ends(&test.a.sent, Status::SUCCESS, "READ")?;
    expect(test.b.buffer.bytes(0, HALF)?[..] == data[..], "source of a READ")?;
    expect(test.a.buffer.bytes(0, HALF)?[..] == data[..], "READ")
}

/// The domain's key does not allow atomics: this takes one from the driver that does.
fn atomics(test: &Test) -> Result {
    let access = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
        | bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    // SAFETY: the peer is this test, which names the key only by `Remote::under_all_memory`.
    let region = unsafe { AllMemory::new(&test.pd, access) }?;
    let there = || Remote::under_all_memory(&region, &test.b.part(0..size_of::<u64>())?);
    let swap = |remote| Op::CompareSwap { remote, compare: 5, swap: 9 };
    let add = Op::FetchAdd { remote: there()?, add: 2 };
    atomic(test, &add, 40, 42, "FETCH_ADD")?;
    atomic(test, &swap(there()?), 5, 9, "CMP_SWP, equal")?;
    atomic(test, &swap(there()?), 6, 6, "CMP_SWP, different")?;
    region.end()
}

/// Tests an atomic on the first word of b's buffer, which is `old` and becomes `wanted`.
fn atomic(test: &Test, op: &Op, old: u64, wanted: u64, what: &str) -> Result {
    test.b.buffer.set(0, old)?;
    test.a.buffer.set(0, !old)?;
    test.a.post(op, size_of::<u64>())?;
    ends(&test.a.sent, Status::SUCCESS, what)?;
    expect(test.a.buffer.get(0)? == old, what)?;
    expect(test.b.buffer.get(0)? == wanted, what)
}

/// An error takes the queue pair to the error state, which flushes what is posted; reset makes it
/// usable again.
fn errors(test: &Test) -> Result {
    let what = "WRITE with a wrong rkey";
    test.a.receive()?;
    test.a.buffer.randomize(0, HALF)?;
    let before = test.b.buffer.randomize(0, HALF)?;
    test.a.post(&Op::Write(of_b(test)?.with_wrong_key()), HALF)?;
    ends(&test.a.sent, Status::REMOTE_ACCESS, what)?;
    expect(test.b.buffer.bytes(0, HALF)?[..] == before[..], what)?;
    ends(&test.a.received, Status::FLUSHED, "flush")?;
    test.reconnect()?;
    send(test, 100, false, "SEND after reset")
}

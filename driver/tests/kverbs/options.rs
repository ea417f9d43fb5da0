// SPDX-License-Identifier: GPL-2.0
//! The options of `direct.h` for queue pairs and registrations. Side b has them, side a is the
//! peer.

use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

use crate::{
    bindings,
    check::{ends, expect},
    kclient::{
        attached::Attached,
        cq::{Cq, Poll},
        memory::Memory,
        pd::Device,
        region::Region,
        remote::Remote,
        request::Status,
        work::Op,
    },
    sides::{DEPTH, HALF, Side, Test},
    states,
};

/// Bytes of a message.
const MESSAGE: usize = 64;
/// The rights of the peer.
const REMOTE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;

/// Runs the test, on connections of its own.
pub(crate) fn run(test: &Test, device: &Arc<Attached>) -> Result {
    let device: Arc<dyn Device> = device.clone();
    let a = Cq::new(device.clone(), 4 * DEPTH, Poll::Workqueue)?;
    let b = Cq::new(device, 4 * DEPTH, Poll::Workqueue)?;
    let sides = |flags| {
        let sides = Test::with_flags(&test.pd, [&a, &b], flags)?;
        sides.connect().map(|()| sides)
    };
    let region = Region::new(test.pd.clone(), Memory::new(1, PAGE_SIZE)?, 0, 0)?;
    one_message(&sides(0)?, &region)?;
    same_key(&sides(bindings::VRNIC_QP_REACTIVE)?, &region)?;
    reactive(&sides(bindings::VRNIC_QP_REACTIVE)?, &region)?;
    no_keys(&sides(bindings::VRNIC_QP_NO_SQ_KEYS)?, &region)?;
    windows_only(&sides(bindings::VRNIC_QP_WINDOWS_ONLY)?)
}

/// Registers under a new key.
fn register(b: &Side, region: &Arc<Region>, options: u32, status: Status, what: &str) -> Result {
    b.qp.register(&b.sent, region, REMOTE | options, None)?;
    ends(&b.sent, status, what).map(|_| ())
}

fn invalidate(b: &Side, region: &Region, what: &str) -> Result {
    b.qp.post_inline(&b.sent, &Op::Invalidate(region.key()), &[])?;
    ends(&b.sent, Status::SUCCESS, what).map(|_| ())
}

fn write(test: &Test, there: Remote, status: Status, what: &str) -> Result {
    test.a.post(&Op::Write(there), MESSAGE)?;
    ends(&test.a.sent, status, what).map(|_| ())
}

/// The second message for a key that is valid for one ends the connection.
fn one_message(test: &Test, region: &Arc<Region>) -> Result {
    let one_touch = bindings::VRNIC_ACCESS_ONE_TOUCH;
    register(&test.b, region, one_touch, Status::SUCCESS, "REG_MR for one message")?;
    let data = test.a.buffer.randomize(0, MESSAGE)?;
    write(test, region.remote(), Status::SUCCESS, "the message")?;
    expect(region.memory().bytes(0, MESSAGE)?[..] == data[..], "the message's bytes")?;
    write(test, region.remote(), Status::REMOTE_ACCESS, "another message")
}

/// A registration names another key than the region has. The rest of the send queue waits until the
/// client has started it again.
fn same_key(test: &Test, region: &Arc<Region>) -> Result {
    let same = bindings::VRNIC_ACCESS_SAME_KEY;
    register(&test.b, region, same, Status::BIND, "REG_MR of another key")?;
    states::resume(&test.b.qp)?;
    let no_reads = bindings::VRNIC_ACCESS_NO_LOCAL_READ;
    register(&test.b, region, no_reads, Status::SUCCESS, "REG_MR without local reads")?;
    write(test, region.remote(), Status::SUCCESS, "WRITE to a region without local reads")?;
    invalidate(&test.b, region, "LOCAL_INV")
}

/// A refused registration stops only the send queue.
fn reactive(test: &Test, region: &Arc<Region>) -> Result {
    let Test { a, b, .. } = test;
    register(b, region, 0, Status::SUCCESS, "REG_MR")?;
    let (key, there) = (region.key(), region.remote());
    register(b, region, 0, Status::BIND, "REG_MR of a valid region")?;
    b.receive()?;
    a.post(&Op::Send, MESSAGE)?;
    ends(&a.sent, Status::SUCCESS, "SEND to a stopped queue pair")?;
    ends(&b.received, Status::SUCCESS, "receive of a stopped queue pair")?;
    write(test, there, Status::SUCCESS, "WRITE to a stopped queue pair")?;
    b.qp.post_inline(&b.sent, &Op::Invalidate(key), &[])?;
    ends(&b.sent, Status::FLUSHED, "LOCAL_INV of a stopped queue pair")?;
    states::resume(&b.qp)?;
    b.qp.post_inline(&b.sent, &Op::Invalidate(key), &[])?;
    ends(&b.sent, Status::SUCCESS, "LOCAL_INV").map(|_| ())
}

fn no_keys(test: &Test, region: &Arc<Region>) -> Result {
    register(&test.b, region, 0, Status::BIND, "REG_MR that the queue pair does not allow")
}

/// The peer does not reach what its key would let it.
fn windows_only(test: &Test) -> Result {
    let there = Remote::under_global_key(&test.pd, &test.b.part(0..HALF)?)?;
    write(test, there, Status::REMOTE_ACCESS, "WRITE to a region")
}

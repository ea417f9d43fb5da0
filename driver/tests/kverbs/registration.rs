// SPDX-License-Identifier: GPL-2.0
//! Fast registration of a scattered list of pages, and the three ways to end it: LOCAL_INV, the
//! peer's SEND_WITH_INV, and deregistration. Side b registers, side a is the peer.

use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

use crate::{
    bindings,
    check::{ends, expect},
    kclient::{
        attached::Attached, memory::Memory, region::Region, remote::Remote, request::Status,
        work::Op,
    },
    sides::{BUFFER, HALF, Side, Test},
};

/// Pages of the list.
const PAGES: usize = 4;
/// Offset of the list in its first page.
const HEAD: usize = 100;
/// Bytes of its last page that are not of the list.
const TAIL: usize = 40;
/// More than there are keys of a region.
const ROUNDS: usize = 300;
/// Bytes of a message.
const MESSAGE: usize = 64;
/// The rights of the peer.
const REMOTE: u32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
    | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;

/// Runs the test, on a connection.
pub(crate) fn run(test: &Test, device: &Attached) -> Result {
    let needed = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS;
    if device.capabilities() & u64::try_from(needed)? == 0 {
        pr_err!("the device has no memory management extensions\n");
        return Err(EOPNOTSUPP);
    }
    let region = Region::new(test.pd.clone(), Memory::new(PAGES, PAGE_SIZE)?, HEAD, TAIL)?;
    local_invalidation(test, &region)?;
    many_keys(test, &region)?;
    remote_invalidation(test, &region)?;
    refusals(test, &region)?;
    deregistration(test, region)
}

/// Registers under a new key.
fn register(side: &Side, region: &Arc<Region>, status: Status, what: &str) -> Result {
    side.qp.register(&side.sent, region, REMOTE, None)?;
    ends(&side.sent, status, what).map(|_| ())
}

fn invalidate(side: &Side, key: u32, status: Status, what: &str) -> Result {
    side.qp.post_inline(&side.sent, &Op::Invalidate(key), &[])?;
    ends(&side.sent, status, what).map(|_| ())
}

/// Makes a post a WRITE or READ of `length` bytes, which must end with `status`.
fn reach(test: &Test, op: &Op, length: usize, status: Status, what: &str) -> Result {
    test.a.post(op, length)?;
    ends(&test.a.sent, status, what).map(|_| ())
}

/// Returns a place in the region, as the peer names it.
fn place(region: &Region, at: usize) -> Result<Remote> {
    Ok(Remote::new(region.address() + u64::try_from(at)?, region.key()))
}

/// Checks that what a writes at a place is in the pages, and nothing else of them changes; what is
/// in the pages is what a reads.
fn moves(test: &Test, region: &Region, at: usize) -> Result {
    let what = "WRITE to the pages";
    let buffer = &test.a.buffer;
    let mut pages = region.memory().randomize(0, PAGES * PAGE_SIZE)?;
    let data = buffer.randomize(0, BUFFER)?;
    reach(test, &Op::Write(place(region, at)?), BUFFER, Status::SUCCESS, what)?;
    let written = pages.get_mut(HEAD + at..).and_then(|rest| rest.get_mut(..BUFFER));
    written.ok_or(EINVAL)?.copy_from_slice(&data);
    expect(region.memory().bytes(0, PAGES * PAGE_SIZE)?[..] == pages[..], what)?;
    let what = "READ of the pages";
    buffer.randomize(0, BUFFER)?;
    reach(test, &Op::Read(place(region, at)?), BUFFER, Status::SUCCESS, what)?;
    expect(buffer.bytes(0, BUFFER)?[..] == data[..], what)
}

/// Checks that the place cannot be accessed. The attempt ends the connection, so this connects
/// again.
fn refused(test: &Test, there: Remote, what: &str) -> Result {
    reach(test, &Op::Write(there), 8, Status::REMOTE_ACCESS, what)?;
    test.reconnect()
}

fn local_invalidation(test: &Test, region: &Arc<Region>) -> Result {
    register(&test.b, region, Status::SUCCESS, "REG_MR")?;
    moves(test, region, 0)?;
    moves(test, region, region.len() - BUFFER)?;
    refused(test, place(region, region.len() - 7)?, "WRITE across the end of the pages")?;
    invalidate(&test.b, region.key(), Status::SUCCESS, "LOCAL_INV")?;
    refused(test, region.remote(), "WRITE after LOCAL_INV")
}

/// Registers a region more often than it has keys. The key of each registration must be valid.
fn many_keys(test: &Test, region: &Arc<Region>) -> Result {
    for _ in 0..ROUNDS {
        register(&test.b, region, Status::SUCCESS, "REG_MR again")?;
        reach(test, &Op::Read(region.remote()), 8, Status::SUCCESS, "READ")?;
        invalidate(&test.b, region.key(), Status::SUCCESS, "LOCAL_INV again")?;
    }
    Ok(())
}

/// Registers and sends with one list of requests, and lets the peer invalidate the key, as storage
/// initiators do.
fn remote_invalidation(test: &Test, region: &Arc<Region>) -> Result {
    let Test { a, b, .. } = test;
    a.receive()?;
    b.receive()?;
    let command = b.buffer.randomize(0, MESSAGE)?;
    b.qp.register(&b.sent, region, REMOTE, Some(&b.part(0..MESSAGE)?))?;
    ends(&b.sent, Status::SUCCESS, "REG_MR and SEND")?;
    ends(&a.received, Status::SUCCESS, "command")?;
    expect(a.buffer.bytes(HALF, MESSAGE)?[..] == command[..], "command")?;
    moves(test, region, 0)?;
    a.post(&Op::SendInv(region.key()), MESSAGE)?;
    ends(&a.sent, Status::SUCCESS, "SEND_WITH_INV")?;
    let answer = ends(&b.received, Status::SUCCESS, "answer")?;
    expect(answer.invalidated == Some(region.key()), "invalidated key")?;
    refused(test, region.remote(), "WRITE after SEND_WITH_INV")
}

/// Registering what is registered, and invalidating what is not, are errors of the queue pair.
fn refusals(test: &Test, region: &Arc<Region>) -> Result {
    let b = &test.b;
    register(b, region, Status::SUCCESS, "REG_MR")?;
    let key = region.key();
    register(b, region, Status::BIND, "REG_MR of a valid region")?;
    test.reconnect()?;
    invalidate(b, key, Status::SUCCESS, "LOCAL_INV")?;
    invalidate(b, key, Status::BIND, "LOCAL_INV of an invalid region")?;
    test.reconnect()
}

/// Deregistration ends a valid registration.
fn deregistration(test: &Test, region: Arc<Region>) -> Result {
    register(&test.b, &region, Status::SUCCESS, "the last REG_MR")?;
    let there = region.remote();
    reach(test, &Op::Read(there.clone()), 8, Status::SUCCESS, "the last READ")?;
    expect(Arc::into_unique_or_drop(region).map(drop).is_some(), "the region's last user")?;
    refused(test, there, "WRITE after deregistration")
}

//! A thin safe layer over libibverbs, for programs that test RDMA devices.
//!
//! The layer must allow what a correct program never does (destroying objects in use, illegal
//! transitions of QPs, work requests with invalid keys), because the tests are about these. So each
//! object is one owned handle. Destroying it consumes the handle, or returns it with the error.
//! Nothing is destroyed on drop: the exit of the process does that, and is tested, too.
//!
//! The feature `vrnic` adds the parts that only the vrnic adapter has: [`adapter`].
//!
//! | module | what |
//! | --- | --- |
//! | [`model`] | plain data: work requests, completions, attributes |
//! | [`prng`] | known bytes |
//! | [`ffi`] | generated bindings, and the functions that verbs.h has only as inline functions |
//! | [`address`] | address handles, multicast groups |
//! | [`context`] | the opened device, its attributes and asynchronous events |
//! | [`memory`] | PDs and MRs |
//! | [`device_memory`] | memory of the device |
//! | [`cq`] | CQs and completion channels |
//! | [`qp`] | QPs and their attributes |
//! | [`flow`] | QPs of raw packets, flows |
//! | [`rss`] | work queues, and QPs that spread frames over them |
//! | [`srq`], [`xrc`] | shared receive queues; XRC domains and targets |
//! | [`cm`] | connections by the RDMA connection manager |
//! | [`wr`] | lists of work requests |
//! | [`post`] | posting to QPs |
//! | [`extended`] | creation and polling with the extended interfaces |
//! | [`window`] | memory windows |
//! | [`handles`] | the common parts of all handles, and their use by several threads |
//! | [`adapter`] | what only the vrnic adapter has |
//!
//! `unsafe` is in all modules but [`model`] and [`prng`].

// Fields and constants have the names of verbs.h.
#![allow(missing_docs)]

#[cfg(feature = "vrnic")]
pub mod adapter;
pub mod address;
pub mod cm;
pub mod context;
pub mod cq;
pub mod device_memory;
mod extended;
mod ffi;
pub mod flow;
mod handles;
pub mod memory;
pub mod model;
mod post;
pub mod prng;
pub mod qp;
pub mod rss;
pub mod srq;
pub mod window;
pub mod wr;
pub mod xrc;

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns the result of a call that returns an errno (0 is success), as most verbs do.
fn check(errno: i32) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        // A few calls return -1 and set errno instead.
        -1 => Err(io::Error::last_os_error()),
        n => Err(io::Error::from_raw_os_error(n.abs())),
    }
}

/// Returns the result of a call that returns an object, or NULL and errno.
fn object<T>(raw: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(raw).ok_or_else(io::Error::last_os_error)
}

/// Returns the error of an operation that the device does not have.
fn missing() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}

/// Waits until `fd` is readable. Returns false if `timeout` passes first.
fn readable(fd: RawFd, timeout: Duration) -> io::Result<bool> {
    // SAFETY: the descriptors passed here belong to a context or channel that the caller borrows,
    // so they stay open during the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)) {
            Ok(n) => return Ok(n > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

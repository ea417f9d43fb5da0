// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs of TCP streams (`vrnicdv.h`, docs/streams.md). The kernel makes connections, and
//! the adapter takes them over.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use vrnic_abi::qp::State;
use vrnic_abi::uverbs::{AttachReq, Features, StartReq};
use vrnic_queues::qp::QueuePair;

use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::dv::check_context;
use crate::ffi::{ioctl, qp, status};

/// Number of times at which a new connection is tried to be taken over while bytes of it are under
/// way, and the pause between them.
const TRIES: u32 = 5000;
const PAUSE: Duration = Duration::from_millis(1);

/// Implements `vrnicdv_attach_socket`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_attach_socket(
    qp: *mut c::ibv_qp,
    socket: c_int,
) -> c_int {
    // SAFETY: the caller passes a live queue pair of libibverbs.
    status(unsafe { attach(qp, socket) })
}

/// Implements `vrnicdv_connect_stream`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs, `address` readable for `length` bytes.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_connect_stream(
    qp: *mut c::ibv_qp,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    // SAFETY: the caller passes a live queue pair and a readable address.
    status(unsafe { connect(qp, address, length) })
}

/// Implements `vrnicdv_accept_stream`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_accept_stream(
    qp: *mut c::ibv_qp,
    listener: c_int,
) -> c_int {
    // SAFETY: the caller passes a live queue pair of libibverbs.
    status(unsafe { accept(qp, listener) })
}

/// Implements `vrnicdv_release_receives`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_release_receives(qp: *mut c::ibv_qp) -> c_int {
    // SAFETY: the caller passes a live queue pair of libibverbs.
    status(unsafe { own(qp) }.and_then(QueuePair::release))
}

/// Returns the plugin's part of a queue pair of a device with streams.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs, for `'a`.
unsafe fn own<'a>(qp: *mut c::ibv_qp) -> Result<&'a QueuePair, Errno> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    unsafe { check_context((*qp).context) }?;
    // SAFETY: the caller passes a live queue pair, whose context is live, and one of this plugin.
    unsafe { Context::of((*qp).context) }?.needs(Features::TOE)?;
    // SAFETY: the caller passes a live queue pair, and one of this plugin.
    unsafe { qp::own(qp) }.ok_or(Errno::INVAL)
}

/// # Safety
/// The requirements of [`vrnicdv_attach_socket`] apply.
unsafe fn attach(qp: *mut c::ibv_qp, socket: c_int) -> Result<(), Errno> {
    // SAFETY: the caller passes a live queue pair.
    let queues = unsafe { own(qp) }?;
    let request = AttachReq { fd: socket.cast_unsigned().into(), ..AttachReq::default() };
    // SAFETY: the caller passes a live queue pair.
    unsafe { ioctl::attach(qp, &request) }?;
    queues.entered(State::Rts);
    Ok(())
}

/// # Safety
/// The requirements of [`vrnicdv_connect_stream`] apply.
unsafe fn connect(
    qp: *mut c::ibv_qp,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Result<(), Errno> {
    // SAFETY: the caller passes a live queue pair. Nothing is connected for one that cannot have a
    // connection.
    unsafe { own(qp) }?.awaits_stream()?;
    if (length as usize) < size_of::<libc::sa_family_t>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller passes an address with these bytes.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    // SAFETY: any numbers may be passed.
    let made = unsafe { libc::socket(family.into(), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the result of the call.
    let socket = unsafe { owned(made) }?;
    // SAFETY: the caller passes an address of this length.
    match unsafe { libc::connect(socket.as_raw_fd(), address, length) } {
        0 => {}
        _ => return Err(last_error()),
    }
    // SAFETY: the caller passes a live queue pair.
    unsafe { attach_soon(qp, &socket) }
}

/// # Safety
/// The requirements of [`vrnicdv_accept_stream`] apply.
unsafe fn accept(qp: *mut c::ibv_qp, listener: c_int) -> Result<(), Errno> {
    // SAFETY: the caller passes a live queue pair. No connection is taken for one that cannot have
    // it.
    unsafe { own(qp) }?.awaits_stream()?;
    let none = std::ptr::null_mut();
    // SAFETY: any number may be passed, and no room for the peer's address.
    let made = unsafe { libc::accept4(listener, none, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    // SAFETY: the result of the call.
    let socket = unsafe { owned(made) }?;
    // SAFETY: the caller passes a live queue pair.
    unsafe { attach_soon(qp, &socket) }
}

/// Gives a new connection to a queue pair. Bytes of the peer may be under way at first.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs.
unsafe fn attach_soon(qp: *mut c::ibv_qp, socket: &OwnedFd) -> Result<(), Errno> {
    for _ in 0..TRIES {
        // SAFETY: the caller passes a live queue pair.
        match unsafe { attach(qp, socket.as_raw_fd()) } {
            Err(Errno::AGAIN) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    Err(Errno::TIMEDOUT)
}

/// # Safety
/// `made` must be the result of a call that returns a new descriptor, or -1 with errno set.
unsafe fn owned(made: c_int) -> Result<OwnedFd, Errno> {
    match made {
        // SAFETY: a new descriptor, which nothing else owns.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Implements `vrnicdv_start_rdma`.
///
/// # Safety
/// The queue pairs must be live ones of libibverbs, and the attributes valid.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_start_rdma(
    stream: *mut c::ibv_qp,
    rdma: *mut c::ibv_qp,
    attr: *const c::vrnicdv_rdma_attr,
) -> c_int {
    // SAFETY: the caller passes live queue pairs of libibverbs, and valid attributes.
    status(unsafe { start_rdma(stream, rdma, &*attr) })
}

/// # Safety
/// The requirements of [`vrnicdv_start_rdma`] apply.
unsafe fn start_rdma(
    stream: *mut c::ibv_qp,
    rdma: *mut c::ibv_qp,
    attr: &c::vrnicdv_rdma_attr,
) -> Result<(), Errno> {
    // SAFETY: the caller passes live queue pairs, whose contexts are live too.
    let (context, other) = unsafe { ((*stream).context, (*rdma).context) };
    // SAFETY: the context of a live queue pair is live.
    unsafe { check_context(context) }?;
    if context != other {
        return Err(Errno::INVAL);
    }
    // SAFETY: it is live, and one of this plugin.
    unsafe { Context::of(context) }?.needs(Features::START_RDMA)?;
    let request = StartReq {
        ird: attr.ird.into(),
        ord: attr.ord.into(),
        flags: attr.flags.into(),
        received_len: attr.received_len.into(),
        // CAST: an address of this process.
        received: (attr.received.expose_provenance() as u64).into(),
    };
    // SAFETY: the caller passes live queue pairs, and readable bytes.
    unsafe { ioctl::start(stream, rdma, &request) }
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs that reserve what a connection needs for RDMA (`vrnicdv.h`, docs/streams.md). They
//! call libibverbs as a program does.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use rustix::io::Errno;
use vrnicdv::reserve::{Reason, Reservation};

use crate::ffi::bindings as c;
use crate::ffi::cq::poll;
use crate::ffi::{check, driver, dv::vrnicdv_create_cq, status};

/// The port of a queue pair of an RNIC.
const PORT: u8 = 1;

// The crate `vrnicdv` has the reservation, too.
const _: () = {
    assert!(size_of::<Reservation>() == size_of::<c::vrnicdv_reservation>());
    assert!(offset_of!(Reservation, cap) == offset_of!(c::vrnicdv_reservation, cap));
    assert!(offset_of!(Reservation, access) == offset_of!(c::vrnicdv_reservation, access));
    assert!(offset_of!(Reservation, would_do) == offset_of!(c::vrnicdv_reservation, would_do));
    assert!(offset_of!(Reservation, new_cq) == offset_of!(c::vrnicdv_reservation, new_cq));
    assert!(offset_of!(Reservation, qp) == offset_of!(c::vrnicdv_reservation, qp));
    assert!(Reason::Reserved as u32 == c::VRNICDV_RESERVED);
    assert!(Reason::IrdTooLarge as u32 == c::VRNICDV_IRD_TOO_LARGE);
    assert!(Reason::OrdTooLarge as u32 == c::VRNICDV_ORD_TOO_LARGE);
    assert!(Reason::CqTooLarge as u32 == c::VRNICDV_CQ_TOO_LARGE);
    assert!(Reason::NoRnic as u32 == c::VRNICDV_NO_RNIC);
    assert!(Reason::NoPd as u32 == c::VRNICDV_NO_PD);
    assert!(Reason::NoQp as u32 == c::VRNICDV_NO_QP);
    assert!(Reason::NoConnection as u32 == c::VRNICDV_NO_CONNECTION);
};

/// Why there is no reservation, and the errno that says so.
type Refused = (Reason, Errno);

/// Implements `vrnicdv_reserve_rdma`.
///
/// # Safety
/// The pointers in the reservation must be null or live objects of libibverbs, except `stream`,
/// which must be a live queue pair, and `entries`, which no other code uses meanwhile.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_reserve_rdma(
    reservation: *mut c::vrnicdv_reservation,
) -> c_int {
    // SAFETY: the caller passes a reservation that no other code uses meanwhile.
    let wanted = unsafe { &mut *reservation };
    (wanted.qp, wanted.new_pd, wanted.new_cq, wanted.would_do) = (ptr::null_mut(), false, false, 0);
    // SAFETY: the caller's promise.
    let reserved = unsafe { reserve(wanted) };
    wanted.reason = reserved.err().map_or(Reason::Reserved, |(reason, _)| reason) as u32;
    status(reserved.map_err(|(_, error)| error))
}

/// # Safety
/// The requirements of [`vrnicdv_reserve_rdma`] apply.
unsafe fn reserve(wanted: &mut c::vrnicdv_reservation) -> Result<(), Refused> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    let limits = unsafe { limits(wanted.stream) }.ok_or((Reason::NoRnic, Errno::OPNOTSUPP))?;
    // SAFETY: the caller passes a live queue pair.
    unsafe { check_connected(wanted.stream) }.map_err(|error| (Reason::NoConnection, error))?;
    for (asked, limit, reason) in [
        (wanted.ird, limits.max_qp_rd_atom, Reason::IrdTooLarge),
        (wanted.ord, limits.max_qp_init_rd_atom, Reason::OrdTooLarge),
    ] {
        let limit = limit.cast_unsigned();
        if asked > limit {
            wanted.would_do = limit;
            return Err((reason, Errno::INVAL));
        }
    }
    if wanted.pd.is_null() {
        // SAFETY: the context of a live queue pair.
        wanted.pd = unsafe { c::ibv_alloc_pd((*wanted.stream).context) };
        if wanted.pd.is_null() {
            return Err((Reason::NoPd, Errno::NOMEM));
        }
        wanted.new_pd = true;
    }
    // SAFETY: the caller's promise, and the domain is live.
    let made = unsafe { make_queues(wanted, limits.max_cqe.cast_unsigned()) };
    if made.is_err() && wanted.new_pd {
        // SAFETY: the domain was made above, and nothing uses it.
        unsafe { c::ibv_dealloc_pd(wanted.pd) };
        (wanted.pd, wanted.new_pd) = (ptr::null_mut(), false);
    }
    made
}

/// Returns the limits of the device of a queue pair that carries the bytes of connections, or
/// `None` for any other queue pair.
///
/// # Safety
/// `stream` must be a live queue pair of libibverbs.
unsafe fn limits(stream: *mut c::ibv_qp) -> Option<c::ibv_device_attr> {
    let mut limits = c::ibv_device_attr::default();
    // SAFETY: a live queue pair has a live context, and that a device.
    let ours = unsafe {
        driver::is_ours((*(*stream).context).device)
            && (*stream).qp_type == c::IBV_QPT_DRIVER
            && c::ibv_query_device((*stream).context, &raw mut limits) == 0
    };
    ours.then_some(limits)
}

/// Fails for a queue pair whose connection has ended.
///
/// # Safety
/// `stream` must be a live queue pair of libibverbs.
unsafe fn check_connected(stream: *mut c::ibv_qp) -> Result<(), Errno> {
    let mut attr = c::ibv_qp_attr::default();
    let mut init = c::ibv_qp_init_attr::default();
    let mask = c::IBV_QP_STATE.cast_signed();
    // SAFETY: a live queue pair, and room for the answers.
    let asked = unsafe { c::ibv_query_qp(stream, &raw mut attr, mask, &raw mut init) };
    let ended = asked != 0 || attr.qp_state == c::IBV_QPS_ERR;
    if ended { Err(Errno::NOTCONN) } else { Ok(()) }
}

/// Makes the queue pair of a reservation, on the shared completion queue if that can grow, and on a
/// new one otherwise.
///
/// # Safety
/// The requirements of [`vrnicdv_reserve_rdma`] apply, and the protection domain must be live.
unsafe fn make_queues(wanted: &mut c::vrnicdv_reservation, most: u32) -> Result<(), Refused> {
    const NO_QP: Refused = (Reason::NoQp, Errno::NOMEM);
    let shared = wanted.cq;
    if !shared.is_null() {
        // The queue pair comes first: without it the completion queue need not grow.
        // SAFETY: the domain and the completion queue are live.
        let qp = unsafe { make_qp(wanted, shared) }.ok_or(NO_QP)?;
        // SAFETY: the completion queue is live, and the caller lends the number.
        if unsafe { grow(wanted, most) } {
            wanted.qp = qp;
            return Ok(());
        }
        // SAFETY: the queue pair was made above, and nothing uses it.
        unsafe { c::ibv_destroy_qp(qp) };
    }
    let entries = entries(&wanted.cap);
    if entries > most {
        wanted.would_do = most;
        return Err((Reason::CqTooLarge, Errno::INVAL));
    }
    // Its events go to the vector with the least load.
    let mut init = c::ibv_cq_init_attr_ex {
        cqe: entries,
        channel: wanted.channel,
        ..c::ibv_cq_init_attr_ex::default()
    };
    let mut attr = c::vrnicdv_cq_attr { flags: c::VRNICDV_CQ_ANY_VECTOR, comp_vector: 0, few: 0 };
    // SAFETY: the context of a live queue pair, and a channel of it or none.
    let cq = unsafe {
        let context = (*wanted.stream).context;
        vrnicdv_create_cq(context, &raw mut init, &raw mut attr)
    };
    // The extended form begins with the plain one.
    let cq = cq.cast::<c::ibv_cq>();
    if cq.is_null() {
        return Err(NO_QP);
    }
    // SAFETY: the completion queue was made above.
    let armed = unsafe { poll::req_notify_cq(cq, 0) } == 0;
    let qp = match armed {
        // SAFETY: the domain and the completion queue are live.
        true => unsafe { make_qp(wanted, cq) },
        false => None,
    };
    let Some(qp) = qp else {
        // SAFETY: nothing uses the completion queue.
        unsafe { c::ibv_destroy_cq(cq) };
        return Err(NO_QP);
    };
    (wanted.cq, wanted.new_cq, wanted.qp) = (cq, true, qp);
    Ok(())
}

/// Returns the number of completions that queues of this size may have outstanding.
fn entries(cap: &c::ibv_qp_cap) -> u32 {
    cap.max_send_wr.saturating_add(cap.max_recv_wr)
}

/// Creates the queue pair, and brings it to INIT. The reservation then has the actual sizes.
///
/// # Safety
/// The protection domain and the completion queue must be live.
unsafe fn make_qp(
    wanted: &mut c::vrnicdv_reservation,
    cq: *mut c::ibv_cq,
) -> Option<*mut c::ibv_qp> {
    let mut attr = c::ibv_qp_init_attr {
        send_cq: cq,
        recv_cq: cq,
        cap: wanted.cap,
        qp_type: c::IBV_QPT_RC,
        ..Default::default()
    };
    let mut init = c::ibv_qp_attr {
        qp_state: c::IBV_QPS_INIT,
        port_num: PORT,
        qp_access_flags: wanted.access,
        ..Default::default()
    };
    let mask = c::IBV_QP_STATE | c::IBV_QP_PKEY_INDEX | c::IBV_QP_PORT | c::IBV_QP_ACCESS_FLAGS;
    // SAFETY: the caller passes live objects, and the attributes are valid.
    let qp = unsafe { c::ibv_create_qp(wanted.pd, &raw mut attr) };
    if qp.is_null() {
        return None;
    }
    // SAFETY: the queue pair was made above.
    if unsafe { c::ibv_modify_qp(qp, &raw mut init, mask.cast_signed()) } != 0 {
        // SAFETY: nothing uses the queue pair.
        unsafe { c::ibv_destroy_qp(qp) };
        return None;
    }
    wanted.cap = attr.cap;
    Some(qp)
}

/// Makes room in the shared completion queue for the entries of the queues. Returns whether there
/// is room then.
///
/// # Safety
/// The completion queue must be live, and no other code may use the number of entries.
unsafe fn grow(wanted: &mut c::vrnicdv_reservation, most: u32) -> bool {
    // SAFETY: the caller passes a live completion queue.
    let present = unsafe { (*wanted.cq).cqe }.cast_unsigned();
    // SAFETY: null, or a number that the caller lends.
    let sum = unsafe { wanted.entries.as_mut() };
    let needed = sum.as_deref().copied().unwrap_or(present).checked_add(entries(&wanted.cap));
    let Some(needed) = needed.filter(|needed| *needed <= most) else { return false };
    if needed > present {
        let Ok(size) = c_int::try_from(needed) else { return false };
        // SAFETY: a live completion queue.
        if unsafe { c::ibv_resize_cq(wanted.cq, size) } != 0 {
            return false;
        }
    }
    if let Some(sum) = sum {
        *sum = needed;
    }
    true
}

/// Implements `vrnicdv_release_rdma`.
///
/// # Safety
/// The reservation must have been granted, and its queue pair be live.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_release_rdma(
    reservation: *mut c::vrnicdv_reservation,
) -> c_int {
    // SAFETY: the caller passes a reservation that no other code uses meanwhile.
    let held = unsafe { &mut *reservation };
    // SAFETY: the caller passes a live queue pair.
    if let Err(error) = check(unsafe { c::ibv_destroy_qp(held.qp) }) {
        return status(Err(error));
    }
    held.qp = ptr::null_mut();
    // SAFETY: null, or a number that the caller lends.
    if let Some(sum) = unsafe { held.entries.as_mut() }.filter(|_| !held.new_cq) {
        *sum = sum.saturating_sub(entries(&held.cap));
        let size = c_int::try_from(*sum).unwrap_or(c_int::MAX).max(1);
        // A queue that stays larger serves as well.
        // SAFETY: the completion queue of a granted reservation is live.
        unsafe { c::ibv_resize_cq(held.cq, size) };
    }
    0
}

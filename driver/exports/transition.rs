// SPDX-License-Identifier: GPL-2.0
//! The transition of a connection from bytes to RDMA, and what reservations (`direct/reserve.c`)
//! need for it.

use abi::connection::StartFlags;
use kernel::{error::from_result, ffi::c_int, prelude::*};

use super::call;
use crate::{
    bindings,
    rdma::queues::qp::Qp,
    verbs::{Verbs, cq, tcp::toe},
};

/// Returns the completion vector with the least load, of the device of a queue pair, or a negative
/// error number.
///
/// # Safety
///
/// As for [`call`].
#[no_mangle]
unsafe extern "C" fn vrnic_any_vector(qp: *mut bindings::ib_qp) -> c_int {
    // SAFETY: the caller passes a live queue pair.
    unsafe { call(qp, |ctx, _| Ok(cq::any_vector(ctx).try_into()?)) }
}

/// Begins RDMA on the connection of a stream. Returns 0 or a negative error number.
///
/// # Safety
///
/// As for [`call`], for both queue pairs; `terms` must be valid, and `received` in it must refer to
/// as many bytes as `received_len` says.
#[no_mangle]
unsafe extern "C" fn vrnic_rdma_start(
    stream: *mut bindings::ib_qp,
    rdma: *mut bindings::ib_qp,
    terms: *const bindings::vrnic_rdma_terms,
) -> c_int {
    // SAFETY: the caller passes a valid struct.
    let raw = unsafe { &*terms };
    let mut flags = StartFlags::empty();
    flags.set(StartFlags::CRC, raw.crc);
    flags.set(StartFlags::PEER_FIRST, raw.peer_first);
    flags.set(StartFlags::SEND_MARKERS, raw.send_markers);
    flags.set(StartFlags::RECEIVE_MARKERS, raw.receive_markers);
    let received: &[u8] = match raw.received_len {
        0 => &[],
        // SAFETY: the caller passes as many bytes. CAST: to the wider type.
        len => unsafe { core::slice::from_raw_parts(raw.received.cast(), len as usize) },
    };
    let terms = toe::Terms { ird: raw.ird, ord: raw.ord, flags: flags.bits(), received };
    from_result(|| {
        // SAFETY: the caller passes live queue pairs; only a field of each is read.
        if unsafe { (*stream).device != (*rdma).device } {
            return Err(EINVAL);
        }
        // SAFETY: the caller passes live queue pairs.
        unsafe {
            Qp::<Verbs>::lend(stream, |ctx, from| {
                Qp::<Verbs>::lend(rdma, |_, to| toe::start_client(ctx, from, to, &terms))
            })
        }?;
        Ok(0)
    })
}

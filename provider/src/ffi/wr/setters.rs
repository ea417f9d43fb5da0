// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The calls that give a request that was begun its data and its destination.

use std::ffi::{c_int, c_void};
use std::slice;

use vrnic_abi::qp::AddressVector;
use vrnic_abi::sq::{DatagramSeg, MAX_SGE, Sge, XrcSeg};
use vrnic_queues::request::PostError;

use super::super::ah;
use super::super::bindings as c;
use super::super::requests::builder::To;
use super::super::requests::request::{errno, inline_pieces, segments};
use super::state;

pub(super) unsafe extern "C" fn set_ud_addr(
    qp: *mut c::ibv_qp_ex,
    handle: *mut c::ibv_ah,
    dest_qpn: u32,
    qkey: u32,
) {
    // SAFETY: `wr_start` comes first.
    let Some(state) = (unsafe { state(qp) }) else { return };
    // SAFETY: null or live, by libibverbs' promise.
    let path: Option<&AddressVector> = unsafe { ah::path(handle) };
    match path {
        Some(av) => state.set_destination(To::Datagram(DatagramSeg {
            av: *av,
            dest_qpn: dest_qpn.into(),
            qkey: qkey.into(),
        })),
        None => state.fail(errno(PostError::Address)),
    }
}

pub(super) unsafe extern "C" fn set_xrc_srqn(qp: *mut c::ibv_qp_ex, srqn: u32) {
    // SAFETY: `wr_start` comes first.
    if let Some(state) = unsafe { state(qp) } {
        state.set_destination(To::Xrc(XrcSeg { srqn: srqn.into(), ..XrcSeg::default() }));
    }
}

pub(super) unsafe extern "C" fn set_sge(qp: *mut c::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: `wr_start` comes first.
    if let Some(state) = unsafe { state(qp) } {
        let segment = Sge { addr: addr.into(), length: length.into(), lkey: lkey.into() };
        state.set_segments(&[segment]);
    }
}

pub(super) unsafe extern "C" fn set_sge_list(
    qp: *mut c::ibv_qp_ex,
    count: usize,
    list: *const c::ibv_sge,
) {
    // SAFETY: `wr_start` comes first.
    let Some(state) = (unsafe { state(qp) }) else { return };
    let count = c_int::try_from(count).unwrap_or(-1);
    // SAFETY: libibverbs promises that the array has the given length.
    match unsafe { segments(list.cast_mut(), count) } {
        Ok(segments) => state.set_segments(segments),
        Err(error) => state.fail(errno(error)),
    }
}

pub(super) unsafe extern "C" fn set_inline_data(
    qp: *mut c::ibv_qp_ex,
    addr: *mut c_void,
    length: usize,
) {
    // SAFETY: `wr_start` comes first.
    let Some(state) = (unsafe { state(qp) }) else { return };
    let bytes: &[u8] = match length {
        0 => &[],
        // SAFETY: readable memory of the caller, by libibverbs' promise.
        _ => unsafe { slice::from_raw_parts(addr.cast(), length) },
    };
    state.set_inline(&[bytes]);
}

pub(super) unsafe extern "C" fn set_inline_data_list(
    qp: *mut c::ibv_qp_ex,
    count: usize,
    list: *const c::ibv_data_buf,
) {
    // SAFETY: `wr_start` comes first.
    let Some(state) = (unsafe { state(qp) }) else { return };
    if count > MAX_SGE as usize {
        return state.fail(errno(PostError::Segments));
    }
    let mut named = [Sge::default(); MAX_SGE as usize];
    for (index, segment) in named.iter_mut().enumerate().take(count) {
        // SAFETY: libibverbs promises that the array has the given length.
        let buffer = unsafe { &*list.add(index) };
        let Ok(length) = u32::try_from(buffer.length) else {
            return state.fail(errno(PostError::Inline));
        };
        segment.addr = (buffer.addr.expose_provenance() as u64).into();
        segment.length = length.into();
    }
    let mut pieces: [&[u8]; MAX_SGE as usize] = [&[]; MAX_SGE as usize];
    // SAFETY: readable memory of the caller, by libibverbs' promise.
    match unsafe { inline_pieces(named.get(..count).unwrap_or_default(), &mut pieces) } {
        Ok(pieces) => state.set_inline(pieces),
        Err(error) => state.fail(errno(error)),
    }
}

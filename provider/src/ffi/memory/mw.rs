// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory windows. A window's key consists of its index, which the kernel gave, and an instance,
//! which the plugin chooses with each binding of a window of type 1, and the program with each
//! binding of one of type 2 (IBTA volume 1, 10.6.7.2).

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::sq::{BindMwSeg, Flags, MemFlags, Opcode};
use vrnic_abi::uverbs::Features;
use vrnic_queues::request::{Payload, SendHeader};

use crate::ffi::bindings as c;
use crate::ffi::context::Context;
use crate::ffi::object::Object;
use crate::ffi::requests::request::{check_flags, errno, send_flags};
use crate::ffi::{commands, pointer, qp, status};

type Mw = Object<c::ibv_mw, ()>;

/// The access rights of a binding have the numbers of libibverbs.
const _: () = {
    use vrnic_abi::qp::Access;
    assert!(Access::LOCAL_WRITE.bits() == c::IBV_ACCESS_LOCAL_WRITE);
    assert!(Access::REMOTE_WRITE.bits() == c::IBV_ACCESS_REMOTE_WRITE);
    assert!(Access::REMOTE_READ.bits() == c::IBV_ACCESS_REMOTE_READ);
    assert!(Access::REMOTE_ATOMIC.bits() == c::IBV_ACCESS_REMOTE_ATOMIC);
    assert!(Access::MW_BIND.bits() == c::IBV_ACCESS_MW_BIND);
    assert!(Access::ZERO_BASED.bits() == c::IBV_ACCESS_ZERO_BASED);
};

/// Implements `alloc_mw`.
pub(in crate::ffi) unsafe extern "C" fn alloc(
    pd: *mut c::ibv_pd,
    kind: c::ibv_mw_type,
) -> *mut c::ibv_mw {
    pointer(Mw::begin().and_then(|window| {
        // SAFETY: `pd` is live, `window` is ours.
        unsafe { commands::alloc_mw(pd, kind, window.base()) }?;
        Ok(window.complete(()))
    }))
}

/// Implements `dealloc_mw`.
pub(in crate::ffi) unsafe extern "C" fn dealloc(window: *mut c::ibv_mw) -> c_int {
    // SAFETY: made by `alloc`, live, and given up by the caller if this succeeds.
    unsafe { Mw::destroy(window, c::ibv_cmd_dealloc_mw) }
}

/// `bind_mw`, for windows of type 1; libibverbs has checked the type.
pub(in crate::ffi) unsafe extern "C" fn bind(
    qp: *mut c::ibv_qp,
    window: *mut c::ibv_mw,
    bind: *mut c::ibv_mw_bind,
) -> c_int {
    // SAFETY: all three are valid by libibverbs' promise.
    status(unsafe { try_bind(qp, &mut *window, &*bind, MemFlags::empty()) })
}

/// Posts the binding of a window of either type under a new key, or under its present one if the
/// flags say so.
///
/// # Safety
/// `qp` must be live, and so must the region that the binding names.
pub(in crate::ffi) unsafe fn try_bind(
    qp: *mut c::ibv_qp,
    window: &mut c::ibv_mw,
    bind: &c::ibv_mw_bind,
    flags: MemFlags,
) -> Result<(), Errno> {
    // SAFETY: the caller passes a live queue pair, which is one of this plugin.
    let queues = unsafe { qp::own(qp) }.ok_or(Errno::INVAL)?;
    check_flags(bind.send_flags).map_err(errno)?;
    let same = flags.contains(MemFlags::SAME_KEY);
    if same {
        // SAFETY: the caller passes a live queue pair, whose context is live, and one of this
        // plugin.
        unsafe { Context::of((*qp).context) }?.needs(Features::KEY_OPTIONS)?;
    }
    let rkey = if same { window.rkey } else { next_key(window.rkey) };
    let wr_flags = send_flags(bind.send_flags);
    // SAFETY: the caller passes a binding that names a live region, if any.
    let (header, segment) = unsafe { binding(bind.wr_id, wr_flags, rkey, &bind.bind_info, flags) }?;
    let posted = queues.sends().and_then(|mut batch| batch.push(header, Payload::Bind(segment)));
    posted.map_err(errno)?;
    window.rkey = rkey;
    Ok(())
}

/// Returns a request that binds the window with the key `rkey` to the memory in `info`.
///
/// # Safety
/// The region in `info` must be null or live.
pub(in crate::ffi) unsafe fn binding(
    wr_id: u64,
    flags: Flags,
    rkey: u32,
    info: &c::ibv_mw_bind_info,
    mem_flags: MemFlags,
) -> Result<(SendHeader, BindMwSeg), Errno> {
    // SAFETY: the caller passes a binding whose region is null or live.
    let lkey = match unsafe { info.mr.as_ref() } {
        Some(region) => region.lkey,
        // Unbinding names no region.
        None if info.length == 0 => 0,
        None => return Err(Errno::INVAL),
    };
    let header =
        SendHeader { wr_id, opcode: Opcode::BindMw, flags, imm: [0; 4], raddr: info.addr, rkey };
    let segment = BindMwSeg {
        length: info.length.into(),
        lkey: lkey.into(),
        access: info.mw_access_flags.into(),
        flags: mem_flags.bits(),
        ..BindMwSeg::default()
    };
    Ok((header, segment))
}

/// Returns the key of a window with the instance of `wanted`, the key that a program has chosen.
///
/// # Safety
/// `window` must be null or live.
pub(in crate::ffi) unsafe fn chosen_key(window: *const c::ibv_mw, wanted: u32) -> u32 {
    // SAFETY: the caller passes a live window, if any.
    unsafe { window.as_ref() }.map_or(wanted, |window| with_instance(window.rkey, wanted))
}

/// Returns the next key of the same index, as `ibv_inc_rkey` counts.
fn next_key(key: u32) -> u32 {
    with_instance(key, key.wrapping_add(1))
}

/// Returns the key with the index of `key` and the instance of `other`.
fn with_instance(key: u32, other: u32) -> u32 {
    key & !0xff | other & 0xff
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs: functions that programs call without libibverbs (`vrnicdv.h`, docs/vrnicdv.md).
//!
//! | module | what it holds |
//! | --- | --- |
//! | `range` | address ranges of direct transfers |
//! | `awaits` | AWAIT and marks |
//! | `stream` | TCP streams |
//! | `reserve` | reservations of what a connection needs for RDMA |
//! | `connection` | the states of TCP connections |
//! | `handover` | direct verbs of queues that another poster uses |

mod awaits;
mod connection;
mod handover;
mod range;
mod reserve;
mod stream;

use std::ffi::{c_int, c_void};

use rustix::io::Errno;
use vrnic_abi::admin::MrFlags;
use vrnic_abi::connection::StartFlags;
use vrnic_abi::sq::{CommandFlags, CommandSeg, Flags, MemFlags, Opcode, Sge};
use vrnic_queues::layout::{CommandTag, QpExtras};
use vrnic_queues::request::{Data, Payload, SendHeader};
use vrnicdv::{Command, CqAttr, CqFlags, CqState, QpAttr, QpFlags, TagForm};

use super::bindings as c;
use super::commands::NewRegion;
use super::cq::extended::CqSettings;
use super::{
    cq, cq::extended, driver, memory::mr, memory::mw, pointer, qp, qp_create, requests::request,
    status,
};

/// The header has the structs and the numbers of the Rust crate, which takes the numbers from abi.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<QpAttr>() == size_of::<c::vrnicdv_qp_attr>());
    assert!(offset_of!(QpAttr, flags) == offset_of!(c::vrnicdv_qp_attr, flags));
    assert!(offset_of!(QpAttr, tag_form) == offset_of!(c::vrnicdv_qp_attr, tag_form));
    assert!(offset_of!(QpAttr, tag_offset) == offset_of!(c::vrnicdv_qp_attr, tag_offset));
    assert!(offset_of!(QpAttr, max_command_sge) == offset_of!(c::vrnicdv_qp_attr, max_command_sge));
    assert!(size_of::<CqAttr>() == size_of::<c::vrnicdv_cq_attr>());
    assert!(offset_of!(CqAttr, flags) == offset_of!(c::vrnicdv_cq_attr, flags));
    assert!(offset_of!(CqAttr, comp_vector) == offset_of!(c::vrnicdv_cq_attr, comp_vector));
    assert!(size_of::<Command>() == size_of::<c::vrnicdv_command>());
    assert!(offset_of!(Command, mem_flags) == offset_of!(c::vrnicdv_command, mem_flags));
    assert!(offset_of!(Command, data) == offset_of!(c::vrnicdv_command, data));
    assert!(offset_of!(Command, message) == offset_of!(c::vrnicdv_command, message));
    assert!(offset_of!(Command, num_message) == offset_of!(c::vrnicdv_command, num_message));
    assert!(QpFlags::REACTIVE.bits() == c::VRNICDV_QP_REACTIVE);
    assert!(QpFlags::TOE.bits() == c::VRNICDV_QP_TOE);
    assert!(StartFlags::CRC.bits() == c::VRNICDV_RDMA_CRC);
    assert!(StartFlags::PEER_FIRST.bits() == c::VRNICDV_RDMA_PEER_FIRST);
    assert!(StartFlags::SEND_MARKERS.bits() == c::VRNICDV_RDMA_SEND_MARKERS);
    assert!(StartFlags::RECEIVE_MARKERS.bits() == c::VRNICDV_RDMA_RECEIVE_MARKERS);
    assert!(QpFlags::PUSH.bits() == c::VRNICDV_QP_PUSH);
    assert!(QpFlags::NO_SQ_KEYS.bits() == c::VRNICDV_QP_NO_SQ_KEYS);
    assert!(QpFlags::WINDOWS_ONLY.bits() == c::VRNICDV_QP_WINDOWS_ONLY);
    assert!(QpFlags::QUEUE_LENGTH.bits() == c::VRNICDV_QP_QUEUE_LENGTH);
    assert!(QpFlags::ACKNOWLEDGED.bits() == c::VRNICDV_QP_ACKNOWLEDGED);
    assert!(offset_of!(CqAttr, few) == offset_of!(c::vrnicdv_cq_attr, few));
    assert!(CqFlags::ANY_VECTOR.bits() == c::VRNICDV_CQ_ANY_VECTOR);
    assert!(CqFlags::HOLDING.bits() == c::VRNICDV_CQ_HOLDING);
    assert!(CqState::Room as u32 == c::VRNICDV_CQ_ROOM);
    assert!(CqState::Few as u32 == c::VRNICDV_CQ_FEW);
    assert!(CqState::Full as u32 == c::VRNICDV_CQ_FULL);
    assert!(CqState::Failed as u32 == c::VRNICDV_CQ_FAILED);
    assert!(vrnicdv::MemFlags::ONE_TOUCH.bits() == c::VRNICDV_MEM_ONE_TOUCH);
    assert!(vrnicdv::MemFlags::SAME_KEY.bits() == c::VRNICDV_MEM_SAME_KEY);
    assert!(vrnicdv::MemFlags::NO_LOCAL_READ.bits() == c::VRNICDV_MEM_NO_LOCAL_READ);
    assert!(TagForm::None as u32 == c::VRNICDV_TAG_NONE);
    assert!(TagForm::General as u32 == c::VRNICDV_TAG_GENERAL);
    assert!(TagForm::Iscsi as u32 == c::VRNICDV_TAG_ISCSI);
};

/// Implements `vrnicdv_is_supported`.
///
/// # Safety
/// `device` must be null or a device of libibverbs.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_is_supported(device: *mut c::ibv_device) -> bool {
    // SAFETY: the caller passes null or a device of libibverbs.
    unsafe { driver::is_ours(device) }
}

/// Implements `vrnicdv_create_qp`.
///
/// # Safety
/// The arguments must be valid, as for `ibv_create_qp`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_create_qp(
    pd: *mut c::ibv_pd,
    init_attr: *mut c::ibv_qp_init_attr,
    attr: *const c::vrnicdv_qp_attr,
) -> *mut c::ibv_qp {
    // SAFETY: the caller passes a live protection domain and valid attributes, which no other code
    // uses meanwhile.
    pointer(unsafe { create_qp(pd, &mut *init_attr, &*attr) })
}

/// # Safety
/// The requirements of [`vrnicdv_create_qp`] apply.
unsafe fn create_qp(
    pd: *mut c::ibv_pd,
    init_attr: &mut c::ibv_qp_init_attr,
    attr: &c::vrnicdv_qp_attr,
) -> Result<*mut c::ibv_qp, Errno> {
    // SAFETY: the caller passes a live protection domain, whose context is live too.
    unsafe { check_context((*pd).context) }?;
    let extras = extras(attr)?;
    let has_messages = init_attr.qp_type == c::IBV_QPT_RC;
    if (extras.acknowledged || extras.by_length && !extras.toe) && !has_messages {
        return Err(Errno::INVAL);
    }
    // A type of its own, so that no connection manager takes it for one with messages.
    if extras.toe != (init_attr.qp_type == c::IBV_QPT_DRIVER) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller passes a live protection domain and attributes whose objects are live.
    // ibv_create_qp does no more than to call this.
    unsafe { qp_create::try_create(pd, init_attr, extras) }
}

fn extras(attr: &c::vrnicdv_qp_attr) -> Result<QpExtras, Errno> {
    let flags = QpFlags::from_bits(attr.flags).ok_or(Errno::INVAL)?;
    let (toe, push) = (flags.contains(QpFlags::TOE), flags.contains(QpFlags::PUSH));
    let by_length = flags.contains(QpFlags::QUEUE_LENGTH);
    if push && !toe || toe && attr.tag_form != c::VRNICDV_TAG_NONE {
        return Err(Errno::INVAL);
    }
    let no_sq_keys = flags.contains(QpFlags::NO_SQ_KEYS);
    let windows_only = flags.contains(QpFlags::WINDOWS_ONLY);
    if toe && (no_sq_keys || windows_only) {
        return Err(Errno::INVAL);
    }
    let tag = |iscsi| Some(CommandTag { iscsi, offset: attr.tag_offset });
    let commands = match attr.tag_form {
        c::VRNICDV_TAG_NONE if attr.tag_offset == 0 => None,
        c::VRNICDV_TAG_GENERAL => tag(false),
        c::VRNICDV_TAG_ISCSI => tag(true),
        _ => return Err(Errno::INVAL),
    };
    let reactive = flags.contains(QpFlags::REACTIVE);
    let max_command_sge = attr.max_command_sge;
    Ok(QpExtras {
        reactive,
        toe,
        push,
        no_sq_keys,
        windows_only,
        by_length,
        acknowledged: flags.contains(QpFlags::ACKNOWLEDGED),
        commands,
        max_command_sge,
        ..QpExtras::default()
    })
}

/// Implements `vrnicdv_create_cq`.
///
/// # Safety
/// The arguments must be valid, as for `ibv_create_cq_ex`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_create_cq(
    context: *mut c::ibv_context,
    init_attr: *mut c::ibv_cq_init_attr_ex,
    attr: *mut c::vrnicdv_cq_attr,
) -> *mut c::ibv_cq_ex {
    // SAFETY: the caller passes a live context and valid attributes, which no other code uses
    // meanwhile.
    pointer(unsafe { create_cq(context, &mut *init_attr, attr) })
}

/// # Safety
/// The requirements of [`vrnicdv_create_cq`] apply.
unsafe fn create_cq(
    context: *mut c::ibv_context,
    init_attr: &mut c::ibv_cq_init_attr_ex,
    attr: *mut c::vrnicdv_cq_attr,
) -> Result<*mut c::ibv_cq_ex, Errno> {
    // SAFETY: the caller passes a live context.
    unsafe { check_context(context) }?;
    // SAFETY: the caller passes attributes with this field.
    let flags = unsafe { (&raw const (*attr).flags).read() };
    let any_vector = flags & c::VRNICDV_CQ_ANY_VECTOR != 0;
    let known = c::VRNICDV_CQ_ANY_VECTOR | c::VRNICDV_CQ_HOLDING;
    if flags & !known != 0 || any_vector && init_attr.comp_vector != 0 {
        return Err(Errno::INVAL);
    }
    // Attributes of programs that do not know the flag end before the field.
    let holding = (flags & c::VRNICDV_CQ_HOLDING != 0)
        // SAFETY: the caller passes attributes that have this field, as the flag says.
        .then(|| unsafe { (&raw const (*attr).few).read() });
    let settings = CqSettings { any_vector, holding };
    // SAFETY: the caller passes a live context and attributes whose objects are live. The rest of
    // what ibv_create_cq_ex does is in `verbs_init_cq`.
    unsafe {
        let cq = extended::try_create(context, init_attr, settings)?;
        c::verbs_init_cq(cq.cast(), context, init_attr.channel, init_attr.cq_context);
        let vector = cq::whole(cq.cast()).ok_or(Errno::IO)?.vector;
        (&raw mut (*attr).comp_vector).write(vector);
        Ok(cq)
    }
}

/// Implements `vrnicdv_query_cq`.
///
/// # Safety
/// `cq` must be a live completion queue, and `state` valid.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_query_cq(cq: *mut c::ibv_cq, state: *mut u32) -> c_int {
    // SAFETY: the caller passes a live completion queue.
    let found = unsafe { query_cq(cq) };
    status(found.map(|found| {
        // SAFETY: the caller passes a valid place.
        unsafe { state.write(found as u32) };
    }))
}

/// # Safety
/// `cq` must be a live completion queue.
unsafe fn query_cq(cq: *mut c::ibv_cq) -> Result<CqState, Errno> {
    // SAFETY: the caller passes a live completion queue, whose context is live too.
    unsafe { check_context((*cq).context) }?;
    // SAFETY: the caller passes a live completion queue, which is one of this plugin.
    let queue = unsafe { cq::own(cq) }.ok_or(Errno::INVAL)?;
    queue.state().ok_or(Errno::IO)
}

/// Implements `vrnicdv_reg_mr`.
///
/// # Safety
/// The arguments must be valid, as for `ibv_reg_mr`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_reg_mr(
    pd: *mut c::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
    mem_flags: u32,
) -> *mut c::ibv_mr {
    // SAFETY: the caller passes a live protection domain, and lets the device use the memory as the
    // rights say.
    pointer(unsafe { reg_mr(pd, addr, length, access, mem_flags) })
}

/// # Safety
/// The requirements of [`vrnicdv_reg_mr`] apply.
unsafe fn reg_mr(
    pd: *mut c::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
    mem_flags: u32,
) -> Result<*mut c::ibv_mr, Errno> {
    // SAFETY: the caller passes a live protection domain, whose context is live too.
    unsafe { check_context((*pd).context) }?;
    let mut flags = MrFlags::empty();
    let allowed = MemFlags::ONE_TOUCH | MemFlags::NO_LOCAL_READ;
    let asked = memory_flags(mem_flags, allowed)?;
    flags.set(MrFlags::ONE_TOUCH, asked.contains(MemFlags::ONE_TOUCH));
    flags.set(MrFlags::NO_LOCAL_READ, asked.contains(MemFlags::NO_LOCAL_READ));
    // CAST: an address of this process, as the region's first address.
    let new = NewRegion { addr, length, iova: addr as u64, access, flags };
    // SAFETY: the caller passes a live protection domain.
    let raw = unsafe { mr::try_reg(pd, &new) }?;
    // SAFETY: just made, and no other code knows it.
    let region = unsafe { &mut *raw };
    // The rest of what ibv_reg_mr does is to fill these fields.
    // SAFETY: the caller passes a live protection domain.
    region.context = unsafe { (*pd).context };
    (region.pd, region.addr, region.length) = (pd, addr, length);
    Ok(raw)
}

/// Implements `vrnicdv_bind_mw`.
///
/// # Safety
/// The arguments must be valid, as for `ibv_bind_mw`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_bind_mw(
    qp: *mut c::ibv_qp,
    window: *mut c::ibv_mw,
    bind: *mut c::ibv_mw_bind,
    mem_flags: u32,
) -> c_int {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    let bound = unsafe { check_context((*qp).context) }.and_then(|()| {
        let flags = memory_flags(mem_flags, MemFlags::ONE_TOUCH | MemFlags::SAME_KEY)?;
        // SAFETY: the caller passes a live queue pair and window, and a valid binding whose region
        // is null or live.
        unsafe { mw::try_bind(qp, &mut *window, &*bind, flags) }
    });
    status(bound)
}

/// Implements `vrnicdv_post_command`.
///
/// # Safety
/// The arguments must be valid: arrays of the given lengths, inline data readable.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vrnicdv_post_command(
    qp: *mut c::ibv_qp,
    command: *const c::vrnicdv_command,
) -> c_int {
    // SAFETY: the caller passes a live queue pair and a valid command, with arrays of the given
    // lengths.
    status(unsafe { post_command(qp, &*command) })
}

/// # Safety
/// The requirements of [`vrnicdv_post_command`] apply.
unsafe fn post_command(qp: *mut c::ibv_qp, command: &c::vrnicdv_command) -> Result<(), Errno> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    unsafe { check_context((*qp).context) }?;
    // SAFETY: the caller passes a live queue pair, which is one of this plugin.
    let queues = unsafe { qp::own(qp) }.ok_or(Errno::INVAL)?;
    // SAFETY: the caller passes a command whose arrays have the given lengths.
    let data = unsafe { segments(command.data, command.num_data) }?;
    // SAFETY: the caller passes a command whose arrays have the given lengths.
    let message = unsafe { segments(command.message, command.num_message) }?;
    let inline: [&[u8]; 1];
    let message = match (command.send_flags & c::IBV_SEND_INLINE != 0, message) {
        (false, message) => Data::Segments(message),
        (true, [one]) => {
            // SAFETY: the caller passes inline data that is readable, and that no code writes
            // meanwhile.
            inline = [unsafe { request::inline_piece(one) }];
            Data::Inline(&inline)
        }
        (true, _) => return Err(Errno::INVAL),
    };
    let mut flags = CommandFlags::empty();
    let memory = memory_flags(command.mem_flags, MemFlags::ONE_TOUCH)?;
    flags.set(CommandFlags::ONE_TOUCH, memory.contains(MemFlags::ONE_TOUCH));
    let segment = CommandSeg {
        access: command.access.into(),
        tag_offset: command.tag_offset.into(),
        data_count: u16::try_from(data.len()).map_err(|_| Errno::INVAL)?.into(),
        flags: flags.bits(),
        ..CommandSeg::default()
    };
    request::check_flags(command.send_flags).map_err(request::errno)?;
    let flags: Flags = request::send_flags(command.send_flags);
    let (wr_id, opcode) = (command.wr_id, Opcode::SendCmd);
    let header = SendHeader { wr_id, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 };
    let payload = Payload::Command(segment, data, message);
    queues.sends().and_then(|mut batch| batch.push(header, payload)).map_err(request::errno)
}

/// # Safety
/// `list` must hold `count` segments that live for `'a`.
unsafe fn segments<'a>(list: *mut c::ibv_sge, count: u32) -> Result<&'a [Sge], Errno> {
    let count = c_int::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller passes a list of this many segments.
    unsafe { request::segments(list, count) }.map_err(request::errno)
}

/// Returns the flags of a program, if all of them are allowed.
fn memory_flags(given: u32, allowed: MemFlags) -> Result<MemFlags, Errno> {
    let flags = u8::try_from(given).ok().and_then(MemFlags::from_bits);
    flags.filter(|flags| allowed.contains(*flags)).ok_or(Errno::INVAL)
}

/// # Safety
/// `context` must be live.
pub(super) unsafe fn check_context(context: *mut c::ibv_context) -> Result<(), Errno> {
    // SAFETY: the caller passes a live context, whose device is libibverbs'.
    match unsafe { driver::is_ours((*context).device) } {
        true => Ok(()),
        false => Err(Errno::OPNOTSUPP),
    }
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Work queues, tables of them, and queue pairs that spread frames over the work queues of a table.
//! A work queue is a queue pair of raw packets without sends, to the plugin as to the adapter.

use std::ffi::c_int;

use rustix::io::Errno;
use vrnic_abi::qp::State;
use vrnic_abi::rss::{KEY_LEN, LOG_ENTRIES_MAX};
use vrnic_abi::uverbs::{Features, QpResp, SpreadReq};
use vrnic_queues::allocator::Resource;
use vrnic_queues::cq::CompletionQueue;
use vrnic_queues::heap::Shared;
use vrnic_queues::layout::{QpCap, QpExtras, QpLayout, QpRings, WqeHeader};
use vrnic_queues::policy::SqPolicy;
use vrnic_queues::qp::{QpParts, QueuePair};
use vrnic_queues::source::Source;

use super::bindings as c;
use super::context::Context;
use super::object::Object;
use super::qp::{Own, Qp};
use super::requests::builder::Builder;
use super::requests::request::answer;
use super::{check, commands, cq, pd, pointer, post, status};

/// A work queue.
type Wq = Object<c::ibv_wq, OwnWq>;

/// The plugin's part of a work queue.
struct OwnWq {
    queues: QueuePair,
    /// The completion queue of the work queue.
    cq: Shared<CompletionQueue>,
}

/// A table of work queues. The plugin's part is the completion queue of the first entry.
type Table = Object<c::ibv_rwq_ind_table, Shared<CompletionQueue>>;

/// The properties of queue pairs of raw packets.
const EXTRAS: QpExtras = QpExtras {
    header: WqeHeader::Raw,
    reactive: false,
    toe: false,
    push: false,
    no_sq_keys: false,
    windows_only: false,
    by_length: false,
    acknowledged: false,
    block_loopback: false,
    commands: None,
    max_command_sge: 0,
    max_headers: 0,
};

/// Implements `create_wq`.
pub(super) unsafe extern "C" fn create(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_wq_init_attr,
) -> *mut c::ibv_wq {
    // SAFETY: the arguments are libibverbs' own, and no other code uses `attr` meanwhile.
    pointer(unsafe { try_create(context, &mut *attr) })
}

/// # Safety
/// The context and the objects in `attr` must be live.
unsafe fn try_create(
    context: *mut c::ibv_context,
    attr: &mut c::ibv_wq_init_attr,
) -> Result<*mut c::ibv_wq, Errno> {
    // SAFETY: the caller passes a live context.
    let own = unsafe { Context::of(context) }?;
    own.needs(Features::SPREADS)?;
    let has_flags = attr.comp_mask & c::IBV_WQ_INIT_ATTR_FLAGS != 0;
    if attr.comp_mask & !c::IBV_WQ_INIT_ATTR_FLAGS != 0 || has_flags && attr.create_flags != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    // libibverbs may pass them on although the mask does not name them.
    attr.create_flags = 0;
    if attr.wq_type != c::IBV_WQT_RQ || attr.max_wr == 0 {
        return Err(Errno::INVAL);
    }
    let cap = QpCap {
        max_send_wr: 0,
        max_recv_wr: attr.max_wr,
        max_send_sge: 0,
        max_recv_sge: attr.max_sge,
        max_inline: 0,
    };
    let layout = QpLayout::new(&cap, &own.limits, SqPolicy::Guest, EXTRAS)?;
    // SAFETY: the caller passes attributes whose protection domain is null or live.
    let rings = QpRings::allocate(layout, &unsafe { pd::source(own, attr.pd, Resource::Wq) })?;
    // SAFETY: the caller passes attributes whose completion queue is null or live.
    let cq = unsafe { cq::own(attr.cq) }.ok_or(Errno::INVAL)?;
    let wq = Wq::begin()?;
    // SAFETY: the objects are live, `wq` is ours.
    let response = unsafe { commands::create_wq(context, attr, wq.base(), rings.request()) }?;
    // SAFETY: the caller passes null or a live protection domain.
    match unsafe { open(own, attr.pd, cq, rings, &cap, &response) } {
        Ok(queues) => {
            // SAFETY: `wq` is ours, and no code knows it yet.
            unsafe { (*wq.base()).post_recv = Some(post_recv) };
            Ok(wq.complete(OwnWq { queues, cq: cq.clone() }))
        }
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_wq(wq.base()) };
            Err(error)
        }
    }
}

/// Returns the queues of a new object, whose completions all go to `cq`.
///
/// # Safety
/// `pd` must be null or live.
unsafe fn open(
    context: &Context,
    pd: *mut c::ibv_pd,
    cq: &Shared<CompletionQueue>,
    rings: QpRings,
    cap: &QpCap,
    response: &QpResp,
) -> Result<QueuePair, Errno> {
    let parts = QpParts {
        uar: context.uar(response.uar, response.uar_mmap.get())?,
        device_send: None,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        all_signaled: false,
        // SAFETY: the caller passes null or a live protection domain.
        sharing: unsafe { pd::sharing(pd) },
    };
    QueuePair::new(rings, cap, response, parts)
}

/// Implements `modify_wq`.
pub(super) unsafe extern "C" fn modify(wq: *mut c::ibv_wq, attr: *mut c::ibv_wq_attr) -> c_int {
    let mut command = c::ibv_modify_wq::default();
    // SAFETY: the arguments are libibverbs' own; the command has the given length.
    let result =
        check(unsafe { c::ibv_cmd_modify_wq(wq, attr, &raw mut command, size_of_val(&command)) });
    // SAFETY: the arguments are libibverbs' own, which lets them live during the call.
    let (own, mask, state) = unsafe { (Wq::own(wq), (*attr).attr_mask, (*attr).wq_state) };
    if let Some(own) = own
        && result.is_ok()
        && mask & c::IBV_WQ_ATTR_STATE != 0
    {
        own.queues.entered(match state {
            c::IBV_WQS_RESET => State::Reset,
            c::IBV_WQS_RDY => State::Rtr,
            _ => State::Err,
        });
    }
    status(result)
}

/// Implements `destroy_wq`.
pub(super) unsafe extern "C" fn destroy(wq: *mut c::ibv_wq) -> c_int {
    // SAFETY: made by `create`, live, and given up by the caller if this succeeds.
    unsafe { Wq::destroy(wq, c::ibv_cmd_destroy_wq) }
}

/// `ibv_wq::post_recv`.
unsafe extern "C" fn post_recv(
    wq: *mut c::ibv_wq,
    list: *mut c::ibv_recv_wr,
    bad: *mut *mut c::ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a live work queue of this plugin.
    let Some(own) = (unsafe { Wq::own(wq) }) else { return status(Err(Errno::INVAL)) };
    let mut next = list;
    // SAFETY: the list is valid by libibverbs' promise.
    let posted = unsafe { post::recv_list(&own.queues, &mut next) };
    // SAFETY: valid by libibverbs' promise.
    unsafe { answer(posted, next, bad) }
}

/// Implements `create_rwq_ind_table`.
pub(super) unsafe extern "C" fn create_table(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_rwq_ind_table_init_attr,
) -> *mut c::ibv_rwq_ind_table {
    // SAFETY: the arguments are libibverbs' own.
    pointer(unsafe { try_create_table(context, attr) })
}

/// # Safety
/// The context must be live, and `attr` valid, with as many live work queues as it names.
unsafe fn try_create_table(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_rwq_ind_table_init_attr,
) -> Result<*mut c::ibv_rwq_ind_table, Errno> {
    // SAFETY: the caller passes a live context.
    unsafe { Context::of(context) }?.needs(Features::SPREADS)?;
    // SAFETY: the caller passes valid attributes.
    let (log_entries, entries) = unsafe { ((*attr).log_ind_tbl_size, (*attr).ind_tbl) };
    // libibverbs computes a length from the number.
    if log_entries > LOG_ENTRIES_MAX.into() || entries.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller passes live work queues of this plugin, of which there is one at least.
    let first = unsafe { Wq::own(*entries) }.ok_or(Errno::INVAL)?;
    let table = Table::begin()?;
    let mut response = c::ib_uverbs_ex_create_rwq_ind_table_resp::default();
    // SAFETY: the objects are live, `table` is ours; the response has the given length.
    check(unsafe {
        c::ibv_cmd_create_rwq_ind_table(
            context,
            attr,
            table.base(),
            &raw mut response,
            size_of_val(&response),
        )
    })?;
    Ok(table.complete(first.cq.clone()))
}

/// Implements `destroy_rwq_ind_table`.
pub(super) unsafe extern "C" fn destroy_table(table: *mut c::ibv_rwq_ind_table) -> c_int {
    // SAFETY: made by `create_table`, live, and given up by the caller if this succeeds.
    unsafe { Table::destroy(table, c::ibv_cmd_destroy_rwq_ind_table) }
}

/// Attributes of a queue pair that spreads. All but the flags must be given.
const ATTRIBUTES: u32 = NEEDED | c::IBV_QP_INIT_ATTR_CREATE_FLAGS;
const NEEDED: u32 =
    c::IBV_QP_INIT_ATTR_PD | c::IBV_QP_INIT_ATTR_IND_TABLE | c::IBV_QP_INIT_ATTR_RX_HASH;

/// Creates a queue pair that spreads frames over the work queues of a table.
///
/// # Safety
/// The context and the objects in `attr` must be live, and the key of the hash as long as it says.
pub(super) unsafe fn create_spreading(
    context: *mut c::ibv_context,
    attr: &mut c::ibv_qp_init_attr_ex,
) -> Result<*mut c::ibv_qp, Errno> {
    // SAFETY: the caller passes a live context.
    let own = unsafe { Context::of(context) }?;
    own.needs(Features::SPREADS)?;
    let hash = &attr.rx_hash_conf;
    let has_flags = attr.comp_mask & c::IBV_QP_INIT_ATTR_CREATE_FLAGS != 0;
    if attr.comp_mask & !ATTRIBUTES != 0
        || attr.qp_type != c::IBV_QPT_RAW_PACKET
        || has_flags && attr.create_flags != 0
        || attr.cap.max_send_wr != 0
        || u32::from(hash.rx_hash_function) != c::IBV_RX_HASH_FUNC_TOEPLITZ
    {
        return Err(Errno::OPNOTSUPP);
    }
    let key = hash.rx_hash_key.cast::<[u8; KEY_LEN]>();
    if attr.comp_mask & NEEDED != NEEDED
        || usize::from(hash.rx_hash_key_len) != KEY_LEN
        || key.is_null()
    {
        return Err(Errno::INVAL);
    }
    let fields = hash.rx_hash_fields_mask.into();
    // SAFETY: the caller passes a key of the length that was checked above.
    let request = SpreadReq { fields, key: unsafe { key.read() } };
    // SAFETY: the caller passes a live table of this plugin.
    let cq = unsafe { Table::own(attr.rwq_ind_tbl) }.ok_or(Errno::INVAL)?;
    let none = QpLayout { send: None, recv: None, send_in_device: false, extras: EXTRAS };
    let cap =
        QpCap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline: 0 };
    let qp = Qp::begin()?;
    // SAFETY: the objects are live, `qp` is ours.
    let response = unsafe { commands::create_spreading_qp(context, qp.base(), attr, request) }?;
    // SAFETY: the caller passes a live protection domain.
    let opened = QpRings::allocate(none, &Source::pages(Resource::Qp))
        .and_then(|rings| unsafe { open(own, attr.pd, cq, rings, &cap, &response) });
    match opened {
        Ok(queues) => Ok(qp.complete(Own { builder: Builder::default(), queues }).cast()),
        Err(error) => {
            // SAFETY: just created. If that fails too, the kernel destroys it with the context.
            let _ = unsafe { c::ibv_cmd_destroy_qp(qp.base().cast()) };
            Err(error)
        }
    }
}

//! Queue pairs.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::calls::pointers::originals;
use crate::calls::real::interpose;
use crate::calls::writes;
use crate::checker::{here, inside, watch};
use crate::ffi::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_RESET,
    ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::model::objects::{Events, Limits, QueuePair};
use crate::model::tables::Tables;
use crate::model::{ends, events};
use crate::stack::Place;

/// What a queue pair was created with.
struct Wanted {
    pd: *mut ibv_pd,
    capacity: ibv_qp_cap,
    all_signaled: bool,
    is_extended: bool,
}

/// Notes a queue pair.
fn created(tables: &Tables, qp: *mut ibv_qp, wanted: &Wanted, place: Place) {
    // SAFETY: the library has just returned it.
    let found = unsafe { &*qp };
    let context = found.context as usize;
    let Some(device) = tables.devices.get(context) else { return };
    let capacity = &wanted.capacity;
    let send_queue = tables.completion_queues.get(found.send_cq as usize);
    let receive_queue = tables.completion_queues.get(found.recv_cq as usize);
    let is_unseen = (!found.send_cq.is_null() && send_queue.is_none())
        || (!found.recv_cq.is_null() && receive_queue.is_none());
    let shared = tables.shared.get(found.srq as usize);
    if let Some(shared) = shared.as_ref().filter(|_| is_unseen) {
        shared.is_doubtful.store(true, Ordering::Relaxed);
    }
    let pair = QueuePair {
        device: Arc::clone(&device),
        device_address: context,
        domain: if wanted.pd.is_null() { 0 } else { tables.base(wanted.pd as usize) },
        number: found.qp_num,
        kind: found.qp_type,
        limits: Limits {
            sends: capacity.max_send_wr as usize,
            receives: capacity.max_recv_wr as usize,
            send_segments: capacity.max_send_sge as usize,
            receive_segments: capacity.max_recv_sge as usize,
            inline: u64::from(capacity.max_inline_data),
        },
        all_signaled: wanted.all_signaled,
        send_queue,
        receive_queue,
        shared,
        made: place,
        is_extended: wanted.is_extended,
        is_unseen,
        events: Events::default(),
        queues: Arc::default(),
    };
    let number = pair.number;
    let pair = tables.pairs.insert(qp as usize, pair);
    device.pairs.write().insert(number, pair);
}

interpose! {
    /// Creates a queue pair.
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp,
        or ptr::null_mut(); |real| {
        let qp = real();
        if !qp.is_null() {
            watch(|tables| {
                // SAFETY: the call has succeeded, and has filled in what the queue pair has.
                let attr = unsafe { &*attr };
                let all_signaled = attr.sq_sig_all != 0;
                let wanted = Wanted { pd, capacity: attr.cap, all_signaled, is_extended: false };
                created(tables, qp, &wanted, here("ibv_create_qp"));
            });
        }
        qp
    }

    /// Changes a queue pair.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int,
        or libc::ENOSYS; |real| {
        let error = real();
        if error == 0 && mask.cast_unsigned() & IBV_QP_STATE != 0 {
            watch(|tables| {
                let pair = tables.pairs.get(qp as usize)?;
                // SAFETY: the call has succeeded, and so has read it.
                let state = unsafe { (*attr).qp_state };
                let mut queues = pair.queues.lock();
                if state == IBV_QPS_RESET {
                    ends::end_requests(tables, &pair, &mut queues, here("ibv_modify_qp"));
                    queues.is_doubtful = false;
                    queues.failed = None;
                }
                queues.state = state;
                Some(())
            });
        }
        error
    }

    /// Asks for the state of a queue pair.
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int,
        init: *mut ibv_qp_init_attr) -> c_int, or libc::ENOSYS; |real| {
        let error = real();
        if error == 0 && mask.cast_unsigned() & IBV_QP_STATE != 0 {
            watch(|tables| {
                let pair = tables.pairs.get(qp as usize)?;
                // SAFETY: the call has succeeded, and so has filled it in.
                if unsafe { (*attr).qp_state } == IBV_QPS_ERR {
                    pair.queues.lock().state = IBV_QPS_ERR;
                }
                Some(())
            });
        }
        error
    }

    /// Destroys a queue pair.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int, or libc::ENOSYS; |real| {
        let place = watch(|_| here("ibv_destroy_qp")).unwrap_or_default();
        let pair = watch(|tables| {
            let pair = tables.pairs.get(qp as usize)?;
            events::check_end(&pair.events, &pair.name(), place);
            pair.device.pairs.write().remove(&pair.number);
            tables.pairs.remove(qp as usize)
        });
        let Some(pair) = pair.flatten() else { return real() };
        let replaced = writes::replaced(qp.cast());
        let error = real();
        watch(|tables| {
            if error == 0 {
                ends::end_requests(tables, &pair, &mut pair.queues.lock(), place);
                writes::forget(qp.cast(), replaced.as_ref());
            } else {
                pair.device.pairs.write().insert(pair.number, Arc::clone(&pair));
                tables.pairs.restore(qp as usize, Arc::clone(&pair));
            }
        });
        error
    }
}

/// Creates a queue pair with further attributes.
///
/// # Safety
/// The conditions of `ibv_create_qp_ex` apply.
pub(super) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let original = originals(context).and_then(|originals| originals.create_qp_ex);
    let Some(original) = original else { return ptr::null_mut() };
    // SAFETY: the program calls this function with these arguments.
    let qp = inside(|| unsafe { original(context, attr) });
    if qp.is_null() {
        return qp;
    }
    watch(|tables| {
        // SAFETY: the call has succeeded, and has filled in what the queue pair has.
        let attr = unsafe { &*attr };
        let has = |flag: u32| attr.comp_mask & flag != 0;
        let is_extended = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
        let wanted = Wanted {
            pd: if has(IBV_QP_INIT_ATTR_PD) { attr.pd } else { ptr::null_mut() },
            capacity: attr.cap,
            all_signaled: attr.sq_sig_all != 0,
            is_extended,
        };
        created(tables, qp, &wanted, here("ibv_create_qp_ex"));
        if is_extended {
            // SAFETY: a queue pair with these operations has the larger struct, and nobody else
            // knows it yet.
            unsafe { writes::replace(qp.cast()) };
        }
    });
    qp
}

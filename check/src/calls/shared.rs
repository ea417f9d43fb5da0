//! Shared receive queues.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::calls::pointers::originals;
use crate::calls::real::interpose;
use crate::checker::{here, inside, watch};
use crate::ffi::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, ibv_context, ibv_cq, ibv_pd, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::model::objects::{Events, SharedQueue};
use crate::model::tables::Tables;
use crate::model::{ends, events};
use crate::stack::Place;

/// The flag of `ibv_modify_srq` that changes the size.
const MAX_WR: c_int = 1;

/// Notes a shared receive queue.
fn created(
    tables: &Tables,
    srq: *mut ibv_srq,
    attr: &ibv_srq_attr,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    place: Place,
) {
    // SAFETY: the library has just returned it.
    let context = unsafe { (*srq).context } as usize;
    let Some(device) = tables.devices.get(context) else { return };
    let is_unseen = !cq.is_null() && tables.completion_queues.get(cq as usize).is_none();
    let queue = SharedQueue {
        number: tables.shared.next_number(),
        device,
        device_address: context,
        domain: if pd.is_null() { 0 } else { tables.base(pd as usize) },
        completes: cq as usize,
        size: AtomicUsize::new(attr.max_wr as usize),
        segments: attr.max_sge as usize,
        made: place,
        events: Events::default(),
        is_doubtful: AtomicBool::new(is_unseen),
        requests: Arc::default(),
    };
    tables.shared.insert(srq as usize, queue);
}

interpose! {
    /// Creates a shared receive queue.
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq,
        or ptr::null_mut(); |real| {
        let srq = real();
        if !srq.is_null() {
            // SAFETY: the call has succeeded, and has filled in what the queue has.
            let attr = unsafe { (*attr).attr };
            watch(|tables| {
                created(tables, srq, &attr, pd, ptr::null_mut(), here("ibv_create_srq"));
            });
        }
        srq
    }

    /// Changes a shared receive queue.
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int,
        or libc::ENOSYS; |real| {
        let error = real();
        watch(|tables| {
            let shared = tables.shared.get(srq as usize)?;
            if error == 0 && mask & MAX_WR != 0 {
                // SAFETY: the call has succeeded, and so has read it.
                shared.size.store(unsafe { (*attr).max_wr } as usize, Ordering::Relaxed);
            }
            Some(())
        });
        error
    }

    /// Destroys a shared receive queue.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int, or libc::ENOSYS; |real| {
        let place = watch(|_| here("ibv_destroy_srq")).unwrap_or_default();
        let shared = watch(|tables| {
            let shared = tables.shared.get(srq as usize)?;
            if user_of_shared(tables, &shared).is_none() {
                events::check_end(&shared.events, &shared.name(), place);
            }
            tables.shared.remove(srq as usize)
        });
        let Some(shared) = shared.flatten() else { return real() };
        let error = real();
        watch(|tables| {
            if error == 0 {
                shared.requests.lock().clear(None);
                return;
            }
            if error == libc::EBUSY {
                let user = user_of_shared(tables, &shared);
                let user = user.unwrap_or_else(|| "an object".to_owned());
                ends::refused(&shared.name(), &user, shared.made, place);
            }
            tables.shared.restore(srq as usize, Arc::clone(&shared));
        });
        error
    }
}

/// Returns the name of a queue pair that uses a shared queue.
fn user_of_shared(tables: &Tables, shared: &Arc<SharedQueue>) -> Option<String> {
    let pairs = tables.pairs.all();
    let is = |other: &Option<Arc<SharedQueue>>| {
        other.as_ref().is_some_and(|other| Arc::ptr_eq(other, shared))
    };
    pairs.iter().find(|pair| is(&pair.shared)).map(|pair| pair.name())
}

/// Creates a shared receive queue of any kind.
///
/// # Safety
/// The conditions of `ibv_create_srq_ex` apply.
pub(super) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let original = originals(context).and_then(|originals| originals.create_srq_ex);
    let Some(original) = original else { return ptr::null_mut() };
    // SAFETY: the program calls this function with these arguments.
    let srq = inside(|| unsafe { original(context, attr) });
    if !srq.is_null() {
        watch(|tables| {
            // SAFETY: the call has succeeded, and has filled in what the queue has.
            let attr = unsafe { &*attr };
            let has = |flag: u32| attr.comp_mask & flag != 0;
            let pd = if has(IBV_SRQ_INIT_ATTR_PD) { attr.pd } else { ptr::null_mut() };
            let cq = if has(IBV_SRQ_INIT_ATTR_CQ) { attr.cq } else { ptr::null_mut() };
            created(tables, srq, &attr.attr, pd, cq, here("ibv_create_srq_ex"));
        });
    }
    srq
}

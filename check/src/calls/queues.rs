//! Completion queues, their channels and events.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::calls::pointers::originals;
use crate::calls::polls;
use crate::calls::real::interpose;
use crate::checker::{here, inside, watch};
use crate::ffi::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, IBV_EVENT_COMM_EST,
    IBV_EVENT_CQ_ERR, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_QP_ACCESS_ERR,
    IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED,
    IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_WC_EX_WITH_QP_NUM, ibv_async_event,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
};
use crate::model::ends;
use crate::model::events;
use crate::model::objects::{Channel, CompletionQueue, Events};
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;
use crate::stack::Place;

/// Which completion queue is created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Extended,
    ExtendedThatMayOverrun,
}

/// Notes a completion queue.
fn created(tables: &Tables, cq: *mut ibv_cq, kind: Kind, place: Place) {
    if cq.is_null() {
        return;
    }
    // SAFETY: the library has just returned it.
    let (device, channel, size) =
        unsafe { ((*cq).context as usize, (*cq).channel as usize, i64::from((*cq).cqe)) };
    let queue = CompletionQueue {
        number: tables.completion_queues.next_number(),
        device,
        channel,
        made: place,
        size: AtomicI64::new(size),
        sends: AtomicI64::new(0),
        receives: AtomicI64::new(0),
        events: Events::default(),
        async_events: Events::default(),
        is_extended: kind != Kind::Plain,
        may_overrun: kind == Kind::ExtendedThatMayOverrun,
        polled_since: AtomicBool::new(false),
        ever_polled: AtomicBool::new(false),
        armed: Mutex::default(),
        polling: Arc::default(),
    };
    tables.completion_queues.insert(cq as usize, queue);
}

interpose! {
    /// Creates a channel of completion events.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel,
        or ptr::null_mut(); |real| {
        let channel = real();
        watch(|tables| {
            if !channel.is_null() {
                let made = here("ibv_create_comp_channel");
                let object = Channel { device: context as usize, made };
                tables.channels.insert(channel as usize, object);
            }
        });
        channel
    }

    /// Destroys a channel of completion events.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int, or libc::ENOSYS; |real| {
        let object = watch(|tables| tables.channels.remove(channel as usize)).flatten();
        let error = real();
        if error != 0 && let Some(object) = object {
            watch(|tables| {
                if error == libc::EBUSY {
                    let place = here("ibv_destroy_comp_channel");
                    let name = "a channel of completion events";
                    ends::refused(name, "a completion queue", object.made, place);
                }
                tables.channels.restore(channel as usize, object);
            });
        }
        error
    }

    /// Creates a completion queue.
    fn ibv_create_cq(context: *mut ibv_context, size: c_int, user: *mut c_void,
        channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq, or ptr::null_mut(); |real| {
        let cq = real();
        watch(|tables| created(tables, cq, Kind::Plain, here("ibv_create_cq")));
        cq
    }

    /// Changes the size of a completion queue.
    fn ibv_resize_cq(cq: *mut ibv_cq, size: c_int) -> c_int, or libc::ENOSYS; |real| {
        let error = real();
        watch(|tables| {
            if let Some(queue) = tables.completion_queues.get(cq as usize) {
                // SAFETY: the program has a live queue.
                queue.size.store(i64::from(unsafe { (*cq).cqe }), Ordering::Relaxed);
            }
        });
        error
    }

    /// Destroys a completion queue.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int, or libc::ENOSYS; |real| {
        let place = watch(|_| here("ibv_destroy_cq")).unwrap_or_default();
        let queue = watch(|tables| {
            let queue = tables.completion_queues.get(cq as usize)?;
            if user_of_queue(tables, &queue).is_none() {
                events::check_end(&queue.events, &queue.name(), place);
                events::check_end(&queue.async_events, &queue.name(), place);
            }
            tables.completion_queues.remove(cq as usize)
        });
        let replaced = polls::replaced(cq.cast());
        let error = real();
        if error == 0 {
            watch(|_| polls::forget(cq.cast(), replaced.as_ref()));
        } else if let Some(queue) = queue.flatten() {
            watch(|tables| {
                if error == libc::EBUSY {
                    let user = user_of_queue(tables, &queue);
                    let user = user.unwrap_or_else(|| "an object".to_owned());
                    ends::refused(&queue.name(), &user, queue.made, place);
                }
                tables.completion_queues.restore(cq as usize, queue);
            });
        }
        error
    }

    /// Waits for a completion event.
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq,
        user: *mut *mut c_void) -> c_int, or -1; |real| {
        let place = watch(|_| here("ibv_get_cq_event")).unwrap_or_default();
        if report::options().hints {
            watch(|tables| events::check_wait(tables, channel as usize, place));
        }
        let error = real();
        if error == 0 {
            watch(|tables| {
                // SAFETY: the call has succeeded, and so has filled it in.
                let queue = tables.completion_queues.get(unsafe { *cq } as usize)?;
                events::received(&queue.events, place);
                *queue.armed.lock() = None;
                Some(())
            });
        }
        error
    }

    /// Acknowledges completion events.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) -> (); |real| {
        watch(|tables| {
            let queue = tables.completion_queues.get(cq as usize)?;
            let place = here("ibv_ack_cq_events");
            events::acknowledged(&queue.events, u64::from(count), &queue.name(), place);
            Some(())
        });
        real();
    }

    /// Waits for an event of a device.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int,
        or -1; |real| {
        let error = real();
        if error == 0 {
            watch(|tables| {
                let place = here("ibv_get_async_event");
                // SAFETY: the call has succeeded, and so has filled it in.
                let event = unsafe { &*event };
                with_events(tables, event, |events, _| events::received(events, place));
                overrun(tables, event, place);
            });
        }
        error
    }

    /// Acknowledges an event of a device.
    fn ibv_ack_async_event(event: *mut ibv_async_event) -> (); |real| {
        watch(|tables| {
            let place = here("ibv_ack_async_event");
            // SAFETY: the program passes an event.
            with_events(tables, unsafe { &*event }, |events, name| {
                events::acknowledged(events, 1, name, place);
            });
        });
        real();
    }
}

/// Calls a function with the counts of the object of an event, and its name.
fn with_events(tables: &Tables, event: &ibv_async_event, call: impl FnOnce(&Events, &str)) {
    // SAFETY: the library has filled in a pointer, or a number, which is not used.
    let address = unsafe { event.element.cq } as usize;
    match event.event_type {
        IBV_EVENT_CQ_ERR => {
            if let Some(queue) = tables.completion_queues.get(address) {
                call(&queue.async_events, &queue.name());
            }
        }
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => {
            if let Some(pair) = tables.pairs.get(address) {
                call(&pair.events, &pair.name());
            }
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            if let Some(queue) = tables.shared.get(address) {
                call(&queue.events, &queue.name());
            }
        }
        _ => {}
    }
}

/// Reports a queue that has overrun.
fn overrun(tables: &Tables, event: &ibv_async_event, place: Place) {
    if event.event_type != IBV_EVENT_CQ_ERR {
        return;
    }
    // SAFETY: events of this type have a completion queue.
    let address = unsafe { event.element.cq } as usize;
    let Some(queue) = tables.completion_queues.get(address) else { return };
    let size = queue.size.load(Ordering::Relaxed);
    report::report(&Finding {
        rule: Rule::CqOverrun,
        is_hint: false,
        text: format!("{}, which holds {size} completions, has overrun", queue.name()),
        began: Some(queue.made),
        shown: place,
    });
}

/// Returns the name of a queue pair that uses a completion queue.
fn user_of_queue(tables: &Tables, queue: &Arc<CompletionQueue>) -> Option<String> {
    let is = |other: &Option<Arc<CompletionQueue>>| {
        other.as_ref().is_some_and(|other| Arc::ptr_eq(other, queue))
    };
    let pairs = tables.pairs.all();
    let pair = pairs.iter().find(|pair| is(&pair.send_queue) || is(&pair.receive_queue));
    pair.map(|pair| pair.name())
}

/// Creates a completion queue with the extended interface.
///
/// # Safety
/// The conditions of `ibv_create_cq_ex` apply.
pub(super) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let original = originals(context).and_then(|originals| originals.create_cq_ex);
    let Some(original) = original else { return ptr::null_mut() };
    // Completions are of use here only with the number of their queue pair.
    // SAFETY: the program passes attributes.
    let (flags, mask, wanted) = unsafe { ((*attr).wc_flags, (*attr).comp_mask, (*attr).flags) };
    let may_overrun =
        mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && wanted & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0;
    let kind = if may_overrun { Kind::ExtendedThatMayOverrun } else { Kind::Extended };
    // SAFETY: the program passes attributes that can be written, and finds them as they were.
    let cq = unsafe {
        (*attr).wc_flags = flags | u64::from(IBV_WC_EX_WITH_QP_NUM);
        let cq = inside(|| original(context, attr));
        (*attr).wc_flags = flags;
        cq
    };
    watch(|tables| {
        created(tables, cq.cast(), kind, here("ibv_create_cq_ex"));
        if !cq.is_null() {
            // SAFETY: the library has just returned it, and nobody else knows it yet.
            unsafe { polls::replace(cq) };
        }
    });
    cq
}

//! Polls of the extended interface, in which the program looks at one completion at a time.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::LazyLock;

use parking_lot::RwLock;

use crate::checker::{here, inside, tables, watch};
use crate::ffi::{IBV_WC_SUCCESS, ibv_cq_ex, ibv_poll_cq_attr};
use crate::model::completions::{self, Completion};

/// What the functions return if the original is missing (`ENOENT` means an empty queue).
const EMPTY: c_int = libc::ENOENT;

/// The pointers of a queue before they were replaced.
#[derive(Clone, Copy)]
struct Originals {
    start: unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
    next: unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int,
}

static ORIGINALS: LazyLock<RwLock<HashMap<usize, Originals>>> = LazyLock::new(RwLock::default);

fn originals(cq: *mut ibv_cq_ex) -> Option<Originals> {
    ORIGINALS.read().get(&(cq as usize)).copied()
}

/// Replaces the pointers of a queue.
///
/// # Safety
/// The queue was created with the extended interface, and no other thread knows it yet.
pub(super) unsafe fn replace(cq: *mut ibv_cq_ex) {
    // SAFETY: as the caller promises.
    let queue = unsafe { &mut *cq };
    let (Some(start), Some(next)) = (queue.start_poll, queue.next_poll) else { return };
    ORIGINALS.write().insert(cq as usize, Originals { start, next });
    queue.start_poll = Some(start_poll);
    queue.next_poll = Some(next_poll);
}

/// Forgets a queue that was destroyed.
pub(super) fn forget(cq: *mut ibv_cq_ex) {
    ORIGINALS.write().remove(&(cq as usize));
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some(Originals { start, .. }) = originals(cq) else { return EMPTY };
    watch(|tables| {
        let queue = tables.completion_queues.get(cq as usize)?;
        completions::polled(&queue);
        Some(())
    });
    // SAFETY: the program calls this function with these arguments.
    let error = inside(|| unsafe { start(cq, attr) });
    if error == 0 {
        // SAFETY: the queue shows a completion.
        watch(|_| unsafe { look(cq, "ibv_start_poll") });
    }
    error
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    let Some(Originals { next, .. }) = originals(cq) else { return EMPTY };
    // SAFETY: the program calls this function with these arguments.
    let error = inside(|| unsafe { next(cq) });
    if error == 0 {
        // SAFETY: the queue shows a completion.
        watch(|_| unsafe { look(cq, "ibv_next_poll") });
    }
    error
}

/// Notes the completion that a queue shows.
///
/// # Safety
/// The queue shows one.
unsafe fn look(cq: *mut ibv_cq_ex, call: &'static str) -> Option<()> {
    // SAFETY: as the caller promises, the fields and functions can be used.
    let (context, completion) = unsafe {
        let queue = &*cq;
        let opcode = match queue.read_opcode {
            Some(read) if queue.status == IBV_WC_SUCCESS => read(cq),
            _ => 0,
        };
        let pair = queue.read_qp_num.map(|read| read(cq))?;
        (queue.context as usize, Completion { id: queue.wr_id, status: queue.status, opcode, pair })
    };
    let tables = tables();
    let queue = tables.completion_queues.get(cq as usize)?;
    let device = tables.devices.get(context)?;
    completions::completed(tables, &device, &queue, &completion, here(call));
    Some(())
}

//! Polls of the extended interface, in which the program looks at one completion at a time.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

use foldhash::fast::FixedState;
use parking_lot::RwLock;

use crate::checker::{here, inside, tables, watch};
use crate::ffi::{IBV_WC_SUCCESS, ibv_cq_ex, ibv_poll_cq_attr};
use crate::model::completions::{self, Completion};

/// What the functions return if the original is missing (`ENOENT` means an empty queue).
const EMPTY: c_int = libc::ENOENT;

/// The pointers of a queue before they were replaced.
pub(super) struct Originals {
    start: unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
    next: unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int,
}

/// The pointers of a queue that were replaced.
pub(super) type Replaced = Arc<Originals>;

static ORIGINALS: LazyLock<RwLock<HashMap<usize, Replaced, FixedState>>> =
    LazyLock::new(RwLock::default);

/// Returns one of the original pointers of a queue.
fn original<F>(cq: *mut ibv_cq_ex, choose: impl FnOnce(&Originals) -> F) -> Option<F> {
    ORIGINALS.read().get(&(cq as usize)).map(|originals| choose(originals))
}

/// Keeps the pointers as they are until [`let_go`], while the process forks.
pub(super) fn hold() {
    std::mem::forget(ORIGINALS.write());
}

/// Ends [`hold`], in this process or in the forked one.
pub(super) fn let_go() {
    // SAFETY: the calling thread holds the lock, or is the copy of the thread that does.
    unsafe { ORIGINALS.force_unlock_write() };
}

/// Returns what was replaced in a queue.
pub(super) fn replaced(cq: *mut ibv_cq_ex) -> Option<Replaced> {
    ORIGINALS.read().get(&(cq as usize)).cloned()
}

/// Replaces the pointers of a queue.
///
/// # Safety
/// The queue was created with the extended interface, and no other thread knows it yet.
pub(super) unsafe fn replace(cq: *mut ibv_cq_ex) {
    // SAFETY: as the caller promises.
    let queue = unsafe { &mut *cq };
    let (Some(start), Some(next)) = (queue.start_poll, queue.next_poll) else { return };
    ORIGINALS.write().insert(cq as usize, Arc::new(Originals { start, next }));
    queue.start_poll = Some(start_poll);
    queue.next_poll = Some(next_poll);
}

/// Forgets a queue that was destroyed, unless a new one has its address already.
pub(super) fn forget(cq: *mut ibv_cq_ex, replaced: Option<&Replaced>) {
    let mut all = ORIGINALS.write();
    let found = all.get(&(cq as usize));
    if found.zip(replaced).is_some_and(|(found, old)| Arc::ptr_eq(found, old)) {
        all.remove(&(cq as usize));
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some(start) = original(cq, |originals| originals.start) else { return EMPTY };
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
    let Some(next) = original(cq, |originals| originals.next) else { return EMPTY };
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

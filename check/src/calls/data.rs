//! Posts and polls, which programs call by pointers in the device.

use std::ffi::c_int;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::calls::pointers::originals;
use crate::checker::{here, inside, watch};
use crate::ffi::{
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr,
    ibv_sge, ibv_srq, ibv_wc,
};
use crate::model::completions::{self, Completion};
use crate::model::posts::{self, Side};
use crate::model::regions::Sge;
use crate::model::requests::{Batch, Posted, Sges};

/// `post_send` of a device.
pub(super) type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// `post_recv` of a device.
pub(super) type PostReceive =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `post_srq_recv` of a device.
pub(super) type PostShared =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// `poll_cq` of a device.
pub(super) type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
/// `req_notify_cq` of a device.
pub(super) type Arm = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;

/// Most requests of one call that are looked at. A list that goes round would not end.
const REQUESTS: usize = 1 << 20;

/// Returns segments that a program passes.
///
/// # Safety
/// There are `count` segments in the list.
pub(super) unsafe fn segments(list: *const ibv_sge, count: usize) -> Sges {
    if list.is_null() || count == 0 {
        return Sges::new();
    }
    // SAFETY: as the caller promises.
    let list = unsafe { slice::from_raw_parts(list, count) };
    let sge = |sge: &ibv_sge| Sge { address: sge.addr, length: sge.length, key: sge.lkey };
    list.iter().map(sge).collect()
}

/// A request of a list that a program posts.
trait WorkRequest: Sized {
    /// Returns the next one of the list.
    fn next(&self) -> *mut Self;

    /// Returns the request without its segments, the first of these, and their number.
    fn parts(&self) -> (Posted, *const ibv_sge, c_int);
}

impl WorkRequest for ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn parts(&self) -> (Posted, *const ibv_sge, c_int) {
        let (id, opcode, flags) = (self.wr_id, Some(self.opcode), self.send_flags);
        let target = match self.opcode {
            // SAFETY: a write has these attributes, which are plain numbers.
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => Some(unsafe { self.wr.rdma.rkey }),
            _ => None,
        };
        let posted = Posted { id, opcode, flags, target, ..Posted::default() };
        (posted, self.sg_list, self.num_sge)
    }
}

impl WorkRequest for ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn parts(&self) -> (Posted, *const ibv_sge, c_int) {
        let (id, opcode, flags) = (self.wr_id, None, 0);
        let posted = Posted { id, opcode, flags, ..Posted::default() };
        (posted, self.sg_list, self.num_sge)
    }
}

/// Returns the requests of a list, each of at most this number of segments.
///
/// # Safety
/// The list ends with a null pointer, and all segments exist.
unsafe fn requests<W: WorkRequest>(mut wr: *const W, most: usize) -> Batch {
    let mut all = Batch::new();
    // SAFETY: as the caller promises.
    while let Some(request) = unsafe { wr.as_ref() } {
        let (mut posted, list, count) = request.parts();
        posted.count = usize::try_from(count).unwrap_or(0);
        // SAFETY: as the caller promises.
        posted.segments = unsafe { segments(list, posted.count.min(most)) };
        all.push(posted);
        wr = request.next();
        if all.len() >= REQUESTS {
            break;
        }
    }
    all
}

/// Returns how many requests of a list are before the one that was refused, if there was an error.
///
/// # Safety
/// The list ends with a null pointer, and `bad` can be read if it is not null.
unsafe fn taken<W: WorkRequest>(error: c_int, mut wr: *mut W, bad: *mut *mut W) -> usize {
    if error == 0 || bad.is_null() {
        return 0;
    }
    // SAFETY: as the caller promises.
    let bad = unsafe { *bad };
    let mut count = 0;
    while !wr.is_null() && wr != bad && count < REQUESTS {
        count += 1;
        // SAFETY: as the caller promises.
        wr = unsafe { (*wr).next() };
    }
    if wr.is_null() { 0 } else { count }
}

/// Posts a list to a queue of a queue pair, with the function of its device. `name` is that of the
/// call.
///
/// # Safety
/// The conditions of this function apply.
unsafe fn post<W: WorkRequest>(
    original: Option<unsafe extern "C" fn(*mut ibv_qp, *mut W, *mut *mut W) -> c_int>,
    (side, name): (Side, &'static str),
    qp: *mut ibv_qp,
    wr: *mut W,
    bad: *mut *mut W,
) -> c_int {
    let Some(original) = original else { return libc::EOPNOTSUPP };
    let posting = watch(|tables| {
        let pair = tables.pairs.get(qp as usize)?;
        let most = match side {
            Side::Sends => pair.limits.send_segments,
            Side::Receives => pair.limits.receive_segments,
        };
        // SAFETY: the program passes a list.
        let posted = unsafe { requests(wr, most) };
        Some(posts::begin(tables, pair, side, posted, here(name)))
    });
    // SAFETY: the program calls this function with these arguments.
    let error = inside(|| unsafe { original(qp, wr, bad) });
    if let Some(posting) = posting.flatten() {
        watch(|_| {
            // SAFETY: the list still exists, and the library has set `bad`.
            posting.finish(error, unsafe { taken(error, wr, bad) });
        });
    }
    error
}

/// Posts to a send queue.
///
/// # Safety
/// The conditions of `ibv_post_send` apply.
pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program has a live queue pair.
    let context = unsafe { (*qp).context };
    let original = originals(context).and_then(|originals| originals.ops.post_send);
    // SAFETY: the program calls this function with these arguments.
    unsafe { post(original, (Side::Sends, "ibv_post_send"), qp, wr, bad) }
}

/// Posts to a receive queue.
///
/// # Safety
/// The conditions of `ibv_post_recv` apply.
pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program has a live queue pair.
    let context = unsafe { (*qp).context };
    let original = originals(context).and_then(|originals| originals.ops.post_recv);
    // SAFETY: the program calls this function with these arguments.
    unsafe { post(original, (Side::Receives, "ibv_post_recv"), qp, wr, bad) }
}

/// Posts to a shared receive queue.
///
/// # Safety
/// The conditions of `ibv_post_srq_recv` apply.
pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program has a live queue.
    let context = unsafe { (*srq).context };
    let original = originals(context).and_then(|originals| originals.ops.post_srq_recv);
    let Some(original) = original else { return libc::EOPNOTSUPP };
    let posting = watch(|tables| {
        let shared = tables.shared.get(srq as usize)?;
        // SAFETY: the program passes a list.
        let posted = unsafe { requests(wr, shared.segments) };
        let place = here("ibv_post_srq_recv");
        let numbers = posts::begin_shared(tables, &shared, posted, place);
        Some((shared, numbers, place))
    });
    // SAFETY: the program calls this function with these arguments.
    let error = inside(|| unsafe { original(srq, wr, bad) });
    if let Some((shared, numbers, place)) = posting.flatten() {
        watch(|_| {
            // SAFETY: the list still exists, and the library has set `bad`.
            let taken = unsafe { taken(error, wr, bad) };
            posts::finish_shared(&shared, numbers, place, error, taken);
        });
    }
    error
}

/// Polls a completion queue.
///
/// # Safety
/// The conditions of `ibv_poll_cq` apply.
pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program has a live queue.
    let context = unsafe { (*cq).context };
    let original = originals(context).and_then(|originals| originals.ops.poll_cq);
    let Some(original) = original else { return -1 };
    let queue = watch(|tables| tables.completion_queues.get(cq as usize)).flatten();
    let polling = queue.as_ref().map(|queue| Arc::clone(&queue.polling));
    // The extended interface holds a lock of the library between its calls, which would wait for
    // this one.
    let is_plain = queue.as_ref().is_some_and(|queue| !queue.is_extended);
    let held = polling.as_ref().filter(|_| is_plain).map(|polling: &Arc<Mutex<()>>| polling.lock());
    // SAFETY: the program calls this function with these arguments.
    let count = inside(|| unsafe { original(cq, most, wc) });
    if let Some(queue) = &queue {
        watch(|tables| {
            completions::polled(queue);
            let count = usize::try_from(count).unwrap_or(0);
            let device = tables.devices.get(context as usize).filter(|_| count > 0)?;
            let place = here("ibv_poll_cq");
            // SAFETY: the library has filled in these completions.
            for wc in unsafe { slice::from_raw_parts(wc, count) } {
                let completion = Completion {
                    id: wc.wr_id,
                    status: wc.status,
                    opcode: wc.opcode,
                    pair: wc.qp_num,
                };
                completions::completed(tables, &device, queue, &completion, place);
            }
            Some(())
        });
    }
    drop(held);
    count
}

/// Arms a completion queue.
///
/// # Safety
/// The conditions of `ibv_req_notify_cq` apply.
pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    // SAFETY: the program has a live queue.
    let context = unsafe { (*cq).context };
    let original = originals(context).and_then(|originals| originals.ops.req_notify_cq);
    let Some(original) = original else { return libc::EOPNOTSUPP };
    watch(|tables| {
        let queue = tables.completion_queues.get(cq as usize)?;
        let expected = queue.sends.load(Ordering::Relaxed) + queue.receives.load(Ordering::Relaxed);
        // If nothing can have completed since the last poll, no event is lost.
        let is_late = queue.ever_polled.load(Ordering::Relaxed) && expected > 0;
        *queue.armed.lock() = is_late.then(|| here("ibv_req_notify_cq"));
        queue.polled_since.store(false, Ordering::Relaxed);
        Some(())
    });
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(cq, solicited) })
}

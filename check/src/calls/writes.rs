//! Posts of the extended interface, in which several calls make up requests. Between the first and
//! the last of them, the library holds a lock of the queue pair.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::{Arc, LazyLock};

use foldhash::fast::FixedState;
use parking_lot::RwLock;
use smallvec::smallvec;

use crate::calls::data::segments;
use crate::checker::{here, inside, watch};
use crate::ffi::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, IBV_WR_TSO, ibv_data_buf, ibv_mw, ibv_mw_bind_info,
    ibv_qp_ex, ibv_sge,
};
use crate::model::posts::{self, Side};
use crate::model::regions::Sge;
use crate::model::requests::{Batch, Posted, Sges};

/// The pointers of a queue pair before they were replaced: a copy of all.
type Originals = ibv_qp_ex;

/// A copy of a queue pair, of which only the pointers to functions are used.
#[derive(Clone, Copy)]
pub(super) struct Copied(Originals);

// SAFETY: only pointers to functions are read of it.
unsafe impl Send for Copied {}
// SAFETY: as above.
unsafe impl Sync for Copied {}

/// The pointers of a queue pair that were replaced.
pub(super) type Replaced = Arc<Copied>;

static ORIGINALS: LazyLock<RwLock<HashMap<usize, Replaced, FixedState>>> =
    LazyLock::new(RwLock::default);

/// Returns one of the original pointers of a queue pair.
fn original<F>(qp: *mut ibv_qp_ex, choose: impl FnOnce(&Originals) -> Option<F>) -> Option<F> {
    ORIGINALS.read().get(&(qp as usize)).and_then(|copied| choose(&copied.0))
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

/// Returns what was replaced in a queue pair.
pub(super) fn replaced(qp: *mut ibv_qp_ex) -> Option<Replaced> {
    ORIGINALS.read().get(&(qp as usize)).cloned()
}

/// Forgets a queue pair that was destroyed, unless a new one has its address already.
pub(super) fn forget(qp: *mut ibv_qp_ex, replaced: Option<&Replaced>) {
    let mut all = ORIGINALS.write();
    let found = all.get(&(qp as usize));
    if found.zip(replaced).is_some_and(|(found, old)| Arc::ptr_eq(found, old)) {
        all.remove(&(qp as usize));
    }
}

/// Changes the requests that are being made.
fn change(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Batch)) {
    watch(|tables| {
        let pair = tables.pairs.get(qp as usize)?;
        change(&mut pair.queues.lock().session);
        Some(())
    });
}

/// Adds a request, with the identifier and flags that the program has set.
fn add(qp: *mut ibv_qp_ex, opcode: u32) {
    // SAFETY: the program has a live queue pair with these fields.
    let (id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // Data are inline if the program says so by the call that gives them.
    let flags = flags & !IBV_SEND_INLINE;
    change(qp, |session| {
        session.push(Posted { id, opcode: Some(opcode), flags, ..Posted::default() });
    });
}

/// Gives the last request its segments.
fn set(qp: *mut ibv_qp_ex, flags: u32, segments: Sges) {
    change(qp, |session| {
        if let Some(last) = session.last_mut() {
            last.flags |= flags;
            last.count = segments.len();
            last.segments = segments;
        }
    });
}

/// Defines functions that add a request of an opcode.
macro_rules! requests {
    ($(fn $name:ident($($arg:ident: $type:ty),*) = $opcode:expr;)*) => {
        $(
            unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $arg: $type)*) {
                let Some(original) = original(qp, |originals| originals.$name) else { return };
                add(qp, $opcode);
                // SAFETY: the program calls this function with these arguments.
                inside(|| unsafe { original(qp $(, $arg)*) });
            }
        )*

        /// Replaces the pointers that add a request, as far as there are any.
        fn replace_requests(pair: &mut ibv_qp_ex) {
            $(
                if pair.$name.is_some() {
                    pair.$name = Some($name);
                }
            )*
        }
    };
}

requests! {
    fn wr_atomic_cmp_swp(rkey: u32, to: u64, compare: u64, swap: u64) = IBV_WR_ATOMIC_CMP_AND_SWP;
    fn wr_atomic_fetch_add(rkey: u32, to: u64, add: u64) = IBV_WR_ATOMIC_FETCH_AND_ADD;
    fn wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) = IBV_WR_BIND_MW;
    fn wr_local_inv(rkey: u32) = IBV_WR_LOCAL_INV;
    fn wr_rdma_read(rkey: u32, from: u64) = IBV_WR_RDMA_READ;
    fn wr_rdma_write(rkey: u32, to: u64) = IBV_WR_RDMA_WRITE;
    fn wr_rdma_write_imm(rkey: u32, to: u64, immediate: u32) = IBV_WR_RDMA_WRITE_WITH_IMM;
    fn wr_send() = IBV_WR_SEND;
    fn wr_send_imm(immediate: u32) = IBV_WR_SEND_WITH_IMM;
    fn wr_send_inv(rkey: u32) = IBV_WR_SEND_WITH_INV;
    fn wr_send_tso(header: *mut c_void, length: u16, mss: u16) = IBV_WR_TSO;
}

/// Replaces the pointers of a queue pair.
///
/// # Safety
/// The queue pair was created with the extended interface, and no other thread knows it yet.
pub(super) unsafe fn replace(qp: *mut ibv_qp_ex) {
    // SAFETY: as the caller promises. Fields of later releases of the library are at the end of the
    // struct, and are not used; memory of the larger struct of the library follows there.
    let copied = Copied(unsafe { qp.read() });
    ORIGINALS.write().insert(qp as usize, Arc::new(copied));
    // SAFETY: as the caller promises.
    let pair = unsafe { &mut *qp };
    replace_requests(pair);
    pair.wr_set_inline_data = pair.wr_set_inline_data.and(Some(wr_set_inline_data));
    pair.wr_set_inline_data_list = pair.wr_set_inline_data_list.and(Some(wr_set_inline_data_list));
    pair.wr_set_sge = pair.wr_set_sge.and(Some(wr_set_sge));
    pair.wr_set_sge_list = pair.wr_set_sge_list.and(Some(wr_set_sge_list));
    pair.wr_start = pair.wr_start.and(Some(wr_start));
    pair.wr_complete = pair.wr_complete.and(Some(wr_complete));
    pair.wr_abort = pair.wr_abort.and(Some(wr_abort));
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, data: *mut c_void, length: usize) {
    let Some(original) = original(qp, |originals| originals.wr_set_inline_data) else { return };
    let length_of = u32::try_from(length).unwrap_or(u32::MAX);
    set(qp, IBV_SEND_INLINE, smallvec![Sge { length: length_of, ..Sge::default() }]);
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(qp, data, length) });
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let chosen = original(qp, |originals| originals.wr_set_inline_data_list);
    let Some(original) = chosen else { return };
    let mut length = 0_usize;
    if !list.is_null() && count > 0 {
        // SAFETY: the program passes a list of this length.
        for part in unsafe { slice::from_raw_parts(list, count) } {
            length = length.saturating_add(part.length);
        }
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    set(qp, IBV_SEND_INLINE, smallvec![Sge { length, ..Sge::default() }]);
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(qp, count, list) });
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, key: u32, address: u64, length: u32) {
    let Some(original) = original(qp, |originals| originals.wr_set_sge) else { return };
    set(qp, 0, smallvec![Sge { address, length, key }]);
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(qp, key, address, length) });
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let Some(original) = original(qp, |originals| originals.wr_set_sge_list) else { return };
    // SAFETY: the program passes a list of this length.
    set(qp, 0, unsafe { segments(list, count) });
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(qp, count, list) });
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    let Some(original) = original(qp, |originals| originals.wr_start) else { return };
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(qp) });
    // Only now does the library hold back other threads.
    change(qp, Batch::clear);
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    let Some(original) = original(qp, |originals| originals.wr_abort) else { return };
    change(qp, Batch::clear);
    // SAFETY: the program calls this function with these arguments.
    inside(|| unsafe { original(qp) });
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let chosen = original(qp, |originals| originals.wr_complete);
    let Some(original) = chosen else { return libc::EOPNOTSUPP };
    let posting = watch(|tables| {
        let pair = tables.pairs.get(qp as usize)?;
        let posted = std::mem::take(&mut pair.queues.lock().session);
        Some(posts::begin(tables, pair, Side::Sends, posted, here("ibv_wr_complete")))
    });
    // SAFETY: the program calls this function with these arguments.
    let error = inside(|| unsafe { original(qp) });
    if let Some(posting) = posting.flatten() {
        // Either all requests are taken, or none.
        watch(|_| posting.finish(error, 0));
    }
    error
}

//! Bindings to the public APIs of libibverbs and librdmacm, generated at build time from their
//! headers, and the calls that verbs.h has only as inline functions: these use the function table
//! in the context.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    dead_code,
    rust_2018_idioms,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::cast_lossless,
    clippy::ptr_cast_constness
)]

use std::os::raw::c_int;

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));

/// The result of a call if the provider does not have the operation.
const NO_OPERATION: c_int = 95; // EOPNOTSUPP

/// Declares the calls that verbs.h has as inline functions, which use the table in the context of
/// their first argument. `else` is their result if the provider does not have the operation.
macro_rules! inlines {
    ($($(#[$doc:meta])*
        fn $name:ident($object:ident: $type:ty $(, $param:ident: $of:ty)*) -> $result:ty,
            else $missing:expr;)*) => {$(
        $(#[$doc])*
        pub unsafe fn $name($object: $type $(, $param: $of)*) -> $result {
            // SAFETY: a live object has a live context, whose table the library filled.
            match unsafe { (*(*$object).context).ops.$name } {
                // SAFETY: as the caller promises.
                Some(call) => unsafe { call($object $(, $param)*) },
                None => $missing,
            }
        }
    )*};
}

inlines! {
    /// `ibv_post_send`.
    ///
    /// # Safety
    /// `qp` is live, `wr` a list that ends with a null `next`, `bad` writable.
    fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr)
        -> c_int, else NO_OPERATION;

    /// `ibv_post_recv`.
    ///
    /// # Safety
    /// The conditions of [`post_send`] apply.
    fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr)
        -> c_int, else NO_OPERATION;

    /// `ibv_post_srq_recv`.
    ///
    /// # Safety
    /// The conditions of [`post_send`] apply.
    fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr)
        -> c_int, else NO_OPERATION;

    /// `ibv_alloc_mw`.
    ///
    /// # Safety
    /// `pd` is live.
    fn alloc_mw(pd: *mut ibv_pd, mw_type: ibv_mw_type) -> *mut ibv_mw, else std::ptr::null_mut();

    /// `ibv_dealloc_mw`.
    ///
    /// # Safety
    /// `mw` is live, and not used any more afterwards.
    fn dealloc_mw(mw: *mut ibv_mw) -> c_int, else NO_OPERATION;

    /// `ibv_bind_mw` without its checks of the arguments, which are left to the provider and the
    /// device here.
    ///
    /// # Safety
    /// `qp`, `mw` and the region in `bind` are live.
    fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind)
        -> c_int, else NO_OPERATION;

    /// `ibv_poll_cq`.
    ///
    /// # Safety
    /// `cq` is live, `wc` has room for `n` entries.
    fn poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int, else -NO_OPERATION;

    /// `ibv_req_notify_cq`.
    ///
    /// # Safety
    /// `cq` is live.
    fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int, else NO_OPERATION;
}

/// Returns the extended table of operations, which is located before the context.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn extended<'a>(context: *mut ibv_context) -> &'a verbs_context {
    let offset = std::mem::offset_of!(verbs_context, context);
    // SAFETY: every context that a plugin of this library creates is the last part of an extended
    // context.
    unsafe { &*context.byte_sub(offset).cast::<verbs_context>() }
}

/// `ibv_dealloc_td`.
///
/// # Safety
/// `td` is live, and not used any more afterwards.
pub unsafe fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: a live thread domain has a live context.
    match unsafe { extended((*td).context) }.dealloc_td {
        // SAFETY: as the caller promises.
        Some(call) => unsafe { call(td) },
        None => NO_OPERATION,
    }
}
/// `ibv_free_dm`.
///
/// # Safety
/// `memory` is live, and not used any more afterwards.
pub unsafe fn free_dm(memory: *mut ibv_dm) -> c_int {
    // SAFETY: live memory has a live context.
    match unsafe { extended((*memory).context) }.free_dm {
        // SAFETY: as the caller promises.
        Some(call) => unsafe { call(memory) },
        None => NO_OPERATION,
    }
}

/// `ibv_destroy_wq`.
///
/// # Safety
/// `wq` is live, and not used any more afterwards.
pub unsafe fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    // SAFETY: a live work queue has a live context.
    match unsafe { extended((*wq).context) }.destroy_wq {
        // SAFETY: as the caller promises.
        Some(call) => unsafe { call(wq) },
        None => NO_OPERATION,
    }
}

/// `ibv_destroy_rwq_ind_table`.
///
/// # Safety
/// `table` is live, and not used any more afterwards.
pub unsafe fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    // SAFETY: a live table has a live context.
    match unsafe { extended((*table).context) }.destroy_rwq_ind_table {
        // SAFETY: as the caller promises.
        Some(call) => unsafe { call(table) },
        None => NO_OPERATION,
    }
}

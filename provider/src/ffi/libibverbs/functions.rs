// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The functions and the layout of the libibverbs that has loaded the plugin. Most functions have
//! the same type in every release, and are in `bindings`; the others are here.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use vrnic_layouts::{BUILT_OPS, IBV_CONTEXT_SIZE, LAYOUTS, Layout, MAX_CONTEXT_SIZE, MAX_OPS};

use super::library::Library;
use crate::ffi::bindings::{self as c, indexes};

/// An operation, whatever its type is.
type Op = Option<unsafe extern "C" fn()>;

/// The layout of the library.
static LAYOUT: OnceLock<&'static Layout> = OnceLock::new();

/// The layout of the headers, with which the structs of `bindings` agree.
const BUILT: &Layout = {
    let mut index = 0;
    while *LAYOUTS[index].releases.end() < vrnic_layouts::BUILT {
        index += 1;
    }
    &LAYOUTS[index]
};

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<c::ibv_context>() == IBV_CONTEXT_SIZE);
    assert!(size_of::<c::verbs_context>() == BUILT.context_size);
    assert!(offset_of!(c::verbs_context, context) == BUILT.context_offset());
    assert!(offset_of!(c::verbs_context, sz) == BUILT.context_sz_offset());
    assert!(size_of::<c::verbs_qp>() == BUILT.qp_size);
    assert!(offset_of!(c::verbs_qp, comp_mask) == BUILT.qp_comp_mask_offset());
    assert!(size_of::<c::verbs_context_ops>() == BUILT_OPS * size_of::<Op>());
    // Room for a queue pair of the headers is enough for every layout.
    let mut index = 0;
    while index < LAYOUTS.len() {
        assert!(LAYOUTS[index].qp_size <= BUILT.qp_size);
        index += 1;
    }
};

/// Bytes of a context that libibverbs may use. It fills them before the plugin can check its
/// layout, so there are more than any known layout has.
const CONTEXT_ROOM: usize = 1024;
const _: () = assert!(CONTEXT_ROOM >= MAX_CONTEXT_SIZE);

/// A `verbs_context` of any layout.
#[repr(C, align(8))]
pub(in crate::ffi) struct AnyContext([u8; CONTEXT_ROOM]);

/// A `verbs_context_ops` of any layout.
#[repr(C)]
pub(in crate::ffi) struct AnyOps([Op; MAX_OPS]);

/// Binds the plugin to a library. Fails with the name of a function that the library lacks.
pub(in crate::ffi) fn bind(
    library: &Library,
    layout: &'static Layout,
) -> Result<(), &'static CStr> {
    for (name, address) in c::FUNCTIONS.into_iter().zip(&c::ADDRESSES) {
        let found = library.function(name).ok_or(name)?;
        address.store(found.as_ptr(), Ordering::Relaxed);
    }
    // Only the constructor calls this, once.
    let _ = LAYOUT.set(layout);
    Ok(())
}

/// Returns the layout of the library that has loaded the plugin.
#[inline]
pub(in crate::ffi) fn layout() -> &'static Layout {
    LAYOUT.get().copied().unwrap_or(BUILT)
}

/// Returns the table of operations as the library has it.
pub(in crate::ffi) fn arrange(ops: c::verbs_context_ops) -> AnyOps {
    // SAFETY: the struct consists of as many optional functions, as the assertions above say.
    let ops: [Op; BUILT_OPS] = unsafe { std::mem::transmute(ops) };
    let (mut table, mut ops) = ([None; MAX_OPS], ops.into_iter());
    let layout = layout();
    for (slot, entry) in table.iter_mut().enumerate() {
        if !layout.added_ops.iter().any(|added| added.slot == slot) {
            *entry = ops.next().flatten();
        }
    }
    AnyOps(table)
}

/// `ibv_cmd_get_context`.
///
/// # Safety
/// The requirements of the C function apply.
pub(in crate::ffi) unsafe fn get_context(
    context: *mut c::verbs_context,
    command: *mut c::ibv_get_context,
    length: usize,
    response: *mut c::ib_uverbs_get_context_resp,
    room: usize,
) -> c_int {
    type Later = unsafe extern "C" fn(
        *mut c::verbs_context,
        *mut c::ibv_get_context,
        usize,
        *mut c_void,
        *mut c::ib_uverbs_get_context_resp,
        usize,
    ) -> c_int;
    if !layout().get_context_takes_files {
        // SAFETY: the caller's promise.
        return unsafe { c::ibv_cmd_get_context(context, command, length, response, room) };
    }
    let address = c::ADDRESSES[indexes::ibv_cmd_get_context].load(Ordering::Relaxed);
    // SAFETY: the function has this type in the library's layout.
    let later: Later = unsafe { std::mem::transmute(address) };
    // SAFETY: the caller's promise; null stands for no files.
    unsafe { later(context, command, length, ptr::null_mut(), response, room) }
}

/// The arguments of `ibv_cmd_create_cq_ex` that are objects.
pub(in crate::ffi) struct CreateCq<'a> {
    pub(in crate::ffi) context: *mut c::ibv_context,
    pub(in crate::ffi) attr: &'a c::ibv_cq_init_attr_ex,
    pub(in crate::ffi) cq: *mut c::verbs_cq,
}

/// `ibv_cmd_create_cq_ex`, without flags.
///
/// # Safety
/// The requirements of the C function apply.
pub(in crate::ffi) unsafe fn create_cq_ex(
    args: &CreateCq<'_>,
    command: *mut c::ibv_create_cq_ex,
    length: usize,
    response: *mut c::ib_uverbs_ex_create_cq_resp,
    room: usize,
) -> c_int {
    type Later = unsafe extern "C" fn(
        *mut c::ibv_context,
        *const c::ibv_cq_init_attr_ex,
        *mut c_void,
        *mut c::verbs_cq,
        *mut c::ibv_create_cq_ex,
        usize,
        *mut c::ib_uverbs_ex_create_cq_resp,
        usize,
        u32,
    ) -> c_int;
    let CreateCq { context, attr, cq } = *args;
    if !layout().create_cq_ex_takes_memory {
        // SAFETY: the caller's promise.
        return unsafe {
            c::ibv_cmd_create_cq_ex(context, attr, cq, command, length, response, room, 0)
        };
    }
    let address = c::ADDRESSES[indexes::ibv_cmd_create_cq_ex].load(Ordering::Relaxed);
    // SAFETY: the function has this type in the library's layout.
    let later: Later = unsafe { std::mem::transmute(address) };
    // SAFETY: the caller's promise; null stands for no memory of the plugin's.
    unsafe { later(context, attr, ptr::null_mut(), cq, command, length, response, room, 0) }
}

/// `ibv_cmd_create_qp_ex2`, without data of the driver.
///
/// # Safety
/// The requirements of the C function apply.
pub(in crate::ffi) unsafe fn create_qp_ex2(
    context: *mut c::ibv_context,
    qp: *mut c::verbs_qp,
    attr: *mut c::ibv_qp_init_attr_ex,
    command: *mut c::ibv_create_qp_ex,
    length: usize,
    response: *mut c::ib_uverbs_ex_create_qp_resp,
    room: usize,
) -> c_int {
    type Later = unsafe extern "C" fn(
        *mut c::ibv_context,
        *mut c::verbs_qp,
        *mut c::ibv_qp_init_attr_ex,
        *mut c::ibv_create_qp_ex,
        usize,
        *mut c::ib_uverbs_ex_create_qp_resp,
        usize,
        *mut c_void,
    ) -> c_int;
    if !layout().create_qp_ex2_takes_data {
        // SAFETY: the caller's promise.
        return unsafe {
            c::ibv_cmd_create_qp_ex2(context, qp, attr, command, length, response, room)
        };
    }
    let address = c::ADDRESSES[indexes::ibv_cmd_create_qp_ex2].load(Ordering::Relaxed);
    // SAFETY: the function has this type in the library's layout.
    let later: Later = unsafe { std::mem::transmute(address) };
    // SAFETY: the caller's promise; null stands for no data.
    unsafe { later(context, qp, attr, command, length, response, room, ptr::null_mut()) }
}

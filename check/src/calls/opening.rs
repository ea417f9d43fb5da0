//! Devices that are opened and closed. When one is opened, pointers in it are replaced, by which
//! programs call the library.

use std::ffi::{CStr, c_int};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::calls::pointers::{Originals, keep};
use crate::calls::real::interpose;
use crate::calls::{data, domains, memory, pairs, queues, shared};
use crate::checker::{here, watch};
use crate::ffi::{IBV_TRANSPORT_IWARP, ibv_context, ibv_device, verbs_context};
use crate::model::ends;
use crate::model::objects::Device;
use crate::model::tables::Tables;
use crate::report;
use crate::stack::Place;

/// What `abi_compat` is if the device has the table of [`verbs_context`].
const EXTENDED: usize = usize::MAX;

/// Notes a device that was opened.
///
/// # Safety
/// The device is open, and no other thread knows it yet.
unsafe fn opened(tables: &Tables, context: *mut ibv_context, place: Place) {
    // SAFETY: an open device has a name and a type.
    let (name, kind) = unsafe {
        let device = (*context).device;
        (CStr::from_ptr((*device).name.as_ptr()), (*device).transport_type)
    };
    let name = name.to_string_lossy().into_owned();
    let is_iwarp = kind == IBV_TRANSPORT_IWARP;
    tables.devices.insert(context as usize, Device::new(name, is_iwarp, place));
    tables.opened.fetch_add(1, Ordering::Relaxed);
    // SAFETY: as the caller promises.
    unsafe { replace(context) };
}

interpose! {
    /// Opens a device.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context, or ptr::null_mut(); |real| {
        let context = real();
        if !context.is_null() {
            // SAFETY: the library has just opened it.
            watch(|tables| unsafe { opened(tables, context, here("ibv_open_device")) });
        }
        context
    }

    /// Opens a device that another process has opened.
    fn ibv_import_device(file: c_int) -> *mut ibv_context, or ptr::null_mut(); |real| {
        let context = real();
        if !context.is_null() {
            // SAFETY: the library has just opened it.
            watch(|tables| unsafe { opened(tables, context, here("ibv_import_device")) });
        }
        context
    }

    /// Closes a device.
    fn ibv_close_device(context: *mut ibv_context) -> c_int, or libc::ENOSYS; |real| {
        watch(|tables| ends::closed(tables, context as usize, here("ibv_close_device")));
        real()
    }
}

/// Returns the larger table of a device, if there is one.
///
/// # Safety
/// The device is open.
unsafe fn extended(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the device is open.
    let is_extended = unsafe { (*context).abi_compat } as usize == EXTENDED;
    let start = context.wrapping_byte_sub(offset_of!(verbs_context, context));
    is_extended.then(|| start.cast())
}

/// Replaces a pointer of the larger table, if the table has it, and evaluates to the original.
macro_rules! exchange {
    ($table:expr, $field:ident, $new:expr) => {{
        let table: *mut verbs_context = $table;
        let needed = size_of::<verbs_context>() - offset_of!(verbs_context, $field);
        // SAFETY: the size is the last field before the context, and says from where on the table
        // exists.
        unsafe {
            if (*table).sz < needed {
                None
            } else {
                let original = (*table).$field;
                if original.is_some() {
                    (*table).$field = Some($new);
                }
                original
            }
        }
    }};
}

/// Replaces the pointers of a device that was opened.
///
/// # Safety
/// The device is open, and no other thread knows it yet.
unsafe fn replace(context: *mut ibv_context) {
    // SAFETY: the device is open.
    let ops = unsafe { &mut (*context).ops };
    let ours: data::PostSend = data::post_send;
    if ops.post_send.is_some_and(|found| ptr::fn_addr_eq(found, ours)) {
        return;
    }
    let mut originals = Originals {
        ops: *ops,
        create_qp_ex: None,
        create_cq_ex: None,
        create_srq_ex: None,
        alloc_parent_domain: None,
        reg_dm_mr: None,
        alloc_null_mr: None,
    };
    // Kept twice: a call must find the originals as soon as the first pointer is replaced.
    if !keep(context, originals) {
        report::say("too many devices are open; later ones are not checked");
        return;
    }
    // SAFETY: the device is open.
    if let Some(table) = unsafe { extended(context) } {
        originals.create_qp_ex = exchange!(table, create_qp_ex, pairs::create_qp_ex);
        originals.create_cq_ex = exchange!(table, create_cq_ex, queues::create_cq_ex);
        originals.create_srq_ex = exchange!(table, create_srq_ex, shared::create_srq_ex);
        originals.alloc_parent_domain =
            exchange!(table, alloc_parent_domain, domains::alloc_parent_domain);
        originals.reg_dm_mr = exchange!(table, reg_dm_mr, memory::reg_dm_mr);
        originals.alloc_null_mr = exchange!(table, alloc_null_mr, memory::alloc_null_mr);
        let _kept = keep(context, originals);
    }
    ops.post_send = ops.post_send.map(|_| ours);
    ops.post_recv = ops.post_recv.map(|_| data::post_recv as data::PostReceive);
    ops.post_srq_recv = ops.post_srq_recv.map(|_| data::post_srq_recv as data::PostShared);
    ops.poll_cq = ops.poll_cq.map(|_| data::poll_cq as data::Poll);
    ops.req_notify_cq = ops.req_notify_cq.map(|_| data::req_notify_cq as data::Arm);
}

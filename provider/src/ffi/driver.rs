// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Registration with libibverbs: the devices that the plugin serves, and its operations.

use std::ffi::{c_int, c_void};
use std::ptr;

use vrnic_abi as abi;
use vrnic_layouts::LAYOUTS;

use super::bindings as c;
use super::libibverbs::environment::warn;
use super::libibverbs::library::{Library, SYSTEM};
use super::object::Object;
use super::{
    ah, commands, context, cq, cq::extended, cq::poll, flow, ioctl, libibverbs::functions,
    memory::dm, memory::mr, memory::mw, pd, pointer, post, qp, qp_create, srq, wq, xrc,
};

type Device = Object<c::verbs_device, ()>;

/// A table that C only reads.
#[repr(transparent)]
struct Table<T>(T);

// SAFETY: the tables are constant, and what they point to is too.
unsafe impl<T> Sync for Table<T> {}

/// The kernel driver's number decides; the PCI identity serves where the kernel does not tell it.
static MATCHES: Table<[c::verbs_match_ent; 3]> = Table([
    c::verbs_match_ent {
        driver_data: ptr::null_mut(),
        // CAST: widening, in a constant.
        u: c::verbs_match_ent__bindgen_ty_1 { driver_id: abi::RDMA_DRIVER_ID as u64 },
        vendor: 0,
        device: 0,
        // CAST: the kinds are small numbers; C stores them in a byte.
        kind: c::VERBS_MATCH_DRIVER_ID as u8,
    },
    c::verbs_match_ent {
        driver_data: ptr::null_mut(),
        u: c::verbs_match_ent__bindgen_ty_1 { driver_id: 0 },
        vendor: abi::pci::VENDOR_ID,
        device: abi::pci::DEVICE_ID,
        kind: c::VERBS_MATCH_PCI as u8,
    },
    c::verbs_match_ent {
        driver_data: ptr::null_mut(),
        u: c::verbs_match_ent__bindgen_ty_1 { driver_id: 0 },
        vendor: 0,
        device: 0,
        kind: c::VERBS_MATCH_SENTINEL as u8,
    },
]);

static DEVICE_OPS: Table<c::verbs_device_ops> = Table(c::verbs_device_ops {
    name: c"vrnic".as_ptr(),
    match_min_abi_version: abi::UVERBS_ABI_VERSION,
    match_max_abi_version: abi::UVERBS_ABI_VERSION,
    match_table: (&raw const MATCHES).cast(),
    static_providers: ptr::null_mut(),
    match_device: None,
    alloc_context: Some(alloc_context),
    import_context: Some(import_context),
    alloc_device: Some(alloc_device),
    uninit_device: Some(uninit_device),
});

/// Runs when libibverbs loads the plugin.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;

extern "C" fn register() {
    if let Some(library) = bound() {
        // SAFETY: the table lives as long as the plugin, which libibverbs never unloads, and the
        // plugin is bound to this library.
        unsafe { library.register(&raw const DEVICE_OPS.0) };
    }
}

/// Binds the plugin to the libibverbs that has loaded it. Warns the user if the plugin cannot serve
/// that.
fn bound() -> Option<Library> {
    let Some(library) = Library::of_caller() else {
        warn(format_args!("the plugin is loaded, but there is no libibverbs that it could serve"));
        return None;
    };
    let Some(layout) = library.layout() else {
        let (first, last) = (LAYOUTS.first()?.releases.start(), LAYOUTS.last()?.releases.end());
        warn(format_args!(
            "no vrnic adapter is found through {library}: this plugin knows rdma-core {first} to \
             {last}. If the program brings that file, LD_PRELOAD={SYSTEM} makes it use the system's"
        ));
        return None;
    };
    if let Err(name) = functions::bind(&library, layout) {
        let name = name.to_bytes().escape_ascii();
        warn(format_args!("no vrnic adapter is found through {library}, which lacks {name}"));
        return None;
    }
    Some(library)
}

/// Returns the operations of a context. What is not set answers EOPNOTSUPP.
fn context_ops() -> c::verbs_context_ops {
    c::verbs_context_ops {
        advise_mr: Some(c::ibv_cmd_advise_mr),
        alloc_dm: Some(dm::alloc),
        alloc_mw: Some(mw::alloc),
        alloc_null_mr: Some(mr::alloc_null),
        alloc_parent_domain: Some(pd::alloc_parent),
        alloc_pd: Some(pd::alloc),
        alloc_td: Some(pd::alloc_thread),
        attach_mcast: Some(c::ibv_cmd_attach_mcast),
        bind_mw: Some(mw::bind),
        close_xrcd: Some(xrc::close_domain),
        create_ah: Some(ah::create),
        create_cq: Some(cq::create),
        create_cq_ex: Some(extended::create),
        create_flow: Some(flow::create),
        create_qp: Some(qp_create::create),
        create_qp_ex: Some(qp_create::create_ex),
        create_rwq_ind_table: Some(wq::create_table),
        create_srq: Some(srq::create),
        create_srq_ex: Some(srq::create_ex),
        create_wq: Some(wq::create),
        dealloc_mw: Some(mw::dealloc),
        dealloc_pd: Some(pd::dealloc),
        dealloc_td: Some(pd::dealloc_thread),
        dereg_mr: Some(mr::dereg_mr),
        detach_mcast: Some(c::ibv_cmd_detach_mcast),
        destroy_ah: Some(ah::destroy),
        destroy_cq: Some(cq::destroy),
        destroy_flow: Some(flow::destroy),
        destroy_qp: Some(qp::destroy),
        destroy_rwq_ind_table: Some(wq::destroy_table),
        destroy_srq: Some(srq::destroy),
        destroy_wq: Some(wq::destroy),
        free_context: Some(context::free),
        free_dm: Some(dm::free),
        import_dm: Some(dm::import),
        import_mr: Some(mr::import),
        import_pd: Some(pd::import),
        get_srq_num: Some(srq::number),
        modify_cq: Some(cq::modify),
        modify_qp: Some(qp::modify),
        modify_qp_rate_limit: Some(qp::modify_rate_limit),
        modify_srq: Some(srq::modify),
        modify_wq: Some(wq::modify),
        open_qp: Some(xrc::open_target),
        open_xrcd: Some(xrc::open_domain),
        poll_cq: Some(poll::poll_cq),
        post_recv: Some(post::post_recv),
        post_send: Some(post::post_send),
        post_srq_recv: Some(srq::post_recv),
        query_device_ex: Some(context::query_device),
        query_port: Some(context::query_port),
        query_qp: Some(qp::query),
        query_rt_values: Some(context::query_rt_values),
        query_srq: Some(srq::query),
        reg_dm_mr: Some(dm::register),
        reg_dmabuf_mr: Some(mr::reg_dmabuf_mr),
        reg_mr: Some(mr::reg_mr),
        req_notify_cq: Some(poll::req_notify_cq),
        rereg_mr: Some(mr::rereg_mr),
        resize_cq: Some(cq::resize),
        unimport_dm: Some(dm::unimport),
        unimport_mr: Some(mr::unimport),
        unimport_pd: Some(pd::unimport),
        ..c::verbs_context_ops::default()
    }
}

/// Returns whether this plugin drives a device of libibverbs.
///
/// # Safety
/// `device` must be null or a device of libibverbs.
pub(super) unsafe fn is_ours(device: *mut c::ibv_device) -> bool {
    // The public struct is the first part of the private one.
    let device: *mut c::verbs_device = device.cast();
    // SAFETY: the caller passes a device of libibverbs, and it is not null.
    !device.is_null() && std::ptr::eq(unsafe { (*device).ops }, &raw const DEVICE_OPS.0)
}

unsafe extern "C" fn alloc_context(
    device: *mut c::ibv_device,
    fd: c_int,
    _private_data: *mut c_void,
) -> *mut c::verbs_context {
    // SAFETY: libibverbs' arguments.
    unsafe { context::open(device, fd, &functions::arrange(context_ops()), commands::get_context) }
}

unsafe extern "C" fn import_context(
    device: *mut c::ibv_device,
    fd: c_int,
) -> *mut c::verbs_context {
    // SAFETY: libibverbs' arguments.
    unsafe { context::open(device, fd, &functions::arrange(context_ops()), ioctl::query_context) }
}

unsafe extern "C" fn alloc_device(_found: *mut c::verbs_sysfs_dev) -> *mut c::verbs_device {
    pointer(Device::begin().map(|device| device.complete(())))
}

unsafe extern "C" fn uninit_device(device: *mut c::verbs_device) {
    // SAFETY: made by `alloc_device` and given up by libibverbs.
    unsafe { Device::free(device) };
}

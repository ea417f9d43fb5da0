//! Pointers in devices, by which programs call the library. The original ones are found without a
//! lock, also in a forked process.

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::ffi::{
    ibv_context, ibv_context_ops, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_dm, ibv_mr,
    ibv_parent_domain_init_attr, ibv_pd, ibv_qp, ibv_qp_init_attr_ex, ibv_srq,
    ibv_srq_init_attr_ex,
};

/// Most devices that a process can have open at a time.
const DEVICES: usize = 256;

/// `create_qp_ex` of a device.
pub(super) type CreatePair =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
/// `create_cq_ex` of a device.
pub(super) type CreateQueue =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
/// `create_srq_ex` of a device.
pub(super) type CreateShared =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
/// `alloc_parent_domain` of a device.
pub(super) type AllocParentDomain =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd;
/// `reg_dm_mr` of a device.
pub(super) type RegisterDevice =
    unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr;
/// `alloc_null_mr` of a device.
pub(super) type AllocNull = unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr;

/// The pointers of a device before they were replaced.
#[derive(Clone, Copy)]
pub(super) struct Originals {
    pub(super) ops: ibv_context_ops,
    pub(super) create_qp_ex: Option<CreatePair>,
    pub(super) create_cq_ex: Option<CreateQueue>,
    pub(super) create_srq_ex: Option<CreateShared>,
    pub(super) alloc_parent_domain: Option<AllocParentDomain>,
    pub(super) reg_dm_mr: Option<RegisterDevice>,
    pub(super) alloc_null_mr: Option<AllocNull>,
}

struct Slot {
    context: AtomicUsize,
    originals: AtomicPtr<Originals>,
}

static SLOTS: [Slot; DEVICES] =
    [const { Slot { context: AtomicUsize::new(0), originals: AtomicPtr::new(ptr::null_mut()) } };
        DEVICES];

/// Returns the original pointers of a device.
pub(super) fn originals(context: *mut ibv_context) -> Option<&'static Originals> {
    let address = context as usize;
    for slot in &SLOTS {
        match slot.context.load(Ordering::Acquire) {
            0 => return None,
            // SAFETY: originals are never freed.
            found if found == address => unsafe {
                return slot.originals.load(Ordering::Acquire).as_ref();
            },
            _ => {}
        }
    }
    None
}

/// Keeps the original pointers of a device. A device that has been closed may have had the address
/// before.
pub(super) fn keep(context: *mut ibv_context, originals: Originals) -> bool {
    let address = context as usize;
    let new = Box::into_raw(Box::new(originals));
    for slot in &SLOTS {
        let found = slot.context.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
        if found.is_ok() || found == Err(address) {
            slot.originals.store(new, Ordering::Release);
            return true;
        }
    }
    // SAFETY: nobody else has the pointer.
    drop(unsafe { Box::from_raw(new) });
    false
}

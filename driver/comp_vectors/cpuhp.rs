// SPDX-License-Identifier: GPL-2.0
//! Processors that go offline and come online.
//!
//! C header: `include/linux/cpuhotplug.h`; see `Documentation/core-api/cpu_hotplug.rst`.

use kernel::{
    error::to_result,
    ffi::{c_int, c_uint},
    prelude::*,
    sync::{
        Arc,
        atomic::{Acquire, Atomic, Release},
    },
    types::Opaque,
};

use crate::bindings;

/// A follower of processors; its methods run in process context, one at a time.
pub(crate) trait Follower: Send + Sync + 'static {
    /// Called when a processor is online.
    fn online(&self, cpu: u32);
    /// Called when a processor is about to go offline.
    fn offline(&self, cpu: u32);
}

/// The number of no state that a module has.
const NO_STATE: i32 = 0;
/// The module's state of processors, while there is a [`Hotplug`].
static STATE: Atomic<i32> = Atomic::new(NO_STATE);

/// Lets the module follow processors; one for the module.
pub(crate) struct Hotplug(bindings::cpuhp_state);

impl Hotplug {
    /// Allocates the state. While it exists, there can be [`Following`]s.
    pub(crate) fn new() -> Result<Self> {
        type Single = unsafe extern "C" fn(c_uint) -> c_int;
        type Multi = unsafe extern "C" fn(c_uint, *mut bindings::hlist_node) -> c_int;
        // SAFETY: a state with instances is called with the signature of `Multi`, whatever the
        // prototype says: C casts as well (`cpuhp_setup_state_multi`).
        let cast = |callback: Multi| unsafe { core::mem::transmute::<Multi, Single>(callback) };
        // SAFETY: the name is static; the callbacks are part of the module, which removes the state
        // before it goes.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"rdma/vrnic:online".as_char_ptr(),
                false,
                Some(cast(online)),
                Some(cast(offline)),
                true,
            )
        };
        to_result(state.min(0))?;
        STATE.store(state, Release);
        Ok(Self(state))
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        STATE.store(NO_STATE, Release);
        // SAFETY: set up by `new`; all instances are gone, as they belong to devices of the driver,
        // which is unregistered before.
        unsafe { bindings::__cpuhp_remove_state(self.0, false) };
    }
}

/// An entry of the kernel's list of instances.
#[repr(C)]
struct Instance {
    node: Opaque<bindings::hlist_node>,
    follower: Arc<dyn Follower>,
}

const _: () = assert!(core::mem::offset_of!(Instance, node) == 0);

// SAFETY: the node is the kernel's, under locks of its own; the follower is `Send`.
unsafe impl Send for Instance {}
// SAFETY: the node is the kernel's, under locks of its own; the follower is `Sync`.
unsafe impl Sync for Instance {}

/// A follower, which is notified until this is dropped.
///
/// # Invariants
///
/// The instance is in the list of the state.
pub(crate) struct Following {
    instance: Pin<KBox<Instance>>,
    state: i32,
}

impl Following {
    /// Tells `follower` of each processor that is online now, and of all changes.
    ///
    /// # Errors
    ///
    /// `ENODEV` without a [`Hotplug`].
    pub(crate) fn new(follower: Arc<dyn Follower>) -> Result<Self> {
        // SAFETY: a plain C struct of two pointers, for which zero is valid.
        let node = Opaque::new(unsafe { core::mem::zeroed() });
        let instance = KBox::pin(Instance { node, follower }, GFP_KERNEL)?;
        let state = STATE.load(Acquire);
        if state == NO_STATE {
            return Err(ENODEV);
        }
        // SAFETY: the state was set up by `Hotplug::new`, and is there while the module has
        // devices. The node is pinned, and `drop` takes it from the list. Failing leaves it out of
        // the list.
        to_result(unsafe {
            bindings::__cpuhp_state_add_instance(state, instance.node.get(), true)
        })?;
        // INVARIANT: the instance was added just now.
        Ok(Self { instance, state })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant. On return no callback runs with the node.
        unsafe {
            bindings::__cpuhp_state_remove_instance(self.state, self.instance.node.get(), false)
        };
    }
}

/// Returns the follower of a node.
///
/// # Safety
///
/// `node` must point to the node of an [`Instance`] in the kernel's list.
unsafe fn follower<'a>(node: *mut bindings::hlist_node) -> &'a dyn Follower {
    // SAFETY: the caller passes the node of an `Instance`, whose first field it is.
    unsafe { &*(*node.cast::<Instance>()).follower }
}

unsafe extern "C" fn online(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: the kernel passes the nodes that were added.
    unsafe { follower(node) }.online(cpu);
    0
}

unsafe extern "C" fn offline(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: the kernel passes the nodes that were added.
    unsafe { follower(node) }.offline(cpu);
    0
}

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

use super::bindings;

/// What follows processors; its methods run in process context, one at a time.
pub(crate) trait Follower: Send + Sync + 'static {
    /// A processor is online.
    fn online(&self, cpu: u32);
    /// A processor is about to go offline.
    fn offline(&self, cpu: u32);
}

/// The module's state of processors, while there is a [`Hotplug`].
static STATE: Atomic<i32> = Atomic::new(0);

/// Lets the module follow processors; one for the module.
pub(crate) struct Hotplug(bindings::cpuhp_state);

impl Hotplug {
    /// From here on there can be [`Following`]s.
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
        // SAFETY: set up by `new`; all instances are gone, as they belong to devices of the driver,
        // which is unregistered before.
        unsafe { bindings::__cpuhp_remove_state(self.0, false) };
    }
}

/// What the kernel's list of instances holds.
#[repr(C)]
struct Instance {
    node: Opaque<bindings::hlist_node>,
    follower: Arc<dyn Follower>,
}

// SAFETY: the node is the kernel's, under locks of its own; the follower is `Send`.
unsafe impl Send for Instance {}
// SAFETY: as above; the follower is `Sync`.
unsafe impl Sync for Instance {}

/// A follower that is told; until this is dropped.
pub(crate) struct Following(Pin<KBox<Instance>>);

impl Following {
    /// Tells `follower` of each processor that is online now, and of all changes.
    pub(crate) fn new(follower: Arc<dyn Follower>) -> Result<Self> {
        // SAFETY: a plain C struct of two pointers, for which zero is valid.
        let node = Opaque::new(unsafe { core::mem::zeroed() });
        let this = Self(KBox::pin(Instance { node, follower }, GFP_KERNEL)?);
        // SAFETY: the state was set up by `Hotplug::new`, or the call fails; the node is pinned, and
        // taken from the list before it goes. Failing leaves it out of the list, where removing it
        // does nothing.
        to_result(unsafe {
            bindings::__cpuhp_state_add_instance(STATE.load(Acquire), this.0.node.get(), true)
        })?;
        Ok(this)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // SAFETY: as in `new`. On return no callback runs with the node.
        unsafe {
            bindings::__cpuhp_state_remove_instance(STATE.load(Acquire), self.0.node.get(), false)
        };
    }
}

/// The follower of a node.
///
/// # Safety
///
/// `node` must be that of an [`Instance`] in the kernel's list.
unsafe fn follower<'a>(node: *mut bindings::hlist_node) -> &'a dyn Follower {
    // SAFETY: by the caller's promise, and because the node is at offset 0.
    unsafe { &*(*node.cast::<Instance>()).follower }
}

unsafe extern "C" fn online(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: the kernel passes the nodes that were added.
    unsafe { follower(node) }.online(cpu);
    0
}

unsafe extern "C" fn offline(cpu: c_uint, node: *mut bindings::hlist_node) -> c_int {
    // SAFETY: as above.
    unsafe { follower(node) }.offline(cpu);
    0
}

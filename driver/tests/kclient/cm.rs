// SPDX-License-Identifier: GPL-2.0
//! Identifiers of the connection manager and their events.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi::c_int,
    new_condvar, new_mutex,
    prelude::*,
    sync::{Arc, CondVar, CondVarTimeoutResult, Mutex},
    time::{Jiffies, msecs_to_jiffies},
};

use crate::bindings;

/// Longest time for one step of connecting, in ms.
const STEP_MS: u32 = 5000;

/// An event (`enum rdma_cm_event_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// The address is known.
    AddressResolved = bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED,
    /// The route is known.
    RouteResolved = bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED,
    /// There is a connection.
    Established = bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED,
}

/// Events that end a connection, or an attempt to connect.
const ENDS: [u32; 7] = [
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR,
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR,
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR,
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE,
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED,
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED,
    bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL,
];

/// The events of an identifier so far.
///
/// # Invariants
///
/// The identifiers of `callers` are alive, and this type's own until they are taken out.
#[derive(Default)]
struct State {
    /// A bit for each event that came.
    seen: u32,
    /// True if it has ended.
    ended: bool,
    /// Identifiers of clients that want to be connected, at a listening identifier.
    callers: KVec<NonNull<bindings::rdma_cm_id>>,
}

// SAFETY: the connection manager allows identifiers to be used and destroyed by any thread.
unsafe impl Send for State {}

/// The events of an identifier.
#[pin_data]
pub struct Events {
    #[pin]
    state: Mutex<State>,
    #[pin]
    changed: CondVar,
}

impl Events {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(State::default(), "kclient::Events"),
                changed <- new_condvar!("kclient::Events"),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits, at most `timeout`, until `find` finds something.
    fn wait<R>(
        &self,
        timeout: Jiffies,
        mut find: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        let mut left = timeout;
        let mut state = self.state.lock();
        loop {
            if let Some(found) = find(&mut state) {
                return Some(found);
            }
            match self.changed.wait_interruptible_timeout(&mut state, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                CondVarTimeoutResult::Timeout | CondVarTimeoutResult::Signal { .. } => {
                    return find(&mut state);
                }
            }
        }
    }

    /// Handles an event. The connection manager calls this, and it may sleep. The manager destroys
    /// the identifier if the result is not zero.
    ///
    /// # Safety
    ///
    /// `id` must be an identifier whose context is an `Events` that is alive, and `event` one of
    /// its events.
    unsafe extern "C" fn handle(
        id: *mut bindings::rdma_cm_id,
        event: *mut bindings::rdma_cm_event,
    ) -> c_int {
        // SAFETY: the caller passes an identifier that is alive; its context does not change while
        // its handler runs.
        let context = unsafe { (*id).context };
        // SAFETY: the caller promises that the context is an `Events` that is alive.
        let this = unsafe { &*context.cast::<Self>() };
        // SAFETY: the caller passes a valid event.
        let event = unsafe { (*event).event };
        let mut state = this.state.lock();
        if event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
            let Some(caller) = NonNull::new(id) else { return EINVAL.to_errno() };
            // INVARIANT: a new identifier is the handler's own if that returns zero.
            if state.callers.push(caller, GFP_KERNEL).is_err() {
                return ENOMEM.to_errno();
            }
        }
        state.seen |= 1 << event.min(31);
        state.ended |= ENDS.contains(&event);
        drop(state);
        this.changed.notify_all();
        0
    }
}

/// An identifier, destroyed on drop.
///
/// # Invariants
///
/// `raw` is an identifier that this type owns, and `events` its context.
pub struct Id {
    raw: NonNull<bindings::rdma_cm_id>,
    events: Arc<Events>,
}

// SAFETY: the connection manager allows identifiers to be used and destroyed by any thread.
unsafe impl Send for Id {}
// SAFETY: the connection manager has locks for what changes in an identifier.
unsafe impl Sync for Id {}

impl Id {
    /// Creates an identifier without an address.
    pub fn new() -> Result<Self> {
        let events = Events::new()?;
        let context = Arc::as_ptr(&events).cast_mut().cast();
        // SAFETY: the context is kept by the result, whose drop destroys the identifier first.
        let raw = unsafe { bindings::kclient_cm_create_id(Some(Events::handle), context) };
        let raw = NonNull::new(kernel::error::from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: the identifier was made just now, with this context.
        Ok(Self { raw, events })
    }

    /// Takes over the identifier of a caller, and gives it events of its own.
    ///
    /// # Safety
    ///
    /// `raw` must be an identifier that is alive and the caller's own.
    unsafe fn adopt(raw: NonNull<bindings::rdma_cm_id>) -> Result<Self> {
        let events = Events::new().inspect_err(|_| {
            // SAFETY: the caller passes an identifier of its own, and does not use it afterwards.
            unsafe { bindings::rdma_destroy_id(raw.as_ptr()) };
        })?;
        // SAFETY: the caller passes an identifier that is alive.
        unsafe { bindings::rdma_lock_handler(raw.as_ptr()) };
        // SAFETY: the identifier is alive, and its handler does not run while it is locked.
        unsafe { (*raw.as_ptr()).context = Arc::as_ptr(&events).cast_mut().cast() };
        // SAFETY: the identifier is alive, and was locked above.
        unsafe { bindings::rdma_unlock_handler(raw.as_ptr()) };
        // INVARIANT: the caller gave the identifier up; its context was set above.
        Ok(Self { raw, events })
    }

    /// Creates an identifier that listens.
    pub fn listen(port: u16) -> Result<Self> {
        let this = Self::new()?;
        // SAFETY: `this` owns the identifier, which lives until it is dropped.
        to_result(unsafe { bindings::kclient_cm_bind(this.as_raw(), port) })?;
        // SAFETY: `this` owns the identifier, which lives until it is dropped.
        to_result(unsafe { bindings::rdma_listen(this.as_raw(), 4) })?;
        Ok(this)
    }

    /// Returns the next caller, if one comes in time.
    pub fn caller(&self, timeout: Jiffies) -> Option<Result<Self>> {
        let raw = self.events.wait(timeout, |state| {
            (!state.callers.is_empty()).then(|| state.callers.remove(0).ok()).flatten()
        })?;
        // SAFETY: by the invariants of `State` the identifier was its own, and it was taken out.
        Some(unsafe { Self::adopt(raw) })
    }

    /// Finds the device that leads to an address.
    pub fn resolve(&self, address: u32, port: u16) -> Result {
        // CAST: a small constant.
        let ms = STEP_MS as usize;
        // SAFETY: `self` owns the identifier, which lives until it is dropped.
        to_result(unsafe { bindings::kclient_cm_resolve(self.as_raw(), address, port, ms) })?;
        self.expect(Event::AddressResolved)?;
        // SAFETY: `self` owns the identifier, which lives until it is dropped.
        to_result(unsafe { bindings::rdma_resolve_route(self.as_raw(), ms) })?;
        self.expect(Event::RouteResolved)
    }

    /// Connects, or accepts a request. The queue pair must exist.
    pub fn connect(&self, accept: bool) -> Result {
        // SAFETY: `self` owns the identifier, which lives until it is dropped.
        to_result(unsafe { bindings::kclient_cm_connect(self.as_raw(), accept) })?;
        self.expect(Event::Established)
    }

    /// Ends the connection; the queue pair goes to the error state.
    pub fn disconnect(&self) {
        // SAFETY: `self` owns the identifier, which lives until it is dropped.
        // An error says that it was disconnected already.
        let _ = unsafe { bindings::rdma_disconnect(self.as_raw()) };
    }

    /// Returns whether the connection has ended.
    pub fn has_ended(&self) -> bool {
        self.events.state.lock().ended
    }

    fn expect(&self, event: Event) -> Result {
        // CAST: the enum's number.
        let bit = 1 << event as u32;
        let come = |state: &mut State| {
            (state.seen & bit != 0).then_some(Ok(())).or(state.ended.then_some(Err(ECONNREFUSED)))
        };
        self.events
            .wait(msecs_to_jiffies(STEP_MS), come)
            .unwrap_or(Err(ETIMEDOUT))
            .inspect_err(|error| pr_err!("waiting for the event {event:?} failed: {error:?}\n"))
    }

    /// Returns the manager's struct.
    pub fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.raw.as_ptr()
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the identifier is this type's own, and its context,
        // which is dropped later, is alive until no handler runs or will run.
        unsafe { bindings::rdma_destroy_id(self.as_raw()) };
        // The callers that `caller` did not take.
        let callers = core::mem::take(&mut self.events.state.lock().callers);
        for caller in callers {
            // SAFETY: by the invariants of `State` the identifier belonged to the state. Its
            // context is the context of the listener, which is still alive.
            unsafe { bindings::rdma_destroy_id(caller.as_ptr()) };
        }
    }
}

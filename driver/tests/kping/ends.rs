// SPDX-License-Identifier: GPL-2.0
//! The end of a connection by the functions of `direct.h`, for adapters with iWARP.

use core::{
    mem::transmute,
    ptr::{self, NonNull},
};

use kernel::{
    error::to_result,
    ffi::{c_char, c_int, c_void},
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    time::{Delta, Instant, Monotonic, delay::fsleep},
};

use crate::kclient::{bindings, connection::Connection};

/// Longest time for a step.
const TIMEOUT: Delta = Delta::from_secs(10);
/// The time between two looks.
const POLL: Delta = Delta::from_millis(1);
/// What has happened when both directions are closed without an error.
const CLOSED: u32 = bindings::vrnic_connection_events_VRNIC_CONNECTION_GRACEFUL_DISCONNECT
    | bindings::vrnic_connection_events_VRNIC_CONNECTION_CLOSED;

extern "C" {
    fn __symbol_get(name: *const c_char) -> *mut c_void;
    fn __symbol_put(name: *const c_char);
}

/// A function of another module, which stays loaded meanwhile. This module can be loaded without
/// it, and does not keep it loaded when nothing is closed.
struct Symbol {
    name: &'static CStr,
    address: NonNull<c_void>,
}

impl Symbol {
    fn get(name: &'static CStr) -> Result<Self> {
        // SAFETY: the name is a string with a terminator.
        let address = unsafe { __symbol_get(name.as_ptr().cast()) };
        Ok(Self { name, address: NonNull::new(address).ok_or(ENOENT)? })
    }
}

impl Drop for Symbol {
    fn drop(&mut self) {
        // SAFETY: `get` has found the symbol with this name, and its reference is dropped once.
        unsafe { __symbol_put(self.name.as_ptr().cast()) };
    }
}

type Changed = Option<unsafe extern "C" fn(*mut c_void)>;

/// The functions of `direct.h`.
struct Calls {
    query: Symbol,
    watch: Symbol,
    end: Symbol,
}

impl Calls {
    fn find() -> Result<Self> {
        Ok(Self {
            query: Symbol::get(c"vrnic_connection_query")?,
            watch: Symbol::get(c"vrnic_connection_watch")?,
            end: Symbol::get(c"vrnic_connection_end")?,
        })
    }

    /// # Safety
    ///
    /// As `vrnic_connection_query`.
    unsafe fn query(
        &self,
        qp: *mut bindings::ib_qp,
        found: &mut bindings::vrnic_connection,
    ) -> c_int {
        type Query =
            unsafe extern "C" fn(*mut bindings::ib_qp, *mut bindings::vrnic_connection) -> c_int;
        // SAFETY: `direct.h` declares the function of this name so.
        let call: Query = unsafe { transmute(self.query.address) };
        // SAFETY: the caller promises what the function demands.
        unsafe { call(qp, found) }
    }

    /// # Safety
    ///
    /// As `vrnic_connection_watch`.
    unsafe fn watch(
        &self,
        qp: *mut bindings::ib_qp,
        changed: Changed,
        context: *mut c_void,
    ) -> c_int {
        type Watch = unsafe extern "C" fn(*mut bindings::ib_qp, Changed, *mut c_void) -> c_int;
        // SAFETY: `direct.h` declares the function of this name so.
        let call: Watch = unsafe { transmute(self.watch.address) };
        // SAFETY: the caller promises what the function demands.
        unsafe { call(qp, changed, context) }
    }

    /// # Safety
    ///
    /// As `vrnic_connection_end`.
    unsafe fn end(&self, qp: *mut bindings::ib_qp, how: u32, limit_ms: u32) -> c_int {
        type End = unsafe extern "C" fn(*mut bindings::ib_qp, u32, u32) -> c_int;
        // SAFETY: `direct.h` declares the function of this name so.
        let call: End = unsafe { transmute(self.end.address) };
        // SAFETY: the caller promises what the function demands.
        unsafe { call(qp, how, limit_ms) }
    }
}

/// A connection whose changes are counted.
struct Watched<'a> {
    calls: Calls,
    connection: &'a Connection,
    changes: Arc<Atomic<u32>>,
}

/// Counts a change.
///
/// # Safety
///
/// `changes` must point to a counter.
unsafe extern "C" fn changed(changes: *mut c_void) {
    // SAFETY: the caller passes a counter.
    unsafe { &*changes.cast::<Atomic<u32>>() }.fetch_add(1, Relaxed);
}

impl<'a> Watched<'a> {
    fn new(connection: &'a Connection) -> Result<Self> {
        let changes = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let counter: *mut c_void = (&raw const *changes).cast_mut().cast();
        let watched = Self { calls: Calls::find()?, connection, changes };
        // SAFETY: the connection keeps its queue pair. The counter lives until `drop` has ended the
        // calls.
        let named = unsafe { watched.calls.watch(connection.as_raw(), Some(changed), counter) };
        to_result(named)?;
        Ok(watched)
    }

    fn query(&self) -> Result<bindings::vrnic_connection> {
        let mut found = bindings::vrnic_connection { status: 0, events: 0, ird: 0, ord: 0 };
        // SAFETY: the connection keeps its queue pair; the struct is valid.
        to_result(unsafe { self.calls.query(self.connection.as_raw(), &mut found) })?;
        Ok(found)
    }

    /// Carries out a step of the end. Returns how far that is.
    fn end(&self, how: u32, limit_ms: u32) -> Result<i32> {
        let qp = self.connection.as_raw();
        // SAFETY: the connection keeps its queue pair.
        let far = unsafe { self.calls.end(qp, how, limit_ms) };
        to_result(far.min(0))?;
        Ok(far)
    }

    /// Waits until the connection is idle, with these events, which the function was called for.
    fn reach(&self, events: u32) -> Result {
        let start = Instant::<Monotonic>::now();
        while start.elapsed() < TIMEOUT {
            let found = self.query()?;
            let idle = found.status == bindings::vrnic_connection_status_VRNIC_CONNECTION_IDLE;
            if idle && found.events & events == events && self.changes.load(Relaxed) > 1 {
                return Ok(());
            }
            fsleep(POLL);
        }
        let (found, changes) = (self.query()?, self.changes.load(Relaxed));
        let (status, events) = (found.status, found.events);
        pr_err!("after {changes} changes a connection has state {status} and events {events:x}\n");
        Err(ETIMEDOUT)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let qp = self.connection.as_raw();
        // SAFETY: the connection keeps its queue pair.
        let _ = unsafe { self.calls.watch(qp, None, ptr::null_mut()) };
    }
}

/// Closes a connection in which nothing is outstanding, and takes it off the adapter.
pub(crate) fn close(connection: &Connection) -> Result {
    let watched = Watched::new(connection)?;
    let found = watched.query()?;
    let rts = bindings::vrnic_connection_status_VRNIC_CONNECTION_RTS;
    if (found.status, found.events) != (rts, 0) || watched.changes.load(Relaxed) != 1 {
        pr_err!("a connection begins with state {} and events {:x}\n", found.status, found.events);
        return Err(EIO);
    }
    if watched.end(bindings::vrnic_connection_end_VRNIC_CONNECTION_CLOSE, 60_001) != Err(EINVAL) {
        pr_err!("a time limit is too long and is accepted\n");
        return Err(EIO);
    }
    watched.end(bindings::vrnic_connection_end_VRNIC_CONNECTION_CLOSE, 0)?;
    watched.reach(CLOSED)?;
    watched.end(bindings::vrnic_connection_end_VRNIC_CONNECTION_RELEASE, 0)?;
    watched.reach(CLOSED | bindings::vrnic_connection_events_VRNIC_CONNECTION_RELEASED)
}

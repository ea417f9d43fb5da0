//! The states of TCP connections, and their ends (docs/streams.md).

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;

use bitflags::bitflags;

use crate::Plugin;

type Query = unsafe extern "C" fn(*mut c_void, *mut State) -> c_int;
type Watch = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Disconnect = unsafe extern "C" fn(*mut c_void, bool, u32) -> c_int;
type Release = unsafe extern "C" fn(*mut c_void) -> c_int;
type MakeIdle = unsafe extern "C" fn(*mut c_void, bool) -> c_int;

/// The status of the messages or bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There are none, or both directions are closed.
    Idle,
    /// Messages are exchanged.
    Rts,
    /// This end has closed its direction.
    Closing,
    /// A Terminate was sent or received, and TCP is being closed.
    Terminate,
    /// The messages have ended with an error.
    Error,
}

bitflags! {
    /// The events of a connection since it was made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Events: u32 {
        /// The peer has closed its direction (FIN).
        const GRACEFUL_DISCONNECT = 1 << 0;
        /// A reset by either end, or no answer.
        const ABORTIVE_DISCONNECT = 1 << 1;
        /// Both directions are closed, without an error.
        const CLOSED = 1 << 2;
        /// An error occurred while it was being closed without one.
        const BAD_CLOSE = 1 << 3;
        /// A Terminate was sent.
        const TERMINATE_SENT = 1 << 4;
        /// A Terminate was received.
        const TERMINATE_RECEIVED = 1 << 5;
        /// The connection has left the adapter.
        const RELEASED = 1 << 8;
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    status: u32,
    events: u32,
    /// READs and atomics of the peer that are served at a time.
    pub ird: u32,
    /// READs and atomics that are outstanding at a time.
    pub ord: u32,
}

impl State {
    /// Returns the status.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self.status {
            0 => Status::Idle,
            1 => Status::Rts,
            2 => Status::Closing,
            3 => Status::Terminate,
            _ => Status::Error,
        }
    }

    /// Returns what has happened.
    #[must_use]
    pub const fn events(&self) -> Events {
        Events::from_bits_retain(self.events)
    }
}

/// The functions of the loaded plugin for the connections of queue pairs of iWARP.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    query: Query,
    watch: Watch,
    disconnect: Disconnect,
    terminate_offload: Release,
    make_idle: MakeIdle,
}

impl Connections {
    /// Returns the functions, if libibverbs has loaded the plugin and the plugin is new enough.
    #[must_use]
    pub fn load() -> Option<Self> {
        let plugin = Plugin::find()?;
        let symbol = |name: &CStr| plugin.symbol(name);
        let query = symbol(c"vrnicdv_query_connection")?;
        let watch = symbol(c"vrnicdv_watch_connection")?;
        let disconnect = symbol(c"vrnicdv_disconnect")?;
        let terminate_offload = symbol(c"vrnicdv_terminate_offload")?;
        let make_idle = symbol(c"vrnicdv_make_idle")?;
        // SAFETY: the plugin's functions of these names have these types (vrnicdv.h).
        unsafe {
            Some(Self {
                query: transmute::<*mut c_void, Query>(query),
                watch: transmute::<*mut c_void, Watch>(watch),
                disconnect: transmute::<*mut c_void, Disconnect>(disconnect),
                terminate_offload: transmute::<*mut c_void, Release>(terminate_offload),
                make_idle: transmute::<*mut c_void, MakeIdle>(make_idle),
            })
        }
    }

    /// Returns the state of the connection of a queue pair.
    ///
    /// # Errors
    /// An errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    pub unsafe fn query(&self, qp: *mut c_void) -> Result<State, c_int> {
        let mut state = State::default();
        // SAFETY: the caller passes a live queue pair.
        match unsafe { (self.query)(qp, &raw mut state) } {
            0 => Ok(state),
            error => Err(error),
        }
    }

    /// Has an eventfd signaled at once and whenever the state has changed, or none. Returns zero or
    /// an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn watch(&self, qp: *mut c_void, eventfd: Option<c_int>) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.watch)(qp, eventfd.unwrap_or(-1)) }
    }

    /// Closes the local direction, or resets the connection. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn disconnect(&self, qp: *mut c_void, abort: bool, time_limit_ms: u32) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.disconnect)(qp, abort, time_limit_ms) }
    }

    /// Takes the connection off the adapter as soon as that is possible. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn terminate_offload(&self, qp: *mut c_void) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.terminate_offload)(qp) }
    }

    /// Makes a queue pair as new whose connection has ended. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn make_idle(&self, qp: *mut c_void, give_up: bool) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.make_idle)(qp, give_up) }
    }
}

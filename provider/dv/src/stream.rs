//! Queue pairs that carry the bytes of a TCP connection (docs/streams.md).

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::net::SocketAddr;

use crate::Plugin;

type AttachSocket = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type ConnectStream =
    unsafe extern "C" fn(*mut c_void, *const libc::sockaddr, libc::socklen_t) -> c_int;
type ReleaseReceives = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The functions of the loaded plugin for queue pairs with
/// [`QpFlags::TOE`](crate::QpFlags::TOE).
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    attach_socket: AttachSocket,
    connect_stream: ConnectStream,
    accept_stream: AttachSocket,
    release_receives: ReleaseReceives,
}

impl Streams {
    /// Returns the functions, if libibverbs has loaded the plugin and the plugin is new enough.
    #[must_use]
    pub fn load() -> Option<Self> {
        let plugin = Plugin::find()?;
        let symbol = |name: &CStr| plugin.symbol(name);
        let attach_socket = symbol(c"vrnicdv_attach_socket")?;
        let connect_stream = symbol(c"vrnicdv_connect_stream")?;
        let accept_stream = symbol(c"vrnicdv_accept_stream")?;
        let release_receives = symbol(c"vrnicdv_release_receives")?;
        // SAFETY: the plugin's functions of these names have these types (vrnicdv.h).
        unsafe {
            Some(Self {
                attach_socket: transmute::<*mut c_void, AttachSocket>(attach_socket),
                connect_stream: transmute::<*mut c_void, ConnectStream>(connect_stream),
                accept_stream: transmute::<*mut c_void, AttachSocket>(accept_stream),
                release_receives: transmute::<*mut c_void, ReleaseReceives>(release_receives),
            })
        }
    }

    /// Gives the connection of a TCP socket to a queue pair. The socket then has no connection, and
    /// can be closed. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn attach_socket(&self, qp: *mut c_void, socket: c_int) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.attach_socket)(qp, socket) }
    }

    /// Connects a queue pair to a server. Returns zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn connect_stream(&self, qp: *mut c_void, server: SocketAddr) -> c_int {
        match server {
            SocketAddr::V4(server) => {
                let address = libc::sockaddr_in {
                    // CAST: a small number.
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: server.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(server.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: the caller passes a live queue pair, and the address lives here.
                unsafe { self.connect_to(qp, &address) }
            }
            SocketAddr::V6(server) => {
                let address = libc::sockaddr_in6 {
                    // CAST: a small number.
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: server.port().to_be(),
                    sin6_flowinfo: server.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: server.ip().octets() },
                    sin6_scope_id: server.scope_id(),
                };
                // SAFETY: the caller passes a live queue pair, and the address lives here.
                unsafe { self.connect_to(qp, &address) }
            }
        }
    }

    /// # Safety
    /// `qp` must be a live `struct ibv_qp`, `address` one of the forms of `struct sockaddr`.
    unsafe fn connect_to<T>(&self, qp: *mut c_void, address: &T) -> c_int {
        // CAST: a small struct.
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the caller passes a live queue pair and an address of this length.
        unsafe { (self.connect_stream)(qp, (&raw const *address).cast(), length) }
    }

    /// Waits for the next connection of a listening socket, and gives it to a queue pair. Returns
    /// zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn accept_stream(&self, qp: *mut c_void, listener: c_int) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.accept_stream)(qp, listener) }
    }

    /// Asks for the bytes of the receive in progress, which then completes if it has any. Returns
    /// zero or an errno.
    ///
    /// # Safety
    /// `qp` must be a live `struct ibv_qp`.
    #[must_use]
    pub unsafe fn release_receives(&self, qp: *mut c_void) -> c_int {
        // SAFETY: the caller passes a live queue pair.
        unsafe { (self.release_receives)(qp) }
    }
}

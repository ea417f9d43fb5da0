// SPDX-License-Identifier: GPL-2.0
//! TCP sockets of the kernel, from which the device takes connections over.
//!
//! C: `driver/iwarp/helpers.c`.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_void,
    prelude::*,
    sync::{Arc, ArcBorrow},
    types::ForeignOwnable,
};

use crate::{
    bindings,
    rdma::{
        iwcm::{Address, CmId, Listens},
        port::netdev::NetdevRef,
    },
};

/// The state of a connection that was taken out of its socket; see the C struct's fields.
pub(crate) type Snapshot = bindings::iwarp_snapshot;

/// The MACs of the frames of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Macs {
    /// That of the local interface.
    pub(crate) own: [u8; 6],
    /// That of the next hop.
    pub(crate) next_hop: [u8; 6],
}

/// The number of the loopback device in each network namespace, LOOPBACK_IFINDEX
/// (`include/net/flow.h`).
pub(crate) const LOOPBACK: i32 = 1;

/// An object that is notified of changes of its socket.
pub(crate) trait Watch: Send + Sync + 'static {
    /// Called when something about the socket may have changed, in any context. Must not sleep.
    fn changed(this: ArcBorrow<'_, Self>);
}

/// The state of a socket that connects, or was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The socket has no connection yet.
    Connecting,
    /// The connection is established.
    Established,
}

/// A socket of the kernel without a watcher. It is closed on drop, which may sleep.
///
/// # Invariants
///
/// The pointer is the pointer to a socket of `helpers.c`, which this type owns.
struct Raw(NonNull<bindings::iwarp_socket>);

// SAFETY: the functions of `helpers.c` may be called by any thread that may sleep.
unsafe impl Send for Raw {}
// SAFETY: the functions of `helpers.c` take the socket's lock where they need it.
unsafe impl Sync for Raw {}

impl Raw {
    /// Takes over the socket that a creating function has returned.
    ///
    /// # Safety
    ///
    /// `raw` must be the result of such a function, and no other code may use it.
    unsafe fn new(raw: *mut bindings::iwarp_socket) -> Result<Self> {
        // INVARIANT: the caller promises that it is a socket, if it is not an error.
        NonNull::new(from_err_ptr(raw)?).map(Self).ok_or(ENOMEM)
    }

    fn as_ptr(&self) -> *mut bindings::iwarp_socket {
        self.0.as_ptr()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the type owns the socket by its invariants. After the return no object is
        // notified of its changes any more.
        unsafe { bindings::iwarp_socket_free(self.as_ptr()) };
    }
}

/// The owner of a socket whose connection the device takes over.
pub(crate) enum Lender<'a> {
    /// The calling process, by a descriptor.
    Process(i32),
    /// A kernel client.
    Kernel(&'a ClientSocket),
}

/// A socket of a kernel client.
///
/// # Invariants
///
/// The pointer refers to a socket that is not released as long as this lives. If its connection is
/// taken, its owner neither uses nor releases it.
pub(crate) struct ClientSocket(NonNull<bindings::socket>);

impl ClientSocket {
    /// Returns the socket, or `EINVAL` for a null pointer.
    ///
    /// # Safety
    ///
    /// The caller must promise the invariants of this type.
    pub(crate) unsafe fn new(raw: *mut bindings::socket) -> Result<Self> {
        // INVARIANT: the caller promises so.
        NonNull::new(raw).map(Self).ok_or(EINVAL)
    }
}

/// A connection that was accepted, and that has no watcher yet.
pub(crate) struct Accepted(Raw);

/// A socket of the kernel that reports its changes to a `T`. It is closed on drop, which may sleep.
///
/// # Invariants
///
/// `watcher` is the foreign form of an `Arc<T>`, which this type owns.
pub(crate) struct Socket<T: Watch> {
    // Dropped first. After that, no call uses the watcher.
    raw: Option<Raw>,
    watcher: *mut c_void,
    _watcher: PhantomData<Arc<T>>,
}

// SAFETY: `Raw` may be used by any thread, as may an `Arc` of what is `Send` and `Sync`.
unsafe impl<T: Watch> Send for Socket<T> {}
// SAFETY: `Raw` may be used by any thread, as may an `Arc` of what is `Send` and `Sync`.
unsafe impl<T: Watch> Sync for Socket<T> {}

impl<T: Watch> Drop for Socket<T> {
    fn drop(&mut self) {
        // After that, no call uses the watcher.
        drop(self.raw.take());
        // SAFETY: by the type's invariants it is an `Arc<T>` that this type owns, and no call uses
        // it any more.
        drop(unsafe { <Arc<T> as ForeignOwnable>::from_foreign(self.watcher) });
    }
}

/// Calls [`Watch::changed`].
///
/// # Safety
///
/// `watcher` must be the foreign form of an `Arc<T>` that is alive during the call.
unsafe extern "C" fn wake<T: Watch>(watcher: *const c_void) {
    // SAFETY: the caller promises that it is such an `Arc`.
    T::changed(unsafe { <Arc<T> as ForeignOwnable>::borrow(watcher.cast_mut()) });
}

impl<T: Watch> Socket<T> {
    /// Begins to connect, in the network namespace of `netdev`. `tos` is the type of service, if it
    /// is not the default.
    pub(crate) fn connect(
        netdev: &NetdevRef,
        (local, remote): (&Address, &Address),
        tos: Option<u8>,
        watcher: Arc<T>,
    ) -> Result<Self> {
        let tos = tos.map_or(-1, i32::from);
        // SAFETY: the Ethernet device is alive, as it is referred to; both addresses are valid.
        let raw = unsafe {
            bindings::iwarp_socket_connect(netdev.as_raw(), local.as_ptr(), remote.as_ptr(), tos)
        };
        // SAFETY: it was created just now.
        Ok(Self::watched(unsafe { Raw::new(raw) }?, watcher))
    }

    /// Returns the number of the next network device after `after` on which to listen for `id`, if
    /// there is one. If `after` is -1, returns the first one.
    pub(crate) fn next_device(netdev: &NetdevRef, id: &CmId<Listens>, after: i32) -> Option<i32> {
        let (local, netdev, net) = (id.local(), netdev.as_raw(), id.net());
        // SAFETY: the Ethernet device is alive, as it is referred to; the address is valid; the
        // network namespace is only compared.
        let next = unsafe { bindings::iwarp_next_device(netdev, net, local.as_ptr(), after) };
        (next >= 0).then_some(next)
    }

    /// Listens for `id` in the network namespace of `netdev`, on the network device with the number
    /// `device`.
    pub(crate) fn listen(
        netdev: &NetdevRef,
        device: i32,
        id: &CmId<Listens>,
        backlog: i32,
        watcher: Arc<T>,
    ) -> Result<Self> {
        let (local, v6only, tos) = (id.local(), id.v6only(), id.tos().map_or(-1, i32::from));
        let (netdev, local) = (netdev.as_raw(), local.as_ptr());
        // SAFETY: the Ethernet device is alive, as it is referred to; the address is valid.
        let raw =
            unsafe { bindings::iwarp_socket_listen(netdev, device, local, v6only, backlog, tos) };
        // SAFETY: it was created just now.
        Ok(Self::watched(unsafe { Raw::new(raw) }?, watcher))
    }

    /// Returns whether the socket still listens. The guest can end it (`ss -K`).
    pub(crate) fn listens(&self) -> bool {
        // SAFETY: the socket is alive until this is dropped.
        unsafe { bindings::iwarp_socket_listens(self.as_ptr()) }
    }

    /// Watches a connection. Earlier changes are not reported.
    pub(crate) fn watch(accepted: Accepted, watcher: Arc<T>) -> Self {
        Self::watched(accepted.0, watcher)
    }

    fn watched(raw: Raw, watcher: Arc<T>) -> Self {
        let watcher = watcher.into_foreign();
        // SAFETY: the socket is alive, and no code watches it. `watcher` is an `Arc<T>` that is
        // dropped when the socket is closed and not before.
        unsafe { bindings::iwarp_socket_watch(raw.as_ptr(), watcher, Some(wake::<T>)) };
        // INVARIANT: it was made of an `Arc<T>` just now.
        Self { raw: Some(raw), watcher, _watcher: PhantomData }
    }

    /// Returns the TCP socket of a program or of a kernel client. It is not watched: the owner's
    /// callbacks stay. `watcher` is kept until the socket is dropped.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTSOCK`, `EOPNOTSUPP` for another kind of socket, `ENOMEM`.
    pub(crate) fn lent(lender: &Lender<'_>, watcher: Arc<T>) -> Result<Self> {
        let raw = match lender {
            // SAFETY: any number may be passed.
            Lender::Process(fd) => unsafe { bindings::iwarp_socket_lend(*fd) },
            // SAFETY: by the invariants of `ClientSocket` the socket is valid, and belongs to the
            // driver if its connection is taken.
            Lender::Kernel(socket) => unsafe {
                bindings::iwarp_socket_lend_kernel(socket.0.as_ptr())
            },
        };
        // SAFETY: it was created just now.
        let raw = unsafe { Raw::new(raw) }?;
        let watcher = watcher.into_foreign();
        // INVARIANT: it was made of an `Arc<T>` just now.
        Ok(Self { raw: Some(raw), watcher, _watcher: PhantomData })
    }

    /// Returns how many bytes have arrived at a lent socket and were not read, as of now.
    pub(crate) fn unread(&self) -> usize {
        // SAFETY: the socket is alive until this is dropped.
        unsafe { bindings::iwarp_socket_unread(self.as_ptr()) }
    }

    /// Locks a lent socket, and copies the bytes that were not read to `unread`. Also returns the
    /// state of its connection, and the number of bytes.
    ///
    /// # Errors
    ///
    /// As of [`Self::take`], except that bytes may have arrived; `EMSGSIZE` if there are too many.
    pub(crate) fn hold(
        &self,
        netdev: &NetdevRef,
        card: &NetdevRef,
        unread: &mut [u8],
    ) -> Result<(Held<'_, T>, Snapshot, usize)> {
        // SAFETY: a C struct of numbers and truth values, for which zero is valid.
        let mut snapshot: Snapshot = unsafe { core::mem::zeroed() };
        let (netdev, card) = (netdev.as_raw(), card.as_raw());
        let (buffer, size) = (unread.as_mut_ptr().cast(), unread.len());
        // SAFETY: the socket is alive until this is dropped; both Ethernet devices are alive, as
        // they are referred to; the buffer has this many bytes.
        let count = unsafe {
            bindings::iwarp_socket_hold(self.as_ptr(), netdev, card, buffer, size, &mut snapshot)
        };
        to_result(count)?;
        // INVARIANT: the function has locked the socket.
        let held = Held { socket: self, taken: false };
        Ok((held, snapshot, usize::try_from(count)?))
    }

    /// Returns the C socket.
    fn as_ptr(&self) -> *mut bindings::iwarp_socket {
        self.raw.as_ref().map_or(core::ptr::null_mut(), Raw::as_ptr)
    }

    /// Returns the next connection of a listener, if there is one.
    ///
    /// # Errors
    ///
    /// The errors of `accept`.
    pub(crate) fn accept(&self) -> Result<Option<Accepted>> {
        // SAFETY: the socket is alive until this is dropped.
        let raw = unsafe { bindings::iwarp_socket_accept(self.as_ptr()) };
        // SAFETY: it was created just now.
        match unsafe { Raw::new(raw) } {
            Ok(raw) => Ok(Some(Accepted(raw))),
            Err(error) if error == EAGAIN => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether it is connected.
    ///
    /// # Errors
    ///
    /// The error for which the connection was not made, or with which it ended.
    pub(crate) fn progress(&self) -> Result<Progress> {
        // SAFETY: the socket is alive until this is dropped.
        let status = unsafe { bindings::iwarp_socket_status(self.as_ptr()) };
        to_result(status)?;
        Ok(if status == 0 { Progress::Connecting } else { Progress::Established })
    }

    /// Reads the bytes that have arrived, if any. Returns their number.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` at the end of the stream, or the error with which the connection ended.
    pub(crate) fn read(&self, into: &mut [u8]) -> Result<Option<usize>> {
        // SAFETY: the socket is alive until this is dropped; the buffer has this many bytes.
        let read = unsafe {
            bindings::iwarp_socket_read(self.as_ptr(), into.as_mut_ptr().cast(), into.len())
        };
        match to_result(read) {
            Ok(()) if read == 0 => Err(ECONNRESET),
            Ok(()) => Ok(usize::try_from(read).ok()),
            Err(error) if error == EAGAIN => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends as many of the bytes as the socket has room for.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result {
        // SAFETY: the socket is alive until this is dropped; the buffer has this many bytes.
        to_result(unsafe {
            bindings::iwarp_socket_write(self.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Returns the addresses of both ends, the local address first.
    pub(crate) fn names(&self) -> Result<(Address, Address)> {
        let (mut local, mut remote) = (Address::default(), Address::default());
        // SAFETY: the socket is alive until this is dropped; there is room for two addresses.
        to_result(unsafe {
            bindings::iwarp_socket_names(self.as_ptr(), local.as_mut_ptr(), remote.as_mut_ptr())
        })?;
        Ok((local, remote))
    }

    /// Takes the connection out of the socket. The connection must run through `netdev` or a VLAN
    /// of it, and so through the network card `card`, or be a connection of this machine to itself
    /// with an address of theirs. When a socket without its connection is closed, it sends no
    /// segment.
    ///
    /// # Errors
    ///
    /// `EAGAIN` while bytes are unacknowledged, `EPROTO` if bytes have arrived, `EOPNOTSUPP` if the
    /// connection has an option that the device does not support, `ECONNREFUSED` for a connection
    /// through another device or another port of a bridge, `EHOSTUNREACH` if the route to the peer
    /// is not known, `ECONNRESET` if the connection has ended.
    pub(crate) fn take(&self, netdev: &NetdevRef, card: &NetdevRef) -> Result<Snapshot> {
        // SAFETY: a C struct of numbers and truth values, for which zero is valid.
        let mut snapshot: Snapshot = unsafe { core::mem::zeroed() };
        let (netdev, card) = (netdev.as_raw(), card.as_raw());
        // SAFETY: the socket is alive until this is dropped; both Ethernet devices are alive, as
        // they are referred to.
        to_result(unsafe {
            bindings::iwarp_socket_take(self.as_ptr(), netdev, card, &mut snapshot)
        })?;
        Ok(snapshot)
    }

    /// Returns the MACs of the frames of a connection that was taken out, as they are now: the own
    /// one and that of the next hop. If the latter is not known, the kernel asks for it, and this
    /// returns the one of `taken`.
    ///
    /// # Errors
    ///
    /// As of [`Self::take`], if the route to the peer is one by which no connection can be taken.
    pub(crate) fn macs(
        &self,
        netdev: &NetdevRef,
        card: &NetdevRef,
        taken: &Snapshot,
    ) -> Result<Macs> {
        let mut macs = Macs { own: taken.smac, next_hop: taken.dmac };
        let (netdev, card) = (netdev.as_raw(), card.as_raw());
        let (own, next_hop) = (macs.own.as_mut_ptr(), macs.next_hop.as_mut_ptr());
        // SAFETY: the socket is alive until this is dropped; both Ethernet devices are alive, as
        // they are referred to; a MAC has 6 bytes.
        to_result(unsafe {
            bindings::iwarp_socket_macs(self.as_ptr(), netdev, card, taken, own, next_hop)
        })?;
        Ok(macs)
    }

    /// Returns whether the socket has received nothing since the connection was taken out.
    pub(crate) fn is_untouched(&self, taken: &Snapshot) -> bool {
        // SAFETY: the socket is alive until this is dropped.
        unsafe { bindings::iwarp_socket_is_untouched(self.as_ptr(), taken) }
    }

    /// Sends the request of a connection of this machine to itself. The connection was taken out.
    pub(crate) fn greet(&self, request: &[u8]) -> Result {
        // SAFETY: the socket is alive until this is dropped; the buffer has this many bytes.
        to_result(unsafe {
            bindings::iwarp_socket_greet(self.as_ptr(), request.as_ptr().cast(), request.len())
        })
    }

    /// Gives the connection that was taken out back to the socket.
    pub(crate) fn give_back(&self) {
        // SAFETY: the socket is alive until this is dropped.
        unsafe { bindings::iwarp_socket_give_back(self.as_ptr()) };
    }
}

/// A lent socket that is locked. The drop unlocks it.
///
/// # Invariants
///
/// `iwarp_socket_hold` has locked the socket for this object.
pub(crate) struct Held<'a, T: Watch> {
    socket: &'a Socket<T>,
    taken: bool,
}

impl<T: Watch> Held<'_, T> {
    /// Takes the connection out of the socket, and closes the socket of a program.
    pub(crate) fn take(mut self) {
        self.taken = true;
    }
}

impl<T: Watch> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the socket is alive, as it is borrowed, and by the type's invariants locked for
        // this object.
        unsafe { bindings::iwarp_socket_release(self.socket.as_ptr(), self.taken) };
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The connection manager of iWARP devices; its events are in [`event`].
//!
//! C header: `include/rdma/iw_cm.h`.

use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};

use kernel::{error::to_result, prelude::*};

mod event;

use self::event::Event;
pub(crate) use self::event::{ConnRequest, Depths};
use super::{device::Device, event::QpLink, ops::Operations, queues::qp::Qp};
use crate::bindings;

/// The operations by which the core's connection manager makes connections.
///
/// All but `may_connect` and `get_qp` may sleep. The core stops the whole machine for events that
/// are not in order; the types of identifiers ([`CmId`]) allow no others. The abstraction counts
/// the references of the connection manager to queue pairs.
pub(crate) trait IwOperations: Operations {
    /// Opens a connection. If this succeeds, one call of [`CmId::reply`] or [`CmId::refuse`] must
    /// follow, for which the core waits.
    fn connect(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        id: CmId<Connects>,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Connects>>;

    /// Accepts the request with the number `offer` of a [`ConnRequest`]. If this succeeds, a call
    /// of [`CmId::establish`] must follow, for which the core waits.
    fn accept(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        id: CmId<Accepts>,
        offer: Offer,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Accepts>>;

    /// Rejects a request; no event follows.
    fn reject(data: &Self::Data<'_>, offer: Offer, private: &[u8]) -> Result;

    /// Starts to listen. The driver passes each request on by [`CmId::request`].
    fn create_listen(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        id: CmId<Listens>,
        backlog: i32,
    ) -> Result;

    /// Ends a listener; no event follows.
    fn destroy_listen(data: &Self::Data<'_>, id: Identity) -> Result;

    /// Returns whether the caller of [`Self::connect`] or [`Self::accept`], which is the current
    /// process or a kernel client, may connect a queue pair. The core does not check the number
    /// that a process gives. `by_its_client` is true if a kernel client calls, for which the core
    /// has created this queue pair. Must not sleep.
    fn may_connect(qp: &Qp<Self>, by_its_client: bool) -> bool;

    /// Returns the link of the queue pair of this number. Called with interrupts off.
    fn get_qp(data: &Self::Data<'_>, number: u32) -> Option<QpLink>;
}

/// An identifier that an operation gives back unused, because it has failed. The core does not
/// expect an event after an error.
pub(crate) struct Refused<S> {
    /// The identifier that the operation was called with.
    pub(crate) id: CmId<S>,
    pub(crate) error: Error,
}

/// The number of a request that a [`ConnRequest`] has passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer(pub(crate) usize);

/// Distinguishes an identifier from others that exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(usize);

/// The address of one end of a connection (`struct sockaddr_storage`).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Address(bindings::__kernel_sockaddr_storage);

// SAFETY: plain bytes; the pointer among the fields only aligns them.
unsafe impl Send for Address {}
// SAFETY: plain bytes; the pointer among the fields only aligns them.
unsafe impl Sync for Address {}

impl Default for Address {
    fn default() -> Self {
        // SAFETY: a C struct of numbers, for which zero is valid.
        Self(unsafe { core::mem::zeroed() })
    }
}

impl Address {
    pub(crate) fn as_ptr(&self) -> *const bindings::__kernel_sockaddr_storage {
        &self.0
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut bindings::__kernel_sockaddr_storage {
        &mut self.0
    }
}

/// A state of an identifier: it listens, and requests may be passed on.
pub(crate) enum Listens {}
/// A state of an identifier: a connection is being made, whose owner is owed the reply.
pub(crate) enum Connects {}
/// A state of an identifier: a request was accepted, whose owner is owed that the connection is
/// established.
pub(crate) enum Accepts {}
/// A state of an identifier: the connection is established, and its owner is owed its end.
pub(crate) enum Connected {}
/// A state of an identifier: its owner was notified that the peer closes the connection, and is
/// owed its end.
pub(crate) enum Closing {}

/// The states in which the core gives identifiers to the driver.
pub(crate) trait Given {}

impl Given for Listens {}
impl Given for Connects {}
impl Given for Accepts {}

/// A counted reference to an identifier of the connection manager, a connection or a listener, in
/// the state `S`. Events that lead to another state take it away.
///
/// # Invariants
///
/// The pointer refers to an identifier, and the type owns a reference to it.
pub(crate) struct CmId<S> {
    raw: NonNull<bindings::iw_cm_id>,
    _state: PhantomData<S>,
}

// SAFETY: events may be reported and references given back by any thread. A state is no data.
unsafe impl<S> Send for CmId<S> {}
// SAFETY: the core's function for events takes the lock of the identifier; the fields that this
// type reads do not change while there is a connection or a listener. A state is no data.
unsafe impl<S> Sync for CmId<S> {}

impl<S: Given> CmId<S> {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `raw` must be an identifier that is alive during the call, and that the core gives to the
    /// operation of the state `S`.
    pub(super) unsafe fn new(raw: NonNull<bindings::iw_cm_id>) -> Self {
        // SAFETY: the identifier is alive during the call, as the caller promises. The core has set
        // the field when it made the identifier.
        let add_ref = unsafe { (&raw const (*raw.as_ptr()).add_ref).read() };
        if let Some(add_ref) = add_ref {
            // SAFETY: the function is the core's, and the identifier is alive during the call, as
            // the caller promises.
            unsafe { add_ref(raw.as_ptr()) };
        }
        // INVARIANT: the reference was taken just now.
        Self { raw, _state: PhantomData }
    }
}

impl<S> CmId<S> {
    pub(super) fn as_ptr(&self) -> *mut bindings::iw_cm_id {
        self.raw.as_ptr()
    }

    /// Returns the result of an operation that the core has called for `raw`. After a failure, the
    /// identifier that it gives back must be this one: the events of this one may have been
    /// reported if it gives back another.
    pub(super) fn outcome(raw: *mut bindings::iw_cm_id, result: Result<(), Refused<S>>) -> Result {
        match result {
            Err(refused) if refused.id.as_ptr() == raw => Err(refused.error),
            Err(_) => {
                pr_err!("a driver gives another identifier back than the one that it was given\n");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Moves the reference to another state, which an event has led to.
    fn into_state<T>(self) -> CmId<T> {
        // INVARIANT: the reference is not given back here, so the new value owns it.
        CmId { raw: ManuallyDrop::new(self).raw, _state: PhantomData }
    }

    /// Reports an event to its owner. Can be called in any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory for private data, or too many requests wait to be taken.
    fn report(&self, event: &Event<'_>) -> Result {
        let mut raw = event.to_raw();
        // SAFETY: the identifier is alive by the type's invariants. The core has set the field when
        // it made the identifier.
        let handler = unsafe { (&raw const (*self.as_ptr()).event_handler).read() };
        // SAFETY: the handler is the core's, which copies the event and its private data; the
        // identifier is alive by the type's invariants.
        to_result(unsafe { handler.ok_or(EINVAL)?(self.as_ptr(), &mut raw) })
    }

    /// Reports an event without private data to its owner. The core has set memory for it aside.
    fn notify(&self, event: &Event<'_>) {
        if let Err(error) = self.report(event) {
            pr_err!("the connection manager does not take an event: {error:?}\n");
        }
    }
}

impl<S> Drop for CmId<S> {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive by the type's invariants. The core has set the field when
        // it made the identifier.
        let rem_ref = unsafe { (&raw const (*self.as_ptr()).rem_ref).read() };
        if let Some(rem_ref) = rem_ref {
            // SAFETY: the function is the core's, and gives back the reference that the type owns
            // by its invariants.
            unsafe { rem_ref(self.as_ptr()) };
        }
    }
}

impl<S: Given> CmId<S> {
    /// Returns whether its owner is a kernel client for which the core has created this queue pair,
    /// which is only compared.
    ///
    /// # Safety
    ///
    /// To be called from an operation by which the owner connects or accepts.
    pub(super) unsafe fn client_has(&self, qp: *const bindings::ib_qp) -> bool {
        // SAFETY: the identifier is alive by the type's invariants, and its owner during the call,
        // as the caller promises.
        unsafe { bindings::rdma_helper_iw_client_has_qp(self.as_ptr(), qp) }
    }

    /// Returns the address of the own end.
    pub(crate) fn local(&self) -> Address {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows the identifier, and changes with the event that ends this state.
        Address(unsafe { (&raw const (*self.as_ptr()).m_local_addr).read() })
    }

    /// Returns the type of service, if one was chosen.
    pub(crate) fn tos(&self) -> Option<u8> {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows the identifier, as are the others of its byte.
        let chosen = unsafe { bindings::iw_cm_id::tos_set_raw(self.as_ptr()) };
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows the identifier.
        let tos = unsafe { (&raw const (*self.as_ptr()).tos).read() };
        chosen.then_some(tos)
    }

    /// Returns the address of the peer.
    pub(crate) fn remote(&self) -> Address {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows the identifier, and changes with the event that ends this state.
        Address(unsafe { (&raw const (*self.as_ptr()).m_remote_addr).read() })
    }
}

impl CmId<Listens> {
    /// Returns the identity of an identifier.
    pub(super) fn identity_of(raw: *const bindings::iw_cm_id) -> Identity {
        Identity(raw.addr())
    }

    /// Returns the identity of the listener.
    pub(crate) fn identity(&self) -> Identity {
        Self::identity_of(self.as_ptr())
    }

    /// Returns whether a listener at an address of IPv6 must not take connections of IPv4.
    pub(crate) fn v6only(&self) -> bool {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows the identifier, as are the others of its byte.
        unsafe { bindings::iw_cm_id::afonly_raw(self.as_ptr()) }
    }

    /// Returns the network namespace of its owner, which is only to be compared with that of a
    /// network device. To be called before the listener has ended.
    pub(crate) fn net(&self) -> *const bindings::net {
        // SAFETY: the identifier is alive by the type's invariants. Its owner is alive because it
        // ends the listener, and waits for that, before it goes.
        unsafe { bindings::rdma_helper_iw_net(self.as_ptr()) }
    }

    /// Tells its owner of a request.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the owner could not get it: too many requests wait to be taken, or there is no
    /// memory for the private data.
    pub(crate) fn request(&self, request: &ConnRequest<'_>) -> Result {
        self.report(&Event::Request(request))
    }
}

impl CmId<Connects> {
    /// Tells its owner that the connection is established: the addresses of both ends, the own one
    /// first, the READs as agreed on, and the private data of the peer.
    ///
    /// # Errors
    ///
    /// Returns the identifier, whose owner is still owed the reply, if there is no memory for the
    /// private data.
    pub(crate) fn reply(
        self,
        names: &(Address, Address),
        own: Depths,
        private: &[u8],
    ) -> Result<CmId<Connected>, Self> {
        match self.report(&Event::Reply { status: Ok(()), names, own, private }) {
            Ok(()) => Ok(self.into_state()),
            Err(_) => Err(self),
        }
    }

    /// Tells its owner that the connection could not be made. The private data of the peer is left
    /// out if there is no memory for it.
    pub(crate) fn refuse(self, error: Error, names: &(Address, Address), private: &[u8]) {
        let (status, own) = (Err(error), Depths::default());
        let reply = |private| Event::Reply { status, names, own, private };
        if private.is_empty() || self.report(&reply(private)).is_err() {
            self.notify(&reply(&[]));
        }
    }
}

impl CmId<Accepts> {
    /// Tells its owner that the connection is established, and the READs as agreed on.
    pub(crate) fn establish(self, own: Depths) -> CmId<Connected> {
        self.notify(&Event::Established { own });
        self.into_state()
    }
}

impl CmId<Connected> {
    /// Tells its owner that the peer closes the connection.
    pub(crate) fn disconnect(self) -> CmId<Closing> {
        self.notify(&Event::Disconnect);
        self.into_state()
    }

    /// Tells its owner that the connection has ended.
    pub(crate) fn close(self) {
        self.notify(&Event::Close);
    }
}

impl CmId<Closing> {
    /// Tells its owner that the connection has ended.
    pub(crate) fn close(self) {
        self.notify(&Event::Close);
    }
}

/// The parameters of a connection (`struct iw_cm_conn_param`).
pub(crate) struct ConnParam<'a> {
    /// The number of the queue pair.
    pub(crate) qpn: u32,
    /// READs that are served at a time.
    pub(crate) ird: u32,
    /// READs that are outstanding at a time.
    pub(crate) ord: u32,
    /// The private data.
    pub(crate) private: &'a [u8],
}

impl<'a> ConnParam<'a> {
    /// # Safety
    ///
    /// `raw` must be valid, and its private data too, for `'a`.
    pub(super) unsafe fn from_raw(raw: &'a bindings::iw_cm_conn_param) -> Self {
        Self {
            qpn: raw.qpn,
            ird: raw.ird,
            ord: raw.ord,
            // SAFETY: the caller promises that the private data is valid.
            private: unsafe { private_data(raw.private_data.cast(), raw.private_data_len) },
        }
    }
}

/// Returns private data, which may be absent.
///
/// # Safety
///
/// `data` must be null, or point to this many bytes that are valid for `'a`.
pub(super) unsafe fn private_data<'a>(data: *const u8, len: u16) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller promises that there are this many bytes.
    unsafe { core::slice::from_raw_parts(data, len.into()) }
}

// SPDX-License-Identifier: GPL-2.0
//! The connection manager of iWARP devices.
//!
//! C header: `include/rdma/iw_cm.h`.

use core::ptr::NonNull;

use kernel::{error::to_result, prelude::*};

use super::{bindings, device::Device, event::QpLink, ops::Operations, qp::Qp};

/// The operations by which the core's connection manager makes connections.
///
/// All but `get_qp` and `rem_ref` may sleep. The core stops the whole machine for events that are
/// not in order ([`Event`]).
pub(crate) trait IwOperations: Operations {
    /// Connects. If this succeeds, exactly one [`Event::Reply`] must follow.
    fn connect(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        id: CmId,
        param: &ConnParam<'_>,
    ) -> Result;

    /// Accepts the request with the number `offer` of an [`Event::Request`]. If this succeeds,
    /// exactly one [`Event::Established`] must follow, else none.
    fn accept(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        id: CmId,
        offer: Offer,
        param: &ConnParam<'_>,
    ) -> Result;

    /// Rejects a request; no event follows.
    fn reject(data: &Self::Data<'_>, offer: Offer, private: &[u8]) -> Result;

    /// Listens. Each request is an [`Event::Request`].
    fn create_listen(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        id: CmId,
        backlog: i32,
    ) -> Result;

    /// Ends a listener; no event follows.
    fn destroy_listen(data: &Self::Data<'_>, id: Identity) -> Result;

    /// Returns the link of the queue pair of this number. Called with interrupts off.
    fn get_qp(data: &Self::Data<'_>, number: u32) -> Option<QpLink>;

    /// Takes a reference to a queue pair, whose destruction waits for all. Returns whether there is
    /// one, which is not so if it is being destroyed. Called with interrupts off.
    fn add_ref(qp: &Qp<Self>) -> bool;

    /// Gives a reference back. Called in any context.
    fn rem_ref(qp: &Qp<Self>);
}

/// The number of a request that was told by an [`Event::Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer(pub(crate) usize);

/// Tells one identifier from others that live at the same time.
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
    pub(super) fn as_ptr(&self) -> *const bindings::__kernel_sockaddr_storage {
        &self.0
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut bindings::__kernel_sockaddr_storage {
        &mut self.0
    }
}

/// A counted reference to an identifier of the connection manager: a connection or a listener.
///
/// # Invariants
///
/// The pointer is that of an identifier, of which the type owns a reference.
pub(crate) struct CmId(NonNull<bindings::iw_cm_id>);

// SAFETY: events may be reported and references given back by any thread.
unsafe impl Send for CmId {}
// SAFETY: the core's function for events takes the lock of the identifier; other fields do not
// change while there is a connection or a listener.
unsafe impl Sync for CmId {}

impl CmId {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `raw` must be an identifier that is alive during the call.
    pub(super) unsafe fn new(raw: NonNull<bindings::iw_cm_id>) -> Self {
        // SAFETY: the caller promises that the identifier is alive.
        if let Some(add_ref) = unsafe { raw.as_ref() }.add_ref {
            // SAFETY: the caller promises that the identifier is alive.
            unsafe { add_ref(raw.as_ptr()) };
        }
        // INVARIANT: the reference was taken just now.
        Self(raw)
    }

    /// Returns the identity of an identifier.
    pub(super) fn identity_of(raw: *const bindings::iw_cm_id) -> Identity {
        Identity(raw.addr())
    }

    /// Returns its identity.
    pub(crate) fn identity(&self) -> Identity {
        Self::identity_of(self.0.as_ptr())
    }

    /// Returns the address of the own end.
    pub(crate) fn local(&self) -> Address {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows it.
        Address(unsafe { (*self.0.as_ptr()).m_local_addr })
    }

    /// Returns the address of the peer.
    pub(crate) fn remote(&self) -> Address {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows it.
        Address(unsafe { (*self.0.as_ptr()).m_remote_addr })
    }

    /// Returns the type of service, if one was chosen.
    pub(crate) fn tos(&self) -> Option<u8> {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows it.
        let raw = unsafe { &*self.0.as_ptr() };
        raw.tos_set().then_some(raw.tos)
    }

    /// Returns whether a listener at an address of IPv6 shall not take connections of IPv4.
    pub(crate) fn v6only(&self) -> bool {
        // SAFETY: the identifier is alive by the type's invariants. The field is set before the
        // driver knows it.
        unsafe { &*self.0.as_ptr() }.afonly()
    }

    /// Tells its owner of an event. Callable in any context.
    ///
    /// # Errors
    ///
    /// `ENOMEM` for a request of which the owner could not be told: too many wait to be taken.
    pub(crate) fn report(&self, event: &Event<'_>) -> Result {
        let mut raw = event.to_raw();
        // SAFETY: the identifier is alive by the type's invariants. The field does not change.
        let handler = unsafe { (*self.0.as_ptr()).event_handler }.ok_or(EINVAL)?;
        // SAFETY: the handler is the core's, which copies the event and its private data.
        to_result(unsafe { handler(self.0.as_ptr(), &mut raw) })
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive by the type's invariants. The field does not change.
        if let Some(rem_ref) = unsafe { (*self.0.as_ptr()).rem_ref } {
            // SAFETY: gives back the reference that the type owns by its invariants.
            unsafe { rem_ref(self.0.as_ptr()) };
        }
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
/// `data` must be null or so many bytes that are valid for `'a`.
pub(super) unsafe fn private_data<'a>(data: *const u8, len: u16) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller promises that there are so many bytes.
    unsafe { core::slice::from_raw_parts(data, len.into()) }
}

/// READs that both ends have agreed on, as events tell them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depths {
    /// Those that are served at a time.
    pub(crate) ird: u8,
    /// Those that are outstanding at a time.
    pub(crate) ord: u8,
}

/// The events of a connection.
///
/// A connection that was made here gets one `Reply`; one that was accepted gets one `Established`.
/// If the former is a success, and after the latter, one `Close` follows at the end, and before it
/// one `Disconnect` at most. No other events may follow.
pub(crate) enum Event<'a> {
    /// A request has come; reported to the listener.
    Request {
        /// The own address and the peer's.
        names: &'a (Address, Address),
        /// The number that accepting or rejecting it names.
        offer: Offer,
        /// READs as the peer has them: the first number is of those that the peer serves.
        peer: Depths,
        /// The private data.
        private: &'a [u8],
    },
    /// The connection that was made has been established, or not.
    Reply {
        /// The reason for which it was not.
        status: Result,
        /// The own address and the peer's.
        names: &'a (Address, Address),
        /// READs as agreed on.
        own: Depths,
        /// The private data of the peer.
        private: &'a [u8],
    },
    /// The connection that was accepted is established.
    Established {
        /// READs as agreed on.
        own: Depths,
    },
    /// The peer closes the connection.
    Disconnect,
    /// The connection has ended.
    Close,
}

impl Event<'_> {
    fn to_raw(&self) -> bindings::iw_cm_event {
        // SAFETY: a plain C struct of pointers and numbers, for which zero is a valid value.
        let mut raw: bindings::iw_cm_event = unsafe { core::mem::zeroed() };
        let private: &[u8] = match self {
            Self::Request { private, .. } | Self::Reply { private, .. } => private,
            _ => &[],
        };
        // The core copies so many bytes and does not write to them.
        raw.private_data_len = u8::try_from(private.len()).unwrap_or(u8::MAX);
        raw.private_data = private.as_ptr().cast_mut().cast();
        if let Self::Request { names, .. } | Self::Reply { names, .. } = self {
            raw.local_addr = names.0.0;
            raw.remote_addr = names.1.0;
        }
        if let Self::Request { peer: depths, .. }
        | Self::Reply { own: depths, .. }
        | Self::Established { own: depths } = self
        {
            raw.ird = depths.ird;
            raw.ord = depths.ord;
        }
        raw.event = match self {
            Self::Request { offer, .. } => {
                raw.provider_data = core::ptr::without_provenance_mut(offer.0);
                bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST
            }
            Self::Reply { status, .. } => {
                raw.status = status.err().map_or(0, Error::to_errno);
                bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY
            }
            Self::Established { .. } => bindings::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED,
            Self::Disconnect => bindings::iw_cm_event_type_IW_CM_EVENT_DISCONNECT,
            Self::Close => bindings::iw_cm_event_type_IW_CM_EVENT_CLOSE,
        };
        raw
    }
}

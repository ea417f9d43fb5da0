// SPDX-License-Identifier: GPL-2.0
//! Events of the connection manager, as the core takes them.

use kernel::prelude::*;

use super::{Address, Offer};
use crate::bindings;

/// READs that both ends have agreed on, as events tell them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depths {
    /// The number of READs that are served at a time.
    pub(crate) ird: u8,
    /// The number of READs that are outstanding at a time.
    pub(crate) ord: u8,
}

/// A request that has come to a listener.
pub(crate) struct ConnRequest<'a> {
    /// The own address and the peer's.
    pub(crate) names: &'a (Address, Address),
    /// The number that accepting or rejecting it names.
    pub(crate) offer: Offer,
    /// READs as the peer has them: the first number is of those that the peer serves.
    pub(crate) peer: Depths,
    /// The private data.
    pub(crate) private: &'a [u8],
}

/// The events that the core knows (`struct iw_cm_event`); see the methods of [`CmId`].
pub(super) enum Event<'a> {
    Request(&'a ConnRequest<'a>),
    Reply { status: Result, names: &'a (Address, Address), own: Depths, private: &'a [u8] },
    Established { own: Depths },
    Disconnect,
    Close,
}

impl Event<'_> {
    pub(super) fn to_raw(&self) -> bindings::iw_cm_event {
        // SAFETY: a plain C struct of pointers and numbers, for which zero is a valid value.
        let mut raw: bindings::iw_cm_event = unsafe { core::mem::zeroed() };
        match *self {
            Self::Request(&ConnRequest { names, offer, peer, private }) => {
                raw.event = bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST;
                raw.provider_data = core::ptr::without_provenance_mut(offer.0);
                set_names(&mut raw, names);
                set_depths(&mut raw, peer);
                set_private(&mut raw, private);
            }
            Self::Reply { status, names, own, private } => {
                raw.event = bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY;
                raw.status = status.err().map_or(0, Error::to_errno);
                set_names(&mut raw, names);
                set_depths(&mut raw, own);
                set_private(&mut raw, private);
            }
            Self::Established { own } => {
                raw.event = bindings::iw_cm_event_type_IW_CM_EVENT_ESTABLISHED;
                set_depths(&mut raw, own);
            }
            Self::Disconnect => raw.event = bindings::iw_cm_event_type_IW_CM_EVENT_DISCONNECT,
            Self::Close => raw.event = bindings::iw_cm_event_type_IW_CM_EVENT_CLOSE,
        }
        raw
    }
}

fn set_names(raw: &mut bindings::iw_cm_event, names: &(Address, Address)) {
    raw.local_addr = names.0.0;
    raw.remote_addr = names.1.0;
}

fn set_depths(raw: &mut bindings::iw_cm_event, depths: Depths) {
    raw.ird = depths.ird;
    raw.ord = depths.ord;
}

/// Sets the private data of an event. The core copies the data, and does not write to it.
fn set_private(raw: &mut bindings::iw_cm_event, private: &[u8]) {
    raw.private_data_len = u8::try_from(private.len()).unwrap_or(u8::MAX);
    raw.private_data = private.as_ptr().cast_mut().cast();
}

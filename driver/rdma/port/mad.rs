// SPDX-License-Identifier: GPL-2.0
//! Management datagrams (IBTA volume 1, 13.4).
//!
//! C header: `include/rdma/ib_mad.h`.

use crate::bindings;

// CAST: numbers of a byte.
/// Class of performance management.
pub(crate) const CLASS_PERF_MGMT: u8 = bindings::IB_MGMT_CLASS_PERF_MGMT as u8;
/// Method: asks for an attribute.
pub(crate) const METHOD_GET: u8 = bindings::IB_MGMT_METHOD_GET as u8;

/// The result of handling a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadResult {
    /// The datagram is left to the core's agents.
    Passed,
    /// The datagram was answered.
    Replied,
    /// The datagram could not be answered.
    Failed,
}

impl MadResult {
    /// Returns the bits of `enum ib_mad_result`.
    pub(in crate::rdma) fn bits(self) -> u32 {
        match self {
            Self::Passed => bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS,
            Self::Replied => {
                bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS
                    | bindings::ib_mad_result_IB_MAD_RESULT_REPLY
            }
            Self::Failed => bindings::ib_mad_result_IB_MAD_RESULT_FAILURE,
        }
    }
}

/// A datagram that was received.
///
/// C: `struct ib_mad`.
pub(crate) struct Mad<'a> {
    header: &'a bindings::ib_mad_hdr,
    is_local: bool,
}

impl<'a> Mad<'a> {
    /// Wraps a datagram; one without a completion comes from the core itself.
    pub(in crate::rdma) fn new(
        mad: &'a bindings::ib_mad,
        received: *const bindings::ib_wc,
    ) -> Self {
        Self { header: &mad.mad_hdr, is_local: received.is_null() }
    }

    /// Returns whether the core itself asks, and not a peer.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Returns its management class.
    pub(crate) fn class(&self) -> u8 {
        self.header.mgmt_class
    }

    /// Returns the method of the MAD.
    pub(crate) fn method(&self) -> u8 {
        self.header.method
    }

    /// Returns the number of its attribute.
    pub(crate) fn attribute(&self) -> u16 {
        u16::from_be(self.header.attr_id)
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Entries of the GID table, which the core fills from the Ethernet device's addresses.

use kernel::{error::to_result, prelude::*, types::Opaque};

use crate::bindings;

/// A GID: an IPv6 address, or an IPv4 address mapped into one.
pub(crate) type Gid = [u8; 16];

/// The source of frames of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct L2Source {
    /// VLAN id, if there is one.
    pub(crate) vlan: Option<u16>,
    /// Source MAC.
    pub(crate) mac: [u8; 6],
}

/// An entry of the GID table.
///
/// C: `struct ib_gid_attr`.
///
/// # Invariants
///
/// A valid entry, of which the fields that are read here do not change.
#[repr(transparent)]
pub(crate) struct GidAttr(Opaque<bindings::ib_gid_attr>);

impl GidAttr {
    /// # Safety
    ///
    /// `raw` must point to a valid entry, for `'a`.
    pub(in crate::rdma) unsafe fn from_raw<'a>(raw: *const bindings::ib_gid_attr) -> &'a Self {
        // SAFETY: the caller passes a valid entry; the wrapper is transparent.
        // INVARIANT: it is valid.
        unsafe { &*raw.cast() }
    }

    /// Returns its index in the table.
    pub(crate) fn index(&self) -> u16 {
        // SAFETY: by the type's invariants the entry is valid, and its index does not change.
        unsafe { (*self.0.get()).index }
    }

    /// Returns the GID.
    pub(crate) fn gid(&self) -> Gid {
        // SAFETY: by the type's invariants the entry is valid, and its GID does not change.
        let gid = unsafe { &(*self.0.get()).gid };
        // SAFETY: all views of the union are bytes.
        unsafe { *gid.raw }
    }

    /// Returns whether packets of this entry are RoCE v2 (UDP).
    pub(crate) fn is_roce_v2(&self) -> bool {
        // SAFETY: by the type's invariants the entry is valid, and its type does not change.
        let kind = unsafe { (*self.0.get()).gid_type };
        kind == bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP
    }

    /// Returns the source of frames of this entry.
    ///
    /// # Errors
    ///
    /// `ENODEV` when its Ethernet device has gone.
    pub(crate) fn l2_source(&self) -> Result<L2Source> {
        // The core leaves this value if there is no VLAN.
        let mut vlan = u16::MAX;
        let mut mac = [0; 6];
        // SAFETY: by the type's invariants the entry is valid; `mac` has room for an address.
        to_result(unsafe {
            bindings::rdma_read_gid_l2_fields(self.0.get(), &mut vlan, mac.as_mut_ptr())
        })?;
        Ok(L2Source { vlan: (vlan != u16::MAX).then_some(vlan), mac })
    }
}

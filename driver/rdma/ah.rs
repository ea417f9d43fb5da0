// SPDX-License-Identifier: GPL-2.0
//! Address vectors and handles: where a connected queue pair or a datagram goes.

use core::mem::ManuallyDrop;

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*, types::Opaque};

use super::{
    driver::Driver,
    object::Object,
    port::gid::{Gid, GidAttr},
    user::ucontext::User,
};
use crate::bindings;

/// An address handle; derefs to the driver's part.
pub(crate) type Ah<T> = Object<bindings::ib_ah, <T as Driver>::Ah>;

/// The operations of address handles.
#[vtable]
pub(crate) trait AhOperations: Driver {
    /// Creates an address handle; for kernel clients in any context.
    fn create_ah(
        _data: &Self::Data<'_>,
        _attr: &AhAttr,
        _user: Option<&User<'_, Self>>,
    ) -> Result<Self::Ah> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns what an address handle was created with.
    fn query_ah(_ah: &Self::Ah) -> AhValues {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The address vector of an operation; the core has resolved the MAC and the source GID.
///
/// C: `struct rdma_ah_attr`.
///
/// # Invariants
///
/// A valid address vector that does not change, and holds a reference to its source.
#[repr(transparent)]
pub(crate) struct AhAttr(Opaque<bindings::rdma_ah_attr>);

impl AhAttr {
    /// # Safety
    ///
    /// `raw` must point to a valid address vector that does not change during `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *const bindings::rdma_ah_attr) -> &'a Self {
        // SAFETY: the caller passes a valid address vector; the wrapper is transparent.
        // INVARIANT: it is valid.
        unsafe { &*raw.cast() }
    }

    fn raw(&self) -> &bindings::rdma_ah_attr {
        // SAFETY: by the type's invariants the address vector is valid and does not change.
        unsafe { &*self.0.get() }
    }

    /// Returns the destination GID.
    pub(crate) fn dgid(&self) -> Gid {
        // SAFETY: all views of the union are bytes.
        unsafe { *self.raw().grh.dgid.raw }
    }

    /// Returns the destination MAC, if this is an address on Ethernet.
    pub(crate) fn dmac(&self) -> Option<[u8; 6]> {
        let is_roce = self.raw().type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        // SAFETY: the type says that this view of the union is valid.
        is_roce.then(|| unsafe { self.raw().__bindgen_anon_1.roce.dmac })
    }

    /// Returns the source's entry in the GID table, if it was resolved.
    pub(crate) fn source(&self) -> Option<&GidAttr> {
        let source = self.raw().grh.sgid_attr;
        // SAFETY: by the type's invariants the address vector holds a reference to the entry.
        (!source.is_null()).then(|| unsafe { GidAttr::from_raw(source) })
    }

    /// Returns the service level.
    pub(crate) fn sl(&self) -> u8 {
        self.raw().sl
    }

    /// Returns the hop limit.
    pub(crate) fn hop_limit(&self) -> u8 {
        self.raw().grh.hop_limit
    }

    /// Returns the traffic class.
    pub(crate) fn traffic_class(&self) -> u8 {
        self.raw().grh.traffic_class
    }

    /// Returns the flow label, which has 20 bits.
    pub(crate) fn flow_label(&self) -> u32 {
        self.raw().grh.flow_label
    }
}

/// An address vector to report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AhValues {
    /// Destination GID.
    pub(crate) dgid: Gid,
    /// Destination MAC, if this is an address on Ethernet.
    pub(crate) dmac: Option<[u8; 6]>,
    /// Port that it is reached by.
    pub(crate) port: u32,
    /// Index of the source GID.
    pub(crate) sgid_index: u8,
    /// Service level.
    pub(crate) sl: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
}

impl AhValues {
    /// Fills the core's struct, which starts zeroed.
    pub(super) fn write_to(&self, out: &mut bindings::rdma_ah_attr) {
        out.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB;
        if let Some(dmac) = self.dmac {
            out.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
            out.__bindgen_anon_1.roce = ManuallyDrop::new(bindings::roce_ah_attr { dmac });
        }
        // CAST: the flag is bit 0 of a byte.
        out.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        out.port_num = self.port;
        out.sl = self.sl;
        out.grh.dgid.raw = ManuallyDrop::new(self.dgid);
        out.grh.sgid_index = self.sgid_index;
        out.grh.hop_limit = self.hop_limit;
        out.grh.traffic_class = self.traffic_class;
        out.grh.flow_label = self.flow_label;
    }
}

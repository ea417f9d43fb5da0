// SPDX-License-Identifier: GPL-2.0
//! Memory windows (IBTA volume 1, 10.6.7).

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{driver::Driver, object::Object, pd::Pd};

/// A window; derefs to the driver's part.
pub(crate) type Mw<T> = Object<bindings::ib_mw, <T as Driver>::Mw>;

/// The operations of memory windows.
#[vtable]
pub(crate) trait MwOperations: Driver {
    /// Allocates a window, which is bound by work requests.
    fn alloc_mw(_data: &Self::Data<'_>, _pd: &Pd<Self>, _kind: MwType) -> Result<NewMw<Self::Mw>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Removes a window. On return no memory can be accessed by it.
    fn dealloc_mw(_data: &Self::Data<'_>, _mw: &Mw<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// Types of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MwType {
    /// Bound by a verb, for all queue pairs of a protection domain.
    Type1,
    /// Bound by a work request, for one queue pair.
    Type2,
}

impl MwType {
    /// Converts `enum ib_mw_type`.
    pub(in crate::rdma) fn from_raw(raw: bindings::ib_mw_type) -> Option<Self> {
        match raw {
            bindings::ib_mw_type_IB_MW_TYPE_1 => Some(Self::Type1),
            bindings::ib_mw_type_IB_MW_TYPE_2 => Some(Self::Type2),
            _ => None,
        }
    }
}

/// A new window.
pub(crate) struct NewMw<D> {
    /// The window's key, which is of no use until the window is bound.
    pub(crate) rkey: u32,
    /// The driver's part.
    pub(crate) driver: D,
}

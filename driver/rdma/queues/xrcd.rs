// SPDX-License-Identifier: GPL-2.0
//! XRC domains (IBTA annex A14).

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{driver::Driver, object::Object};

/// An XRC domain, which processes may share by a file; derefs to the driver's part.
pub(crate) type Xrcd<T> = Object<bindings::ib_xrcd, <T as Driver>::Xrcd>;

/// The operations of XRC domains.
#[vtable]
pub(crate) trait XrcdOperations: Driver {
    /// Creates an XRC domain, which may outlive the process that asks for it.
    fn alloc_xrcd(_data: &Self::Data<'_>) -> Result<Self::Xrcd> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys an XRC domain, which no code uses.
    fn dealloc_xrcd(_data: &Self::Data<'_>, _xrcd: &Xrcd<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

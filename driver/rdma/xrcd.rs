// SPDX-License-Identifier: GPL-2.0
//! XRC domains (IBTA annex A14).

use super::{bindings, object::Object, ops::Operations};

/// A domain, which processes may share by a file; derefs to the driver's part.
pub(crate) type Xrcd<T> = Object<bindings::ib_xrcd, <T as Operations>::Xrcd>;

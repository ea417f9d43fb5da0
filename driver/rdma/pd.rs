// SPDX-License-Identifier: GPL-2.0
//! Protection domains.

use super::{bindings, object::Object, ops::Operations};

/// A protection domain; derefs to the driver's part.
pub(crate) type Pd<T> = Object<bindings::ib_pd, <T as Operations>::Pd>;

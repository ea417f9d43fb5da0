// SPDX-License-Identifier: GPL-2.0
//! Protection domains.

use kernel::prelude::*;

use super::{driver::Driver, object::Object, user::ucontext::User};
use crate::bindings;

/// A protection domain; derefs to the driver's part.
pub(crate) type Pd<T> = Object<bindings::ib_pd, <T as Driver>::Pd>;

/// The operations of protection domains.
#[vtable]
pub(crate) trait PdOperations: Driver {
    /// Creates a protection domain.
    fn alloc_pd(data: &Self::Data<'_>, user: Option<&User<'_, Self>>) -> Result<Self::Pd>;

    /// Destroys a protection domain.
    fn dealloc_pd(data: &Self::Data<'_>, pd: &Pd<Self>) -> Result;
}

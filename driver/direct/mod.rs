// SPDX-License-Identifier: GPL-2.0
//! Direct transfers, and the requests of `direct.h`.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`ranges`] | owners of address ranges |
//! | [`quota`] | limits of the address ranges and the device memory of contexts and users |
//! | [`work`] | the work requests of `direct.h` |

pub(crate) mod quota;
pub(crate) mod ranges;
pub(crate) mod work;

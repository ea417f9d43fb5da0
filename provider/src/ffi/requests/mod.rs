// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parts of work requests, translated.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`request`] | the parts of work requests, translated |
//! | [`builder`] | the requests that the newer interface for posting builds |
//! | [`raw`] | sends of raw packets |

pub(crate) mod builder;
pub(crate) mod raw;
pub(crate) mod request;

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Regions, windows and device memory.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mr`, `mw` | regions, windows |
//! | `dm` | device memory |

pub(crate) mod dm;
pub(crate) mod mr;
pub(crate) mod mw;

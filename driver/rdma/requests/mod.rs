// SPDX-License-Identifier: GPL-2.0
//! Work requests of kernel clients, and their completions.
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`wr`], [`recv_wr`] | work requests of kernel clients |
//! | [`wc`] | completions |

pub(crate) mod recv_wr;
pub(crate) mod wc;
pub(crate) mod wr;

// SPDX-License-Identifier: GPL-2.0
//! Queue pairs, the queues that they use, and flows.
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`qp`] | queue pairs |
//! | [`cq`] | completion queues |
//! | [`srq`], [`xrcd`] | shared receive queues, XRC domains |
//! | [`flow`] | which frames a queue pair receives |
//! | [`wq`] | work queues, over which a queue pair spreads frames |

pub(crate) mod cq;
pub(crate) mod flow;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod wq;
pub(crate) mod xrcd;

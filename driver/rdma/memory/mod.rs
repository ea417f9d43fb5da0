// SPDX-License-Identifier: GPL-2.0
//! Regions, windows, device memory, and memory of users.
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`mr`], [`mw`] | regions, windows |
//! | [`dm`] | device memory |
//! | [`umem`], [`page_list`] | pinned memory of users, page lists for fast registration |
//! | [`paged_umem`], [`fault`] | memory of users that is not pinned, page faults for it |

pub(crate) mod dm;
pub(crate) mod fault;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod page_list;
pub(crate) mod paged_umem;
pub(crate) mod umem;

// SPDX-License-Identifier: GPL-2.0
//! Memory regions, windows and device memory.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`mr`], [`mw`], [`pages`] | memory regions and windows; page tables of 0, 1 or 2 levels |
//! | [`paged`] | memory of regions that is not pinned |
//! | [`dmabuf`] | DMA buffers whose exporter may take them back |
//! | [`dm`] | device memory |

pub(crate) mod dm;
pub(crate) mod dmabuf;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod paged;
pub(crate) mod pages;

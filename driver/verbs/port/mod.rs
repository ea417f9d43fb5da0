// SPDX-License-Identifier: GPL-2.0
//! The device, its port and its counters.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`device`] | limits, port, GIDs |
//! | [`counters`], [`pma`] | the port's counters; the agent that reports them |

pub(crate) mod counters;
pub(crate) mod device;
pub(crate) mod pma;

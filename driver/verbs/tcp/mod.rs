// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that have TCP connections.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`iwcm`] | connections of iWARP, and references to queue pairs |
//! | [`connection`] | the states of those connections, and how their owners end them |
//! | [`toe`] | queue pairs of TCP streams, which get the connections of sockets |

pub(crate) mod connection;
pub(crate) mod iwcm;
pub(crate) mod toe;

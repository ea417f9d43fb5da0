// SPDX-License-Identifier: GPL-2.0
//! A port: its attributes, addresses, Ethernet device and counters.
//!
//! | module | what it wraps |
//! | --- | --- |
//! | [`attr`] | attributes of the device and its port |
//! | [`gid`] | GID table entries |
//! | [`netdev`] | the Ethernet devices that ports are paired with |
//! | [`stats`], [`mad`] | counters, management datagrams |

pub(crate) mod attr;
pub(crate) mod gid;
pub(crate) mod mad;
pub(crate) mod netdev;
pub(crate) mod stats;

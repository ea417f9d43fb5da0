//! Regions, keys, windows and device memory.
//!
//! | module | cases |
//! | --- | --- |
//! | [`memlock`] | the limit of locked memory |
//! | [`regions`] | zero-based regions, changing regions |
//! | [`device_memory`] | memory of the device as the source and target of operations, its bounds and its end |
//! | [`windows`] | memory windows of both types, invalidation |
//! | [`direct`], [`options`] | one-touch keys, holding CQs, the two kinds of failure; options for keys (only vrnic) |
//! | [`direct_commands`] | commands whose keys end with their responses (only vrnic) |
//! | [`transfer`] | direct transfers (only vrnic) |

pub(crate) mod device_memory;
#[cfg(feature = "vrnic")]
pub(crate) mod direct;
#[cfg(feature = "vrnic")]
pub(crate) mod direct_commands;
pub(crate) mod memlock;
#[cfg(feature = "vrnic")]
pub(crate) mod options;
pub(crate) mod regions;
#[cfg(feature = "vrnic")]
pub(crate) mod transfer;
pub(crate) mod windows;

//! What a process that runs adapters shows to its clients, and what they can do with it: vrnicd,
//! and `vrnic exec`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`monitor`] | metrics and views over HTTP |
//! | [`reconfig`] | the control socket, by which clients ask for changes |
//! | [`capture`] | captures of packets and messages |
//! | [`timeline`] | the trace of a queue pair |
//! | [`fault_view`], [`resource_view`] | rules for faults and resources as clients see them |
//! | [`socket`] | listening socket files, and their permissions |
//! | [`event`] | what wakes a thread |
#![forbid(unsafe_code)]

pub mod capture;
pub mod event;
pub mod fault_view;
pub mod monitor;
pub mod reconfig;
pub mod resource_view;
pub mod socket;
pub mod timeline;

use std::sync::LazyLock;
use std::time::Instant;

use vrnic_packet::Nanos;

/// Returns the time on the monotonic clock of this process.
#[must_use]
#[inline]
pub fn now() -> Nanos {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Nanos::default().plus(START.elapsed())
}

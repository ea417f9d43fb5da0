//! A worker's side of an adapter.
//!
//! | module | contents |
//! | --- | --- |
//! | [`poll`] | one poll: doorbells, turns, timers, events |
//! | `worker_state` | what a worker keeps between polls |
//! | `schedule` | QPs with work, and QPs that wait for a time |
//! | [`slice`] | how long a poll may take |
//! | `recent_doorbells` | doorbells that rang lately and are looked at first |

pub mod poll;
pub(crate) mod recent_doorbells;
pub(crate) mod schedule;
pub mod slice;
pub(crate) mod worker_state;

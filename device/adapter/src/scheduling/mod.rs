//! A worker's side of an adapter.
//!
//! | module | contents |
//! | --- | --- |
//! | [`poll`] | one poll: doorbells, turns, timers, events |
//! | `worker_state` | what a worker keeps between polls |
//! | `schedule` | QPs with work, and QPs that wait for a time |
//! | `recent_doorbells` | doorbells that rang lately and are looked at first |

pub mod poll;
pub(crate) mod recent_doorbells;
pub(crate) mod schedule;
pub(crate) mod worker_state;

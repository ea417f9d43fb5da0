//! The state that a worker keeps for an adapter, and the order of turns.
//!
//! | module | contents |
//! | --- | --- |
//! | `worker_state` | what a worker keeps between polls |
//! | `schedule` | QPs with work, and QPs that wait for a time |
//! | `recent_doorbells` | doorbells that rang lately and are looked at first |

pub(crate) mod recent_doorbells;
pub(crate) mod schedule;
pub(crate) mod worker_state;

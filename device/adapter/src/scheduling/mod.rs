//! The state of a worker for an adapter, and the order of turns.
//!
//! | module | contents |
//! | --- | --- |
//! | `worker_state` | the state of a worker between polls |
//! | `schedule` | QPs with work, and QPs that wait for a time |
//! | `recent_doorbells` | doorbells that were rung recently and are checked first |

pub(crate) mod recent_doorbells;
pub(crate) mod schedule;
pub(crate) mod worker_state;

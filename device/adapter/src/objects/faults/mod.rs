//! Injected faults, and what is recorded for those who look for faults.
//!
//! | module | contents |
//! | --- | --- |
//! | `injection` | faults by rules: what was decided, and what they hold back |
//! | [`trace`], `notes` | the timeline of a QP; comments on its packets in captures |

pub(crate) mod injection;
pub(crate) mod notes;
pub mod trace;

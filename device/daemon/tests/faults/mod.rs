//! Faults, injected or not, and whom they affect.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `containment` | faults of one VMM or one function, which affect that function only |
//! | `fault_kinds` | faults by rules that are not for packets |
//! | `fault_rules` | faults by rules for packets |
//! | `lifecycle` | resets, lost VMMs and unmapped memory during transfers |
//! | `stream_faults` | faults by rules in iWARP connections |

pub(crate) mod containment;
pub(crate) mod fault_kinds;
pub(crate) mod fault_rules;
pub(crate) mod lifecycle;
pub(crate) mod stream_faults;

//! Queue pairs and their states, the queues that they use, and what a guest is told about them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `warnings` | warnings about a guest's queues |
//! | `states` | MODIFY_QP and QUERY_QP of single attributes |
//! | `transitions` | MODIFY_QP compared with the table of the specification |
//! | `srq` | shared receive queues |
//! | `xrc` | XRC |
//! | `completions` | the credits of completion queues, and RESIZE_CQ |
//! | `holding` | CQs that hold entries back while they are full |
//! | `events` | arming, event queues, interrupts |
//! | `indices` | invalid ring indices, and programs that never poll their queues |
//! | `counters` | the events that move each counter |
//! | `mistakes` | wrong attributes, with each path of messages |
//! | `entries` | random bytes as work queue entries |
//! | `hostile` | random commands, work requests and doorbells |

pub(crate) mod completions;
pub(crate) mod counters;
pub(crate) mod entries;
pub(crate) mod events;
pub(crate) mod holding;
pub(crate) mod hostile;
pub(crate) mod indices;
pub(crate) mod mistakes;
pub(crate) mod srq;
pub(crate) mod states;
pub(crate) mod transitions;
pub(crate) mod warnings;
pub(crate) mod xrc;

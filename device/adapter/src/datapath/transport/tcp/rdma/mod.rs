//! Messages of a QP in a TCP connection (iWARP). The state of the connection and of its stream of
//! messages is in [`crate::objects::qp::tcp::rdma`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `memory` | the memory of the QP's guest, for the stream |
//! | `turn` | the part of the connection in a turn: segments, completions |
//! | `ending` | the end of a connection |
//! | `stopped` | a connection whose send queue has stopped |
//! | `pair` | the decision whether messages are copied, between two QPs of this daemon |
//! | `take` | taking work requests off the send queue |

mod ending;
mod memory;
mod pair;
mod stopped;
mod take;
mod turn;

pub(super) use memory::Reach;
pub(crate) use pair::{carries, is_dormant, probe, terminate};
pub(crate) use turn::run;

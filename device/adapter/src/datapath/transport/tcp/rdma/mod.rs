//! Messages of a QP in a TCP connection (iWARP). The state of the stream of messages is in
//! [`crate::objects::qp::tcp::rdma`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `memory` | the memory of the QP's guest, for the stream |
//! | `turn` | a turn: bytes of messages, completions |
//! | `ending` | the end of a stream |
//! | `pair` | the decision whether messages are copied, between two QPs of this daemon |
//! | `take` | taking work requests off the send queue |

mod ending;
mod memory;
mod pair;
mod take;
mod turn;

pub(super) use memory::Reach;
pub(crate) use pair::{carries, is_dormant, probe, terminate};

//! Messages of a QP in a TCP connection (iWARP). The state of the connection and of its stream of
//! messages is in [`crate::objects::qp::streaming`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `memory` | the memory of the QP's guest, for the stream |
//! | `arrivals` | delivery of a frame to a QP |
//! | `joiner` | the frames of the segments of a turn |
//! | `turn` | a turn of a QP: segments, completions |
//! | `ending` | the end of a connection |
//! | `pair` | messages between two QPs of this daemon, which are copied |
//! | `take` | taking work requests off the send queue |

mod arrivals;
mod ending;
mod joiner;
mod memory;
mod pair;
mod take;
mod turn;

pub(crate) use arrivals::arrive;
pub(crate) use pair::{carries, probe, rests, terminate};
pub(crate) use turn::{LOOK_NS, PATIENCE_NS, run};

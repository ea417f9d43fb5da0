//! Messages of a QP that travel in a TCP connection (iWARP): the connection and the stream of
//! messages in it ([`crate::objects::qp::streaming`]) at work.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `memory` | the memory of the QP's guest, as the stream reaches it |
//! | `arrivals` | a frame on its way to a QP |
//! | `turn` | a turn of a QP: segments, completions |
//! | `ending` | the end of a connection |
//! | `pair` | messages between two QPs of this daemon, which are copied |
//! | `take` | work requests, taken off the send queue |

mod arrivals;
mod ending;
mod memory;
mod pair;
mod take;
mod turn;

pub(crate) use arrivals::arrive;
pub(crate) use pair::{carries, probe, rests, terminate};
pub(crate) use turn::{LOOK_NS, PATIENCE_NS, run};

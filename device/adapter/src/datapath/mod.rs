//! The data path: the turn of a QP.
//!
//! | module | contents |
//! | --- | --- |
//! | [`turn`] | the context of a turn: the guest's memory, the time, counters |
//! | [`space`], `outbox` | the buffers of a turn |
//! | [`wqe_fetch`] | copying work requests out of a ring |
//! | [`send_queue`] | the state of a send queue, its next entry, its flush |
//! | `constants` | limits of a turn, and times, which several transports have |
//! | `complete` | the end of work requests: completions, and the state of a QP that fails |
//! | [`gate`] | the rules for packets between adapters and their network |
//! | `injected`, `disorder` | faults by rules; the order of bytes that one of them changes |
//! | [`requester`], [`responder`] | the two halves of a QP |
//! | [`inbound`], [`refusal`], [`peer_context`] | a message as a responder receives it; the reasons for a refusal; the responder's QP |
//! | [`sgl`], `runs` | scatter/gather lists, and copies between two of them; addresses that are looked up once |
//! | `local_wr` | work requests that send no message: for keys, and for address ranges |
//! | [`transport`] | the paths between QPs: the local copy, datagrams, packets, TCP connections, known peers |
//! | `xrc` | the differences of XRC targets |

mod complete;
pub(crate) mod constants;
pub(crate) mod disorder;
pub mod gate;
pub mod inbound;
pub(crate) mod injected;
pub(crate) mod local_wr;
mod outbox;
pub mod peer_context;
pub mod refusal;
pub mod requester;
pub mod responder;
pub(crate) mod runs;
pub mod send_queue;
pub mod sgl;
pub mod space;
pub mod transport;
pub mod turn;
pub mod wqe_fetch;
pub(crate) mod xrc;

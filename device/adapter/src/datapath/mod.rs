//! The datapath of one QP's turn.
//!
//! | module | contents |
//! | --- | --- |
//! | [`turn`] | what a turn holds: the guest's memory, the time, counters |
//! | [`wqe_fetch`] | copying work requests out of a ring |
//! | [`send_queue`] | whether a QP may send, its next entry, the flush of its sends |
//! | [`requester`], [`responder`] | the two halves of a QP at work |
//! | [`inbound`], [`refusal`], [`there`] | a message as it comes to a responder; why it is refused; the responder's QP |
//! | [`sgl`] | scatter/gather lists, and copies between two of them |
//! | `memory_wr` | work requests about keys |
//! | [`transport`] | ways from one QP to another: the local copy, datagrams, the known peers |
//! | `xrc` | what is different for XRC targets |

pub mod inbound;
pub(crate) mod memory_wr;
pub mod refusal;
pub mod requester;
pub mod responder;
pub mod send_queue;
pub mod sgl;
pub mod there;
pub mod transport;
pub mod turn;
pub mod wqe_fetch;
pub(crate) mod xrc;

//! The datapath of one QP's turn.
//!
//! | module | contents |
//! | --- | --- |
//! | [`turn`] | what a turn holds: the guest's memory, the time, counters |
//! | [`wqe_fetch`], [`wqe`] | copying work requests out of a ring; parsing and checking them |
//! | [`send_queue`] | whether a QP may send, its next entry, the flush of its sends |
//! | [`requester`], [`responder`] | the two halves of a QP at work |
//! | [`inbound`], [`refusal`], [`there`] | a message as it comes to a responder; why it is refused; the responder's QP |
//! | [`sgl`] | scatter/gather lists, and copies between two of them |
//! | `memory_wr`, [`command_tag`] | work requests about keys; the keys that messages carry |
//! | `xrc` | what is different for XRC targets |

pub mod command_tag;
pub mod inbound;
pub(crate) mod memory_wr;
pub mod refusal;
pub mod requester;
pub mod responder;
pub mod send_queue;
pub mod sgl;
pub mod there;
pub mod turn;
pub mod wqe;
pub mod wqe_fetch;
pub(crate) mod xrc;

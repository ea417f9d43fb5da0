//! The datapath of one QP's turn.
//!
//! | module | contents |
//! | --- | --- |
//! | [`turn`] | what a turn holds: the guest's memory, the time, counters |
//! | [`wqe_fetch`], [`wqe`] | copying work requests out of a ring; parsing and checking them |
//! | [`requester`], [`responder`] | the two halves of a QP at work |
//! | [`sgl`] | scatter/gather lists, and copies between two of them |
//! | `memory_wr`, [`command_tag`] | work requests about keys; the keys that messages carry |
//! | `xrc` | what is different for XRC targets |

pub mod command_tag;
pub(crate) mod memory_wr;
pub mod requester;
pub mod responder;
pub mod sgl;
pub mod turn;
pub mod wqe;
pub mod wqe_fetch;
pub(crate) mod xrc;

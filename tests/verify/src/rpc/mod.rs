//! The protocol between the suite and its agents: one JSON request, one JSON answer, over a stream
//! socket.
//!
//! | module | what |
//! | --- | --- |
//! | [`calls`] | what can be asked, and the type of each answer |
//! | [`frame`] | messages on a stream |
//! | [`client`] | the suite's handle of an agent |

pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod frame;

//! Captures of packets: blocks of pcapng files, and frames of messages that were exchanged without
//! a wire.
//!
//! Two functions of one daemon exchange messages by memcpy. [`synthesis`] makes the packets that
//! the same messages would be on a wire, with right CRCs, so that a capture shows all traffic. The
//! crate has no files, no clock and no threads. The blocks are few and have fixed layouts, so they
//! are written here; the stable version of the crate `pcap-file` allocates for each of them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`block`] | blocks of a pcapng file |
//! | [`synthesis`] | frames of messages that were exchanged without a wire |
#![forbid(unsafe_code)]

pub mod block;
pub mod synthesis;

pub use block::{Captured, Interface};
pub use synthesis::{Conversation, Direction, Message, Parties};

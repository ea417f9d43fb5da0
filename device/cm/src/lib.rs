//! The communication manager of InfiniBand and RoCE without input and output (InfiniBand
//! Architecture Specification, volume 1, chapter 12): it makes, keeps and ends the connections of
//! an adapter's queue pairs by messages between queue pairs 1.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mad`] | the header that messages share |
//! | [`messages`] | the formats of messages (12.6 to 12.11) |
//! | [`address`] | the header with IP addresses in private data (the annex on service IDs for IP) |
//! | [`parameters`] | what the two sides agree on |
//! | [`state`] | states, events and reasons (12.9) |
//! | [`connection`] | a connection |
//! | [`manager`] | all connections of an adapter |
//!
//! Time is a parameter. What a peer sends is hostile: each message gets an answer, is an event, or
//! is dropped and counted; memory is limited; and no number of a peer is a time to wait beyond a
//! limit.
#![forbid(unsafe_code)]

pub mod address;
pub mod connection;
pub mod mad;
pub mod manager;
pub mod messages;
pub mod parameters;
pub mod state;

//! Ways from one QP to another.
//!
//! | module | contents |
//! | --- | --- |
//! | [`peers`] | the adapters of this daemon, by MAC |
//! | `local` | a connected QP's message to a peer of this daemon, by one copy |
//! | `datagram` | datagrams |
//! | `fanout` | a datagram's way to the members of a group |
//! | `packet_counters` | the packets that a message would have been |

pub(crate) mod datagram;
pub(crate) mod fanout;
pub(crate) mod local;
pub(crate) mod packet_counters;
pub mod peers;

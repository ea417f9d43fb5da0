//! The paths between QPs.
//!
//! | module | contents |
//! | --- | --- |
//! | [`peers`] | the adapters of this daemon, by MAC |
//! | `arrival` | how a frame comes to an adapter |
//! | [`ingress`] | frames from the Ethernet, and their workers |
//! | `flow` | the addresses of a frame that carries TCP |
//! | `local` | a connected QP's message to a peer of this daemon, by one copy |
//! | `local_watch` | reports of such messages to the daemon's watcher |
//! | `datagram` | datagrams |
//! | `datagram_receive` | receives of datagrams |
//! | `fanout` | the delivery of a datagram to the members of a group |
//! | `taking` | taking work requests off a send queue, for packets and TCP connections |
//! | `executing` | turns of work requests that are complete when they have been sent |
//! | `ended` | completions of work requests, for packets and TCP connections |
//! | `packet_counters` | counts of the packets that copied messages would have been |
//! | `wire` | the transports between daemons, and the choice between them |
//! | `raw` | raw packets: frames that programs compose |
//! | `rules` | flow rules: which QPs of raw packets get a frame |
//! | [`packets`] | RoCE v2: messages as packets, to and from peers of other daemons |
//! | [`tcp`] | TCP connections, with messages, bytes or iSCSI PDUs |

mod arrival;
pub(crate) mod datagram;
pub(crate) mod datagram_receive;
mod ended;
mod executing;
pub(crate) mod fanout;
mod flow;
pub mod ingress;
pub(crate) mod local;
pub(crate) mod local_watch;
pub(crate) mod packet_counters;
pub mod packets;
pub mod peers;
pub(crate) mod raw;
pub(crate) mod rules;
mod taking;
pub(crate) mod tcp;
pub(crate) mod wire;

//! Formats on the wire: checked views of received frames, and builders of frames to send.
//!
//! | module | contents |
//! | --- | --- |
//! | [`numbers`] | QP numbers, keys, path MTUs |
//! | [`opcode`] | the table of opcodes |
//! | [`headers`] | extension headers |
//! | [`syndrome`] | acknowledgements: positive, "not ready", negative |
//! | [`body`] | the opcode of a packet, with its extension headers |
//! | [`packet`] | from the base transport header to the padding |
//! | [`frame`] | Ethernet, VLAN, IP and UDP around a packet |
//! | [`build`] | frames to send |

pub mod body;
pub mod build;
pub mod frame;
pub mod headers;
pub mod numbers;
pub mod opcode;
pub mod packet;
pub mod syndrome;

pub use body::{Body, Datagram, Part, ReadPart, Request, Response, SendEnd};
pub use build::{Layout, Path};
pub use frame::Frame;
pub use headers::{AtomicEth, Imm, Reth};
pub use numbers::{Qpn, Rkey};
pub use packet::{Head, Packet};
pub use syndrome::{Aeth, Nak, Syndrome};
pub use vrnic_packet::Mtu;

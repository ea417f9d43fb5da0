//! Ethernet between the guests' ordinary NICs: QEMU's `-netdev stream` sockets and a learning
//! switch.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`mac`] | MAC addresses |
//! | [`framing`] | QEMU's stream format: a length, then a frame |
//! | [`table`] | which address is behind which port |
//! | [`port`] | a port: its socket, its peer, what waits to be sent |
//! | [`switch`] | the thread that forwards |

pub mod framing;
pub mod mac;
pub mod port;
pub mod switch;
pub mod table;

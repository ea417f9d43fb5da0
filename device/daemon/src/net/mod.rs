//! Ethernet: a learning switch between the guests' ordinary NICs, the adapters, and the network
//! outside of the daemon.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`frame`] | a frame |
//! | [`framing`] | QEMU's stream format: a length, then a frame |
//! | [`table`] | the addresses behind each port |
//! | [`status`] | state and counters of a port |
//! | [`account`] | the bytes of an adapter that wait at uplinks |
//! | [`storm`] | the limit of frames to all ports |
//! | [`queue`] | frames that wait to leave by a port |
//! | [`turn`] | the bound of what the switch does at once |
//! | [`lanes`] | frames that wait by class, if an operator has set classes or a rate |
//! | [`line`](mod@line) | the outer end of a port |
//! | [`netdev`] | the line to a network card in QEMU |
//! | [`vlan`] | VLAN tags of frames at a port |
//! | [`uplinks`] | lines to other daemons and to networks of the host |
//! | [`hold`] | the pauses of uplinks for slow adapters |
//! | [`port`] | a port: its line, its adapter, what waits to be sent |
//! | [`outbox`] | the way of frames from adapters into the switch |
//! | [`handle`] | how other threads reach the switch |
//! | [`switch`] | the switch itself |
//! | [`thread`] | the switch's thread |
//! | `attendant` | the engine by which workers run the switch |

pub mod account;
mod attendant;
pub mod frame;
pub mod framing;
pub mod handle;
pub mod hold;
pub mod lanes;
pub mod line;
pub mod netdev;
pub mod outbox;
pub mod port;
pub mod queue;
pub mod status;
pub mod storm;
pub mod switch;
pub mod table;
pub mod thread;
pub mod turn;
pub mod uplinks;
pub mod vlan;

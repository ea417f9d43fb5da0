//! Formats on the wire.
//!
//! | module | contents |
//! | --- | --- |
//! | [`frame`] | Ethernet, VLAN and IP around a segment |
//! | [`icmp`] | notices that a segment was too long |
//! | `options` | options of segments |
//! | [`segment`] | the header of a segment with its options |

pub mod frame;
pub mod icmp;
mod options;
pub mod segment;

pub use frame::{Frame, HEADROOM, Path};
pub use icmp::TooLong;
pub use segment::{Flags, Header, Options, SackBlock, Segment, Timestamps};

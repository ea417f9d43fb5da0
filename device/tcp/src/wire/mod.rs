//! Formats on the wire.
//!
//! | module | contents |
//! | --- | --- |
//! | [`segment`] | the header of a segment with its options |

pub mod segment;

pub use segment::{Flags, Header, Options, SackBlock, Segment, Timestamps};

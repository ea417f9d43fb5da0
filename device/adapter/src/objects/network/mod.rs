//! Addresses, connections and frames, and the objects that they belong to.
//!
//! | module | contents |
//! | --- | --- |
//! | `addresses`, [`gids`] | the MACs of all adapters; the GID table |
//! | [`claims`] | TCP connections whose frames are for QPs |
//! | [`flows`], [`frame_key`] | rules for the frames that QPs of raw packets receive; what they compare |
//! | [`spread`] | how a QP of raw packets spreads frames over others |

pub(crate) mod addresses;
pub mod claims;
pub mod flows;
pub mod frame_key;
pub mod gids;
pub mod spread;

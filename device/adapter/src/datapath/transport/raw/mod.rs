//! QPs of raw packets: a program composes whole Ethernet frames, and flow rules select the frames
//! that it receives ([`super::rules`]).
//!
//! | module | contents |
//! | --- | --- |
//! | `turn` | the send queue: a turn |
//! | `compose` | the frame, or the frames, of a work request |
//! | `arrivals` | the receive of a frame |

mod arrivals;
mod compose;
mod turn;

pub(crate) use self::arrivals::arrive;
pub(crate) use self::turn::run;

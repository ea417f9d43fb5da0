//! QPs of raw packets: a program composes whole Ethernet frames, and flow rules select the frames
//! that it receives.
//!
//! | module | contents |
//! | --- | --- |
//! | `turn` | the send queue: a turn |
//! | `compose` | the frame, or the frames, of a work request |
//! | `offer` | which QPs get a frame, when it arrives and when it leaves |
//! | `key` | the fields of a frame that flow rules compare |
//! | `arrivals` | the receive of a frame |

mod arrivals;
mod compose;
mod key;
mod offer;
mod turn;

pub(crate) use self::arrivals::arrive;
pub(crate) use self::offer::{Pass, sniff, take};
pub(crate) use self::turn::run;

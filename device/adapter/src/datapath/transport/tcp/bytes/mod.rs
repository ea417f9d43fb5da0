//! TCP connections whose bytes go from sends to receives, without messages (TOE). The state of the
//! connection is in [`crate::objects::qp::tcp::bytes`].
//!
//! | module | contents |
//! | --- | --- |
//! | `plain` | bytes without a structure |
//! | `source` | the bytes that leave |
//! | `inbox` | the bytes that arrive, and the receives |
//! | `turn` | a turn: segments, completions |
//! | `ending` | the end of a connection |
//! | `switch` | the transition to RDMA messages of another QP |
//! | `hand_over` | the end of a transition |

mod ending;
mod hand_over;
mod inbox;
mod plain;
mod source;
mod switch;
mod turn;

pub(super) use self::hand_over::hand_over;
pub(super) use self::inbox::Inbox;
pub(crate) use self::inbox::WINDOW;
pub(super) use self::plain::note_push;
pub(super) use self::turn::{Mode, ToeTurn};

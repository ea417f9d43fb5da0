//! TCP connections whose bytes go from sends to receives, without messages (TOE). The state of the
//! connection is in [`crate::objects::qp::tcp::bytes`].
//!
//! | module | contents |
//! | --- | --- |
//! | `source` | the bytes of the sends |
//! | `inbox` | the bytes that arrive, and the receives |
//! | `arrivals` | delivery of a segment |
//! | `turn` | a turn: segments, completions |
//! | `ending` | the end of a connection |
//! | `switch` | the transition to RDMA messages of another QP |
//! | `hand_over` | the end of a transition |
//! | `take` | taking work requests off the send queue |

mod arrivals;
mod ending;
mod hand_over;
mod inbox;
mod source;
mod switch;
mod take;
mod turn;

pub(super) use self::arrivals::deliver;
pub(super) use self::hand_over::hand_over;
pub(crate) use self::inbox::WINDOW;

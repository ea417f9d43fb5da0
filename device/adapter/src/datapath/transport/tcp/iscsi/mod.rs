//! TCP connections that carry iSCSI PDUs: the iSCSI mode of a TOE QP. The turn, the end and the
//! frames of the connection are those of [`super::bytes`]. The state is in
//! [`crate::objects::qp::tcp::iscsi`].
//!
//! | module | contents |
//! | --- | --- |
//! | `post` | checks of work requests, and their PDUs |
//! | `source` | the bytes of the PDUs that leave |
//! | `inbox` | the PDUs that arrive, and the receives |
//! | `verdict` | what happens to a PDU that arrives |
//! | `answer` | Data-Out PDUs for R2Ts |

mod answer;
mod inbox;
mod post;
mod source;
mod verdict;

pub(crate) use self::answer::{Unreadable, answer};
pub(crate) use self::inbox::Inbox;
pub(crate) use self::post::post;
pub(crate) use self::source::Outbound;

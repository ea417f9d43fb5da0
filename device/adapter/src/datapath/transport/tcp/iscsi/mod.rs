//! TCP connections that carry iSCSI PDUs: a mode of [`super::bytes`]. The state is in
//! [`crate::objects::qp::tcp::iscsi`].
//!
//! | module | contents |
//! | --- | --- |
//! | `mode` | the mode |
//! | `post` | checks of work requests, and their PDUs |
//! | `source` | the bytes of the PDUs that leave |
//! | `inbox` | the PDUs that arrive, and the receives |
//! | `verdict` | what happens to a PDU that arrives |
//! | `answer` | Data-Out PDUs for R2Ts |

mod answer;
mod inbox;
mod mode;
mod post;
mod source;
mod verdict;

pub(super) use self::inbox::Inbox;

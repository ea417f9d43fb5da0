//! TCP connections of QPs. Their state is in [`crate::objects::qp::tcp`].
//!
//! | module | contents |
//! | --- | --- |
//! | `arrivals` | delivery of a frame to a QP |
//! | [`rdma`] | iWARP: messages in TCP connections |
//! | [`bytes`] | TOE: bytes in TCP connections, without messages |
//! | `iscsi` | iSCSI PDUs in TCP connections |
//! | `segments`, `joiner` | TCP segments that arrive and that are sent; the frames of the latter |

mod arrivals;
pub(crate) mod bytes;
pub(crate) mod iscsi;
mod joiner;
pub(crate) mod rdma;
mod segments;

pub(crate) use self::arrivals::{arrive, too_long};

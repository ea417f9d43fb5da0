//! TCP connections of QPs. Their state is in [`crate::objects::qp::tcp`].
//!
//! | module | contents |
//! | --- | --- |
//! | `dispatch` | the start of a turn, by what the connection carries |
//! | `turn` | a turn of a QP, whatever its connection carries: work requests, segments |
//! | `end` | the end of a connection |
//! | `arrivals` | delivery of a frame to a QP |
//! | [`rdma`] | iWARP: messages in TCP connections |
//! | [`bytes`] | TOE: bytes in TCP connections, without messages |
//! | `iscsi` | iSCSI PDUs in TCP connections |
//! | `segments`, `joiner` | TCP segments that arrive and that are sent; the frames of the latter |

mod arrivals;
pub(crate) mod bytes;
mod dispatch;
mod end;
pub(crate) mod iscsi;
mod joiner;
pub(crate) mod rdma;
mod segments;
mod turn;

pub(crate) use self::arrivals::{arrive, too_long};
pub(crate) use self::dispatch::run;

//! The TCP connections of QPs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`link`] | a connection, whatever it carries |
//! | [`ends`] | its ends below TCP |
//! | [`lifecycle`] | its stages, as its driver sees them |
//! | [`rdma`] | the state of a connection that carries RDMA messages |
//! | `waits` | the waits of such a connection for its guest |
//! | [`switched`] | what such a connection has carried before its messages |
//! | [`bytes`] | the state of a connection that carries bytes instead of messages |
//! | [`iscsi`] | the iSCSI mode: PDUs instead of bytes |
//! | [`promise`] | the state of a QP that gets the connection of a TOE QP |

pub mod bytes;
pub mod ends;
pub mod iscsi;
pub mod lifecycle;
pub mod link;
pub mod promise;
pub mod rdma;
pub mod switched;
pub(crate) mod waits;

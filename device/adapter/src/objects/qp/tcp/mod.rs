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

use vrnic_abi::admin::QpFlags;
use vrnic_abi::connection::ConnectionStatus;
use vrnic_iwarp::rdmap::completion::Rule;

use self::bytes::{Plain, Toe};
use self::iscsi::{Session, Terms};
use self::link::Link;
use self::promise::Promise;
use self::rdma::Rdma;
use crate::host::Host;

/// Returns the rule by which the sends of a QP with a TCP connection complete.
#[must_use]
pub fn rule_of(flags: QpFlags) -> Rule {
    if flags.contains(QpFlags::QUEUE_LENGTH) { Rule::QueueLength } else { Rule::Sequence }
}

/// The TCP connection of a QP.
#[derive(Debug)]
pub struct Tcp<H: Host> {
    /// The connection, whatever it carries.
    pub link: Link<H>,
    /// What the connection carries.
    pub content: Content<H>,
}

/// What a TCP connection carries. The contents differ in size, so each has its own memory.
#[derive(Debug)]
pub enum Content<H: Host> {
    /// Messages (iWARP).
    Rdma(Box<Rdma<H>>),
    /// Bytes without messages (TOE).
    Bytes(Box<Toe<Plain<H>>>),
    /// iSCSI PDUs.
    Iscsi(Box<Toe<Session>>),
}

/// A TCP connection that a QP does not have yet.
#[derive(Debug)]
pub enum Promised<H: Host> {
    /// The connection will carry messages. A TOE QP has it now.
    Rdma(Promise<H>),
    /// The connection will carry iSCSI PDUs.
    Iscsi(Terms),
}

impl<H: Host> Tcp<H> {
    /// Returns whether the program has begun a transition to RDMA.
    #[must_use]
    pub fn switches(&self) -> bool {
        matches!(&self.content, Content::Bytes(bytes) if bytes.mode.switch.is_some())
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn status(&self) -> ConnectionStatus {
        match &self.content {
            Content::Rdma(rdma) => self.link.life().status(&rdma.stream),
            Content::Bytes(_) => bytes::status(&self.link),
            Content::Iscsi(iscsi) => iscsi.mode.describe(bytes::status(&self.link)),
        }
    }

    /// Returns the number of bytes of memory that the connection keeps while it has no work, apart
    /// from its own fixed size. They are counted in the memory for connections.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.link.tcp().kept()
            + match &self.content {
                Content::Rdma(rdma) => rdma.kept(),
                Content::Bytes(bytes) => bytes.receives.kept() + bytes.mode.kept(),
                Content::Iscsi(iscsi) => iscsi.receives.kept() + Session::MAX_BYTES,
            }
    }

    /// Returns the number of bytes of the connection that are counted in the memory for
    /// connections. While there is work, these are more than it keeps without.
    #[must_use]
    pub fn charged(&self) -> usize {
        self.link.charged()
            + match &self.content {
                Content::Rdma(rdma) => rdma.charged(),
                Content::Bytes(bytes) => bytes.receives.charged() + bytes.mode.charged(),
                Content::Iscsi(iscsi) => iscsi.receives.charged() + iscsi.mode.charged(),
            }
    }
}

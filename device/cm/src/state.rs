//! States, events and reasons, with the names of the standard (12.9).

use super::parameters::{Path, Qp, Transport};

/// The state of a connection (12.9.7), or of a resolution of a service ID (12.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no connection, or no longer.
    Idle,
    /// A request was sent.
    ReqSent,
    /// A request was received.
    ReqRcvd,
    /// The receipt of a request was acknowledged.
    MraReqSent,
    /// The peer has acknowledged the receipt of the request.
    MraReqRcvd,
    /// A reply was sent.
    RepSent,
    /// A reply was received.
    RepRcvd,
    /// The receipt of a reply was acknowledged.
    MraRepSent,
    /// The peer has acknowledged the receipt of the reply.
    MraRepRcvd,
    /// There is a connection.
    Established,
    /// A request to end the connection was sent.
    DreqSent,
    /// A request to end the connection was received.
    DreqRcvd,
    /// The connection has ended, and packets of it may still arrive.
    TimeWait,
    /// A request for a service was sent.
    SidrReqSent,
    /// A request for a service was received.
    SidrReqRcvd,
}

/// What has happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer requests the connection, which is new.
    ReqReceived(Box<Requested>),
    /// The peer accepts the connection.
    RepReceived {
        /// The peer's queue pair.
        qp: Qp,
        /// What the peer's user says.
        private: [u8; 196],
    },
    /// The peer is ready, or has sent data already.
    RtuReceived,
    /// The peer rejects the connection.
    RejReceived {
        /// Why: a number of [`reason`].
        reason: u16,
        /// What the peer's user says.
        private: [u8; 148],
    },
    /// The peer ends the connection.
    DreqReceived,
    /// The peer has ended the connection as requested.
    DrepReceived,
    /// There was no answer to the request for the connection.
    ReqError,
    /// There was no answer to the reply.
    RepError,
    /// There was no answer to the request to end the connection.
    DreqError,
    /// No packets of the connection can arrive any more.
    TimeWaitExit,
    /// A peer requests the queue pair of a service.
    SidrReqReceived {
        /// The service ID.
        service: u64,
        /// The way back to the peer.
        path: Path,
        /// What the peer's user says.
        private: [u8; 216],
    },
    /// The peer has named the queue pair of a service, or refuses to.
    SidrRepReceived {
        /// Zero, or why there is none: [`sidr`].
        status: u8,
        /// The number of the queue pair.
        qpn: u32,
        /// The key of the queue pair.
        qkey: u32,
        /// What the peer's user says.
        private: [u8; 136],
    },
    /// There was no answer to the request for a service.
    SidrReqError,
}

/// What a request for a connection says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The service ID.
    pub service: u64,
    /// The type of the queue pairs.
    pub transport: Transport,
    /// The peer's queue pair.
    pub qp: Qp,
    /// The way back to the peer.
    pub path: Path,
    /// What the peer's user says.
    pub private: [u8; 92],
}

/// Why a message is rejected (table 109).
pub mod reason {
    /// There is no room for more connections.
    pub const NO_RESOURCES: u16 = 3;
    /// The sender does not wait any more.
    pub const TIMEOUT: u16 = 4;
    /// Nobody listens.
    pub const INVALID_SERVICE_ID: u16 = 8;
    /// The type of the queue pairs is unknown.
    pub const INVALID_TRANSPORT_TYPE: u16 = 9;
    /// The queue pair is in another connection.
    pub const STALE_CONNECTION: u16 = 10;
    /// The addresses are not those of the message.
    pub const INVALID_GID: u16 = 12;
    /// There is no such MTU.
    pub const INVALID_MTU: u16 = 26;
    /// The user does not want the connection.
    pub const CONSUMER: u16 = 28;
    /// The user does not support an option.
    pub const VENDOR_OPTION: u16 = 35;
}

/// The status of an answer to a request for a service (table 121).
pub mod sidr {
    /// There is a queue pair.
    pub const SUCCESS: u8 = 0;
    /// Nobody listens.
    pub const UNSUPPORTED: u8 = 1;
    /// The user refuses.
    pub const REJECT: u8 = 2;
}

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such connection.
    #[error("there is no such connection")]
    Unknown,
    /// The state of the connection does not permit the call.
    #[error("the state of the connection does not permit this")]
    WrongState,
    /// The private data is longer than the message permits.
    #[error("the private data is too long for the message")]
    PrivateData,
    /// There are too many connections.
    #[error("there are too many connections: end one first")]
    NoRoom,
}

//! The bytes in the TCP connection of a QP that carries no messages (TOE).
//!
//! | module | contents |
//! | --- | --- |
//! | [`sends`] | the places of the outstanding sends in the stream |
//! | [`receives`] | the progress of the receives in the stream |
//! | [`switch`] | the transition to RDMA |

pub mod receives;
pub mod sends;
pub mod switch;

use vrnic_abi::connection::{ConnectionStatus, Ending, RdmaState};
use vrnic_iwarp::rdmap::completion::Rule;
use vrnic_tcp::connection::State as TcpState;

use self::receives::Receives;
use self::sends::Sends;
use self::switch::{Progress, Switch};
use super::link::Link;
use crate::host::Host;

/// What the connection of a TOE QP carries: bytes, which go to receives.
#[derive(Debug)]
pub struct Toe<M> {
    /// The progress of the receives.
    pub receives: Receives,
    /// True if both directions are closed.
    pub closed: bool,
    /// What the bytes are.
    pub mode: M,
}

/// Bytes without a structure.
#[derive(Debug)]
pub struct Plain<H: Host> {
    /// The places of the outstanding work requests in the stream.
    pub sends: Sends,
    /// The transition to RDMA, if the program has begun one.
    pub switch: Option<Box<Switch<H>>>,
}

impl<M> Toe<M> {
    /// Creates the bytes of a connection.
    #[must_use]
    pub const fn new(receives: Receives, mode: M) -> Self {
        Self { receives, closed: false, mode }
    }
}

impl<H: Host> Plain<H> {
    /// Creates the mode of a connection. Sends are complete by this rule.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { sends: Sends::new(rule), switch: None }
    }

    /// Returns the number of bytes of memory that a transition keeps.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.switch.as_ref().map_or(0, |switch| switch.received.len())
    }

    /// Returns the number of bytes of a transition that are counted in the memory for connections.
    #[must_use]
    pub fn charged(&self) -> usize {
        self.switch.as_ref().map_or(0, |switch| switch.share.used())
    }

    /// Takes the transition to RDMA out, if another QP gets the connection at the end of this turn.
    pub fn take_ready(&mut self) -> Option<Box<Switch<H>>> {
        self.switch.take_if(|switch| switch.progress == Progress::Ready)
    }
}

/// Returns the state of a connection that carries bytes, as the driver sees it. One direction may
/// be closed for any time.
#[must_use]
pub fn status<H: Host>(link: &Link<H>) -> ConnectionStatus {
    let state = match (link.life().ending(), link.tcp().state()) {
        (Ending::Graceful, _) => RdmaState::Idle,
        (Ending::None, TcpState::Established | TcpState::CloseWait) => RdmaState::Rts,
        (Ending::None, TcpState::Closed) => RdmaState::Error,
        (Ending::None, _) => RdmaState::Closing,
        _ => RdmaState::Error,
    };
    ConnectionStatus { state: state as u8, ..link.life().bare_status() }
}

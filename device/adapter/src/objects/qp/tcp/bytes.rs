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
use vrnic_tcp::connection::State as TcpState;

use self::receives::Receives;
use self::sends::Sends;
use self::switch::{Progress, Switch};
use super::iscsi::Session;
use super::link::Link;
use crate::host::Host;

/// The bytes in the connection of a QP.
#[derive(Debug)]
pub struct Bytes<H: Host> {
    /// The places of the outstanding work requests in the stream.
    pub sends: Sends,
    /// The progress of the receives.
    pub receives: Receives,
    /// True if both directions are closed.
    pub closed: bool,
    /// The transition to RDMA, if the program has begun one.
    pub switch: Option<Box<Switch<H>>>,
    /// The iSCSI mode, if the consumer has set it.
    pub session: Option<Box<Session>>,
}

impl<H: Host> Bytes<H> {
    /// Creates the bytes of a connection.
    #[must_use]
    pub const fn new(receives: Receives, sends: Sends) -> Self {
        Self { sends, receives, closed: false, switch: None, session: None }
    }

    /// Returns the number of bytes of memory that they keep while there is no work.
    #[must_use]
    pub fn kept(&self) -> usize {
        let received = self.switch.as_ref().map_or(0, |switch| switch.received.len());
        let session = self.session.as_ref().map_or(0, |_| Session::MAX_BYTES);
        self.receives.kept() + received + session
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn status(&self, link: &Link<H>) -> ConnectionStatus {
        let (state, bare) = (state(link), link.life().bare_status());
        let mut status = ConnectionStatus { state: state as u8, ..bare };
        if let Some(session) = &self.session {
            session.describe(&mut status);
        }
        status
    }

    /// Takes the transition to RDMA out, if another QP gets the connection at the end of this turn.
    pub fn take_ready(&mut self) -> Option<Box<Switch<H>>> {
        self.switch.take_if(|switch| switch.progress == Progress::Ready)
    }
}

/// Returns the state as the driver sees it. One direction may be closed for any time.
fn state<H: Host>(link: &Link<H>) -> RdmaState {
    match (link.life().ending(), link.tcp().state()) {
        (Ending::Graceful, _) => RdmaState::Idle,
        (Ending::None, TcpState::Established | TcpState::CloseWait) => RdmaState::Rts,
        (Ending::None, TcpState::Closed) => RdmaState::Error,
        (Ending::None, _) => RdmaState::Closing,
        _ => RdmaState::Error,
    }
}

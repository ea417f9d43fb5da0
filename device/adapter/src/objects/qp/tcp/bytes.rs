//! The state of a QP whose TCP connection carries bytes instead of messages (TOE).
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
use vrnic_packet::Nanos;
use vrnic_tcp::connection::State as TcpState;

use self::receives::Receives;
use self::sends::Sends;
use self::switch::{Progress, Switch};
use super::iscsi::Session;
use super::link::Link;
use crate::host::Host;

/// The connection of a QP.
#[derive(Debug)]
pub struct Toe<H: Host> {
    /// The connection below the bytes.
    pub link: Link<H>,
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

impl<H: Host> Toe<H> {
    /// Creates the connection of a QP.
    #[must_use]
    pub fn new(mut link: Link<H>, receives: Receives, sends: Sends) -> Self {
        link.life_mut().open();
        Self { link, sends, receives, closed: false, switch: None, session: None }
    }

    /// Returns whether another work request may be taken.
    pub fn has_room(&mut self) -> bool {
        self.link.has_room(Sends::MAX_BYTES)
    }

    /// Gives the memory of buffers back if the connection has had no work for some time. Returns
    /// the time at which that time is over.
    pub fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos> {
        self.link.idle(now, |outstanding| {
            if outstanding.is_empty() {
                self.sends.shrink();
            }
        })
    }

    /// Returns the number of bytes of memory that it keeps while it has no work, apart from its own
    /// fixed size. They are counted in the memory for connections.
    #[must_use]
    pub fn kept(&self) -> usize {
        let received = self.switch.as_ref().map_or(0, |switch| switch.received.len());
        let session = self.session.as_ref().map_or(0, |_| Session::MAX_BYTES);
        self.link.tcp().kept() + self.receives.kept() + received + session
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn status(&self) -> ConnectionStatus {
        let bare = self.link.life().bare_status();
        let mut status = ConnectionStatus { state: self.state() as u8, ..bare };
        if let Some(session) = &self.session {
            session.describe(&mut status);
        }
        status
    }

    /// Returns the state as the driver sees it. One direction may be closed for any time.
    fn state(&self) -> RdmaState {
        match (self.link.life().ending(), self.link.tcp().state()) {
            (Ending::Graceful, _) => RdmaState::Idle,
            (Ending::None, TcpState::Established | TcpState::CloseWait) => RdmaState::Rts,
            (Ending::None, TcpState::Closed) => RdmaState::Error,
            (Ending::None, _) => RdmaState::Closing,
            _ => RdmaState::Error,
        }
    }

    /// Returns whether another QP gets the connection at the end of this turn.
    #[must_use]
    pub fn switches(&self) -> bool {
        self.switch.as_ref().is_some_and(|switch| switch.progress == Progress::Ready)
    }
}

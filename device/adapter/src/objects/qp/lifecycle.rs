//! The stages of the TCP connection of a QP, as its driver sees them.

use vrnic_abi::connection::{ConnectionStatus, Ending, PRIVATE_MAX, Stage};
use vrnic_iwarp::Stream;
use vrnic_iwarp::mpa::start::Failure;
use vrnic_iwarp::stream::Event;
use vrnic_iwarp::stream::close::State;
use vrnic_tcp::connection::End;

/// The stage of a connection, and its end.
#[derive(Debug)]
pub struct Lifecycle {
    stage: Stage,
    /// The stage that the driver was told of.
    told: Stage,
    ending: Ending,
    was_open: bool,
}

impl Default for Lifecycle {
    fn default() -> Self {
        let (stage, told) = (Stage::Opening, Stage::Opening);
        Self { stage, told, ending: Ending::None, was_open: false }
    }
}

impl Lifecycle {
    /// The stage.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// The way in which the connection ended.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Messages are exchanged no more. The first reason counts.
    pub fn end(&mut self, ending: Ending) {
        if self.ending == Ending::None {
            self.ending = ending;
        }
        self.advance(Stage::Closed);
    }

    /// TCP has ended.
    pub fn gone(&mut self) {
        self.end(Ending::Abortive);
        self.advance(Stage::Gone);
    }

    /// Takes the end of TCP.
    pub fn tcp_ended(&mut self, end: End) {
        match end {
            End::TimedOut => self.end(Ending::TimedOut),
            // Both have closed, and the peer has forgotten the connection already.
            End::Reset if self.stage == Stage::Closing => self.end(Ending::Graceful),
            End::Reset => self.end(Ending::Reset),
            // The stream tells why.
            End::Closed | End::Aborted | End::Gone | End::Refused => {}
        }
    }

    /// Takes an event of the stream, which is in this state now.
    pub fn follow(&mut self, event: &Event, state: State) {
        match event {
            Event::Established(_) => {
                self.was_open = true;
                self.advance(Stage::Open);
            }
            Event::StartFailed(Failure::Rejected) => self.end(Ending::Rejected),
            Event::StartFailed(_) => self.end(Ending::Refused),
            Event::TerminateSent(_) => self.end(Ending::TerminateSent),
            Event::TerminateReceived(_) => self.end(Ending::TerminateReceived),
            Event::GracefulDisconnect if matches!(state, State::Closing | State::Idle) => {
                self.advance(Stage::Closing);
            }
            // The peer gives up before it has answered.
            Event::GracefulDisconnect if !self.was_open => self.end(Ending::Reset),
            Event::GracefulDisconnect | Event::AbortiveDisconnect | Event::BadClose => {
                self.end(Ending::Abortive);
            }
            Event::Closed => self.end(Ending::Graceful),
        }
    }

    /// Returns whether the driver has to be told of another stage; it counts as told then.
    pub fn tell(&mut self) -> bool {
        std::mem::replace(&mut self.told, self.stage) != self.stage
    }

    /// The answer to QUERY_CONNECTION.
    #[must_use]
    pub fn status(&self, stream: &Stream) -> ConnectionStatus {
        let (ird, ord) = stream.agreement().map_or((0, 0), |agreed| (agreed.ird, agreed.ord));
        let mut private = [0; PRIVATE_MAX];
        let len = stream.private().len().min(PRIVATE_MAX);
        private.iter_mut().zip(stream.private()).for_each(|(to, from)| *to = *from);
        ConnectionStatus {
            stage: self.stage as u8,
            ending: self.ending as u8,
            was_open: self.was_open.into(),
            ird: ird.into(),
            ord: ord.into(),
            // CAST: there are at most 512.
            private_len: (len as u16).into(),
            private,
            ..ConnectionStatus::default()
        }
    }

    fn advance(&mut self, to: Stage) {
        if (to as u8) > self.stage as u8 {
            self.stage = to;
        }
    }
}

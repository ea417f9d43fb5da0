//! The stages of the TCP connection of a QP, as reported to its driver.

use vrnic_abi::connection::{
    ConnectionEvents, ConnectionStatus, Ending, PRIVATE_MAX, RdmaState, Stage,
};
use vrnic_iwarp::Stream;
use vrnic_iwarp::mpa::start::Failure;
use vrnic_iwarp::stream::Event;
use vrnic_iwarp::stream::close::State;
use vrnic_tcp::connection::End;

/// The stage of a connection, and its end.
#[derive(Debug)]
pub struct Lifecycle {
    stage: Stage,
    /// The stage that was last reported to the driver.
    reported: Stage,
    ending: Ending,
    was_open: bool,
    events: ConnectionEvents,
    /// The events that were reported to the driver.
    told: ConnectionEvents,
}

impl Default for Lifecycle {
    fn default() -> Self {
        let (stage, reported) = (Stage::Opening, Stage::Opening);
        let (events, told) = (ConnectionEvents::empty(), ConnectionEvents::empty());
        Self { stage, reported, ending: Ending::None, was_open: false, events, told }
    }
}

impl Lifecycle {
    /// Returns the stage.
    #[must_use]
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns how the connection ended.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// Records that no more messages are exchanged. Only the first reason is kept.
    pub fn end(&mut self, ending: Ending) {
        if self.ending == Ending::None {
            self.ending = ending;
        }
        self.advance(Stage::Closed);
    }

    /// Records that a connection without start frames is open.
    pub fn open(&mut self) {
        self.was_open = true;
        self.advance(Stage::Open);
    }

    /// Records that the peer has closed its direction of a connection without messages.
    pub fn peer_closed(&mut self) {
        self.events |= ConnectionEvents::GRACEFUL_DISCONNECT;
        self.advance(Stage::Closing);
    }

    /// Records that both directions of a connection without messages are closed.
    pub fn closed(&mut self) {
        self.events |= ConnectionEvents::CLOSED;
    }

    /// Records that a connection without messages has failed while it was being closed.
    pub fn closed_badly(&mut self) {
        self.events |= ConnectionEvents::BAD_CLOSE;
    }

    /// Records that TCP has ended.
    pub fn gone(&mut self) {
        self.end(Ending::Abortive);
        self.advance(Stage::Gone);
    }

    /// Handles the end of TCP.
    pub fn tcp_ended(&mut self, end: End) {
        if end != End::Closed {
            self.events |= ConnectionEvents::ABORTIVE_DISCONNECT;
        }
        match end {
            End::TimedOut => self.end(Ending::TimedOut),
            // Both ends have closed, and the peer has already forgotten the connection.
            End::Reset if self.stage == Stage::Closing => self.end(Ending::Graceful),
            End::Reset => self.end(Ending::Reset),
            // The stream reports the reason.
            End::Closed | End::Aborted | End::Gone | End::Refused => {}
        }
    }

    /// Handles an event of the stream. `state` is the present state of the stream.
    pub fn follow(&mut self, event: &Event, state: State) {
        self.events |= events_of(event);
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
            // The peer has closed before it has answered.
            Event::GracefulDisconnect if !self.was_open => self.end(Ending::Reset),
            Event::BadClose => self.end_badly(),
            Event::GracefulDisconnect | Event::AbortiveDisconnect => self.end(Ending::Abortive),
            Event::Closed => self.end(Ending::Graceful),
        }
    }

    /// Records a bad close. It says more than the abortive end that comes with it.
    fn end_badly(&mut self) {
        if self.ending == Ending::Abortive {
            self.ending = Ending::BadClose;
        }
        self.end(Ending::BadClose);
    }

    /// Returns whether another stage or event must be reported to the driver, and counts it as
    /// reported.
    pub fn take_change(&mut self) -> bool {
        let staged = std::mem::replace(&mut self.reported, self.stage) != self.stage;
        let told = std::mem::replace(&mut self.told, self.events) != self.events;
        staged || told
    }

    /// Returns the reply to QUERY_CONNECTION about a connection without messages.
    #[must_use]
    pub fn bare_status(&self) -> ConnectionStatus {
        ConnectionStatus {
            stage: self.stage as u8,
            ending: self.ending as u8,
            was_open: self.was_open.into(),
            events: self.events.bits().into(),
            ..ConnectionStatus::default()
        }
    }

    /// Returns the reply to QUERY_CONNECTION.
    #[must_use]
    pub fn status(&self, stream: &Stream) -> ConnectionStatus {
        let (ird, ord) = stream.agreement().map_or((0, 0), |agreed| (agreed.ird, agreed.ord));
        let mut private = [0; PRIVATE_MAX];
        let len = stream.private().len().min(PRIVATE_MAX);
        private.iter_mut().zip(stream.private()).for_each(|(to, from)| *to = *from);
        ConnectionStatus {
            state: state_of(stream.state()) as u8,
            ird: ird.into(),
            ord: ord.into(),
            // CAST: the length is at most 512.
            private_len: (len as u16).into(),
            private,
            ..self.bare_status()
        }
    }

    fn advance(&mut self, to: Stage) {
        if (to as u8) > self.stage as u8 {
            self.stage = to;
        }
    }
}

/// Returns the state as the driver sees it.
const fn state_of(state: State) -> RdmaState {
    match state {
        State::Starting | State::Idle => RdmaState::Idle,
        State::Rts => RdmaState::Rts,
        State::Closing => RdmaState::Closing,
        State::Terminate => RdmaState::Terminate,
        State::Error => RdmaState::Error,
    }
}

/// Returns an event of the stream as the driver sees it.
const fn events_of(event: &Event) -> ConnectionEvents {
    match event {
        Event::GracefulDisconnect => ConnectionEvents::GRACEFUL_DISCONNECT,
        Event::AbortiveDisconnect => ConnectionEvents::ABORTIVE_DISCONNECT,
        Event::Closed => ConnectionEvents::CLOSED,
        Event::BadClose => ConnectionEvents::BAD_CLOSE,
        Event::TerminateSent(_) => ConnectionEvents::TERMINATE_SENT,
        Event::TerminateReceived(_) => ConnectionEvents::TERMINATE_RECEIVED,
        Event::Established(_) | Event::StartFailed(_) => ConnectionEvents::empty(),
    }
}

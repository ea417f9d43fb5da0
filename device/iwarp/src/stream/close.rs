//! The end of a stream: one table of states and happenings.
//!
//! The states are the states of a QP in the RDMA verbs over TCP. "Quiet" means that no work request
//! and no answer is outstanding. If TCP holds octets back, leaving Rts also orders TCP to resume.
//!
//! | state | happening | next | order | events |
//! | --- | --- | --- | --- | --- |
//! | Starting | rejected or malformed start frame, end of the stream | Error | reset | abortive |
//! | Rts | disconnect, quiet | Closing | finish | |
//! | Rts | peer finishes, quiet | Closing | finish | graceful |
//! | Rts | peer finishes with work outstanding | Error | finish | graceful |
//! | Rts | peer finishes within an FPDU | Error | reset | graceful, abortive |
//! | Rts | own error | Terminate | | |
//! | Rts | Terminate arrives | Terminate | finish | |
//! | Closing | peer finishes | Closing | | graceful |
//! | Closing | closed on both sides, or reset after the peer has finished | Idle | | closed |
//! | Closing | data, a Terminate, a work request | Error | reset | bad close, abortive |
//! | Closing | reset or lost | Error | | abortive, bad close |
//! | Terminate | own Terminate is acknowledged | Terminate | finish | |
//! | Terminate | closed on both sides | Error | | |
//! | Terminate | time is over | Error | reset | abortive |
//! | any | abort | Error | reset | abortive |
//! | any | reset or lost | Error | | abortive |

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The start frames are being exchanged.
    Starting,
    /// Messages are sent in both directions.
    Rts,
    /// This end has finished sending, and no more messages may arrive.
    Closing,
    /// A Terminate has been sent or received; TCP is being closed.
    Terminate,
    /// The stream has ended with an error.
    Error,
    /// The stream has ended without an error.
    Idle,
}

/// An event that concerns the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happening {
    /// The program asks to close, and no work is outstanding.
    Disconnect,
    /// The program asks to end the stream at once.
    Abort,
    /// The start frames did not lead to an agreement, and no Terminate is sent to the peer.
    StartFailed,
    /// The peer has finished sending (FIN), between two FPDUs.
    PeerFinished,
    /// The peer has finished sending within an FPDU or a start frame.
    PeerBroke,
    /// The peer has reset the connection (RST).
    PeerReset,
    /// The connection is lost, because the peer does not answer.
    Lost,
    /// Memory that must be sent cannot be read. TCP resets the connection.
    MemoryGone,
    /// The peer or this end has violated the protocol, and a Terminate is sent.
    Mistake,
    /// A Terminate has arrived.
    Terminated,
    /// Octets have arrived.
    Data,
    /// A work request was posted.
    Posted,
    /// The peer has acknowledged the Terminate.
    Acknowledged,
    /// TCP is closed on both sides.
    Closed,
    /// The caller's time limit for closing is over. The time runs while the stream is in another
    /// state than Rts and TCP is open, because a peer may acknowledge as slowly as it wants.
    TimeOut,
}

/// An order for the TCP engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Close: send a FIN after all octets.
    Finish,
    /// Deliver octets that were held back, because no message waits any more.
    Resume,
    /// Reset: send a RST, and do not read memory any more.
    Reset,
}

/// An event about the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The peer has finished sending.
    Graceful,
    /// TCP was closed abortively, by either end.
    Abortive,
    /// TCP is closed on both sides, without an error.
    Closed,
    /// An error occurred while the stream was being closed without one.
    BadClose,
}

/// The effect of a happening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The state from now on.
    pub next: State,
    /// An order for TCP.
    pub order: Option<Order>,
    /// Events, in their order.
    pub notices: &'static [Notice],
}

const fn to(next: State, order: Option<Order>, notices: &'static [Notice]) -> Reaction {
    Reaction { next, order, notices }
}

/// Returns the effect of a happening. `quiet` is true if no work is outstanding.
#[must_use]
pub const fn react(state: State, happening: Happening, quiet: bool) -> Reaction {
    use Notice::{Abortive, BadClose, Graceful};
    use Order::{Finish, Reset};
    match state {
        State::Idle => to(State::Idle, None, &[]),
        State::Error => in_error(happening),
        State::Closing => in_closing(happening),
        State::Terminate => in_terminate(happening),
        State::Starting | State::Rts => match happening {
            Happening::Disconnect if matches!(state, State::Rts) => {
                to(State::Closing, Some(Finish), &[])
            }
            Happening::PeerFinished if matches!(state, State::Rts) => {
                let next = if quiet { State::Closing } else { State::Error };
                to(next, Some(Finish), &[Graceful])
            }
            Happening::PeerFinished | Happening::PeerBroke => {
                to(State::Error, Some(Reset), &[Graceful, Abortive])
            }
            Happening::Abort
            | Happening::Disconnect
            | Happening::StartFailed
            | Happening::TimeOut => to(State::Error, Some(Reset), &[Abortive]),
            Happening::PeerReset | Happening::Lost | Happening::MemoryGone => {
                to(State::Error, None, &[Abortive])
            }
            Happening::Mistake => to(State::Terminate, None, &[]),
            Happening::Terminated => to(State::Terminate, Some(Finish), &[]),
            // TCP closes only after an order to close.
            Happening::Closed => to(State::Error, None, &[BadClose]),
            Happening::Data | Happening::Posted | Happening::Acknowledged => to(state, None, &[]),
        },
    }
}

const fn in_closing(happening: Happening) -> Reaction {
    use Notice::{Abortive, BadClose, Closed, Graceful};
    match happening {
        Happening::PeerFinished => to(State::Closing, None, &[Graceful]),
        Happening::Closed => to(State::Idle, None, &[Closed]),
        Happening::PeerReset | Happening::Lost | Happening::MemoryGone => {
            to(State::Error, None, &[Abortive, BadClose])
        }
        Happening::PeerBroke => {
            to(State::Error, Some(Order::Reset), &[Graceful, BadClose, Abortive])
        }
        Happening::Data | Happening::Posted | Happening::Mistake | Happening::Terminated => {
            to(State::Error, Some(Order::Reset), &[BadClose, Abortive])
        }
        Happening::Abort | Happening::TimeOut | Happening::StartFailed => {
            to(State::Error, Some(Order::Reset), &[Abortive])
        }
        Happening::Disconnect | Happening::Acknowledged => to(State::Closing, None, &[]),
    }
}

const fn in_terminate(happening: Happening) -> Reaction {
    use Notice::{Abortive, Graceful};
    match happening {
        Happening::Acknowledged => to(State::Terminate, Some(Order::Finish), &[]),
        Happening::PeerFinished | Happening::PeerBroke => to(State::Terminate, None, &[Graceful]),
        Happening::Closed => to(State::Error, None, &[]),
        Happening::PeerReset | Happening::Lost | Happening::MemoryGone => {
            to(State::Error, None, &[Abortive])
        }
        Happening::Abort | Happening::TimeOut => to(State::Error, Some(Order::Reset), &[Abortive]),
        _ => to(State::Terminate, None, &[]),
    }
}

const fn in_error(happening: Happening) -> Reaction {
    use Notice::{Abortive, Graceful};
    match happening {
        Happening::PeerFinished | Happening::PeerBroke => to(State::Error, None, &[Graceful]),
        Happening::PeerReset | Happening::Lost | Happening::MemoryGone => {
            to(State::Error, None, &[Abortive])
        }
        Happening::Abort | Happening::TimeOut => to(State::Error, Some(Order::Reset), &[Abortive]),
        _ => to(State::Error, None, &[]),
    }
}

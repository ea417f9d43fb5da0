//! The effects of happenings.

use super::Stream;
use super::close::{Happening, Notice, Order, Reaction, State, react};
use super::event::Event;
use crate::rdmap::log::{Message, Payload};
use crate::wire::cursor::Fields;
use crate::wire::ddp::{Msn, Stag, Tagged};
use crate::wire::fpdu;
use crate::wire::rdmap::Opcode;
use crate::wire::terminate::{self, Cause, Report};

/// How a program wants to end a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// After all work requests that were posted.
    Graceful,
    /// At once.
    Abortive,
}

/// The answer to the wish to use the QP again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing of the stream is left.
    Reached,
    /// Work requests are not flushed yet.
    Pending,
    /// They were not flushed in the time that there was. The caller destroys the QP.
    Aborted,
}

impl Stream {
    /// Ends the stream as the program wants. A graceful end waits for the work requests that were
    /// posted; no others are taken. The caller limits the time ([`Happening::TimeOut`]).
    pub fn disconnect(&mut self, want: Want) {
        match want {
            Want::Abortive => self.happened(Happening::Abort),
            Want::Graceful => {
                self.leaving = true;
                if self.state != State::Rts {
                    self.happened(Happening::Disconnect);
                }
                self.leave();
            }
        }
    }

    /// Closes if the program wants that and no work is outstanding.
    pub(super) fn leave(&mut self) {
        if self.leaving && self.state == State::Rts && self.is_quiet() {
            self.happened(Happening::Disconnect);
        }
    }

    fn is_quiet(&self) -> bool {
        self.requester.is_quiet(&self.tracker, self.look, self.sent) && self.responder.is_empty()
    }

    /// Notes something that TCP or the program tells of the end of the connection.
    pub fn happened(&mut self, happening: Happening) {
        if happening == Happening::PeerFinished && self.is_behind() {
            self.arriving.finished = true;
            return;
        }
        let happening = match happening {
            // The end of the octets is right only between two FPDUs.
            Happening::PeerFinished if !self.arriving.is_at_border() => Happening::PeerBroke,
            // A peer that has finished and forgets the connection answers the FIN so: siw does.
            Happening::PeerReset if self.state == State::Closing && self.arriving.was_given(0) => {
                Happening::Closed
            }
            other => other,
        };
        if matches!(
            happening,
            Happening::PeerReset | Happening::Lost | Happening::MemoryGone | Happening::Closed
        ) {
            self.gone = true;
        }
        let Reaction { next, order, notices } = react(self.state, happening, self.is_quiet());
        let before = std::mem::replace(&mut self.state, next);
        self.order(order);
        for notice in notices {
            self.notify(*notice);
        }
        if next != before && matches!(next, State::Error | State::Terminate | State::Closing) {
            self.settle();
            self.requester.fail();
            // The own wish to close has waited for work requests, and answers are sent.
            if order == Some(Order::Finish) && happening != Happening::Disconnect {
                self.truncate();
            }
            // What follows is dropped, and the peer's end has to be found.
            let held = self.arriving.held.take().is_some();
            if held && !self.gone && order != Some(Order::Reset) {
                self.orders.push_back(Order::Resume);
            }
        }
        self.finish_late();
    }

    /// Notes which work requests are complete at the end of the stream.
    fn settle(&mut self) {
        self.requester.settle(&self.tracker, self.look, self.sent);
    }

    /// Drops what TCP has not begun to send, so that the end of the stream does not wait for the
    /// rest of a long message. Work requests have been settled.
    fn truncate(&mut self) {
        let before = self.log.end();
        self.log.truncate(self.sent.max(self.look.unacknowledged));
        let dropped = before.since(self.log.end());
        self.tracker.take_back(dropped);
        self.look.queued = self.look.queued.saturating_sub(dropped);
        self.requester.truncate(self.tracker.mark(self.look), self.log.end());
    }

    /// Gives an order that was not given before.
    fn order(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Finish) if !self.finished && !self.gone => {
                self.finished = true;
                self.orders.push_back(Order::Finish);
            }
            Some(Order::Reset) if !self.gone && !self.orders.contains(&Order::Reset) => {
                self.orders.push_back(Order::Reset);
            }
            _ => {}
        }
    }

    /// Appends an event, each at most once.
    fn notify(&mut self, notice: Notice) {
        let (event, nth) = match notice {
            Notice::Graceful => (Event::GracefulDisconnect, 0),
            Notice::Abortive => (Event::AbortiveDisconnect, 1),
            Notice::Closed => (Event::Closed, 2),
            Notice::BadClose => (Event::BadClose, 3),
        };
        if self.arriving.first_time(nth) {
            self.events.push_back(event);
        }
    }

    /// Ends the stream with a Terminate: the last message of this end.
    pub(super) fn terminate(&mut self, cause: Cause, payload: &Fields<{ terminate::MAX }>) {
        if !matches!(self.state, State::Starting | State::Rts) {
            self.happened(Happening::Mistake);
            return;
        }
        self.settle();
        self.truncate();
        let len = u32::try_from(payload.octets().len()).unwrap_or_default();
        let message = Message {
            opcode: Opcode::Terminate,
            at: Tagged::default(),
            invalidate: Stag(0),
            msn: Msn::FIRST,
            len,
            payload: Payload::Kept(*payload),
        };
        self.requester.fail();
        if !self.append(message, fpdu::MULPDU_MIN) {
            // The log keeps room for it.
            self.happened(Happening::Abort);
            return;
        }
        self.terminated = true;
        self.events.push_back(Event::TerminateSent(cause));
        self.happened(Happening::Mistake);
    }

    /// A Terminate has arrived.
    pub(super) fn terminated(&mut self, report: Report) {
        self.settle();
        if self.state == State::Rts {
            self.requester.fail_remote(report.cause(), &self.tracker, self.look, self.sent);
        }
        self.events.push_back(Event::TerminateReceived(report));
        self.happened(Happening::Terminated);
    }

    /// The peer's SEND has waited long enough for a receive.
    pub fn patience_ended(&mut self) {
        if self.waits_for_receive() {
            self.terminate(Cause::NoBuffer, &terminate::payload(Cause::NoBuffer, None));
        }
    }

    /// Ends the stream with a Terminate because a message of the peer was refused that has come by
    /// another way than TCP.
    pub fn refuse(&mut self, cause: Cause) {
        if self.state == State::Rts {
            self.terminate(cause, &terminate::payload(cause, None));
        }
    }

    /// Answers the wish to use the QP again after an error: when all work requests have been
    /// completed and TCP is closed. `give_up` says that the caller does not wait any longer.
    #[must_use]
    pub fn rest(&self, give_up: bool) -> Rest {
        let ended = matches!(self.state, State::Error | State::Idle);
        if ended && self.requester.is_empty() && (self.gone || self.state == State::Idle) {
            Rest::Reached
        } else if give_up {
            Rest::Aborted
        } else {
            Rest::Pending
        }
    }
}

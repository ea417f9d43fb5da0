//! The effects of happenings.

use super::Stream;
use super::close::{Happening, Notice, Order, Reaction, State, react};
use super::event::Event;
use crate::rdmap::log::{Message, Payload};
use crate::wire::ddp::{Msn, Stag, Tagged};
use crate::wire::fields::Fields;
use crate::wire::fpdu;
use crate::wire::rdmap::Opcode;
use crate::wire::terminate::{self, Cause, Report};

/// The way in which a program wants to end a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The stream ends after all posted work requests.
    Graceful,
    /// The stream ends at once.
    Abortive,
}

/// Says whether the QP can be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Yes: nothing of the stream is left.
    Reached,
    /// Work requests are not flushed yet.
    Pending,
    /// Work requests were not flushed in the time limit. The caller destroys the QP.
    Aborted,
}

impl Stream {
    /// Ends the stream as the program asks. A graceful end waits for the work requests that were
    /// posted, and accepts no others. The caller limits the time ([`Happening::TimeOut`]).
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

    /// Closes if the program has asked for it and no work is outstanding.
    pub(super) fn leave(&mut self) {
        if self.leaving && self.state == State::Rts && self.is_quiet() {
            self.happened(Happening::Disconnect);
        }
    }

    fn is_quiet(&self) -> bool {
        self.requester.is_quiet(&self.tracker, self.send_state, self.sent)
            && self.responder.is_empty()
    }

    /// Handles an event of TCP or of the program that concerns the end of the connection.
    pub fn happened(&mut self, happening: Happening) {
        if happening == Happening::PeerFinished && self.is_behind() {
            self.arriving.finished = true;
            return;
        }
        let happening = match happening {
            // The stream may end only between two FPDUs.
            Happening::PeerFinished if !self.arriving.is_at_border() => Happening::PeerBroke,
            // A peer that has finished and has forgotten the connection answers the FIN with a RST,
            // as siw does.
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
            // The wish to close has waited for work requests, and answers have been sent.
            if order == Some(Order::Finish) && happening != Happening::Disconnect {
                self.truncate();
            }
            // The octets that follow are dropped, so that the peer's end is found.
            let held = self.arriving.held.take().is_some();
            if held && !self.gone && order != Some(Order::Reset) {
                self.orders.push_back(Order::Resume);
            }
        }
        self.finish_late();
    }

    /// Records which work requests are complete at the end of the stream.
    fn settle(&mut self) {
        self.requester.settle(&self.tracker, self.send_state, self.sent);
    }

    /// Drops octets that TCP has not begun to send, so that the end of the stream does not wait for
    /// the rest of a long message. [`Self::settle`] has been called before.
    fn truncate(&mut self) {
        let before = self.log.end();
        self.log.truncate(self.sent.max(self.send_state.unacknowledged));
        let dropped = before.since(self.log.end());
        self.tracker.take_back(dropped);
        self.send_state.queued = self.send_state.queued.saturating_sub(dropped);
        self.requester.truncate(self.tracker.mark(self.send_state), self.log.end());
    }

    /// Gives an order, unless it was given before.
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

    /// Ends the stream with a Terminate, which is the last message of this end.
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
            // The log keeps room for the Terminate.
            self.happened(Happening::Abort);
            return;
        }
        self.terminated = true;
        self.events.push_back(Event::TerminateSent(cause));
        self.happened(Happening::Mistake);
    }

    /// Handles a Terminate of the peer.
    pub(super) fn terminated(&mut self, report: Report) {
        self.settle();
        if self.state == State::Rts {
            // The cause of siw for an unknown opcode is another one of the RFCs, about start
            // frames, that no peer has when it has got an operation of RFC 7306.
            let of_siw = report.cause_of_siw();
            let unknown = of_siw == Cause::Opcode && self.requester.has_sent_extension();
            let cause = if unknown { of_siw } else { report.cause() };
            self.requester.fail_remote(cause, &self.tracker, self.send_state, self.sent);
        }
        self.events.push_back(Event::TerminateReceived(report));
        self.happened(Happening::Terminated);
    }

    /// Ends the stream because a SEND of the peer has waited too long for a receive.
    pub fn receive_timed_out(&mut self) {
        if self.waits_for_receive() {
            self.terminate(Cause::NoBuffer, &terminate::payload(Cause::NoBuffer, None));
        }
    }

    /// Ends the stream with a Terminate because a message of the peer was refused that did not
    /// arrive through TCP.
    pub fn refuse(&mut self, cause: Cause) {
        if self.state == State::Rts {
            self.terminate(cause, &terminate::payload(cause, None));
        }
    }

    /// Returns whether the QP can be used again after an error, which requires that all work
    /// requests have been completed and TCP is closed. `give_up` is true if the caller does not
    /// wait any longer.
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

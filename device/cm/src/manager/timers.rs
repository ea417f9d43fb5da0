//! What happens when a time has come.

use vrnic_packet::Nanos;

use super::{ConnectionId, Manager};
use crate::state::{Event, State};

impl Manager {
    /// Sends messages again that have no answer, and ends what waits for a time.
    pub fn expire(&mut self, now: Nanos) {
        while let Some(due) = self.outbox.deadlines.first().copied().filter(|due| due.at <= now) {
            self.outbox.deadlines.pop_first();
            self.expire_one(now, due.id);
        }
    }

    fn expire_one(&mut self, now: Nanos, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.deadline = None;
        if self.outbox.send_again(now, connection) {
            return;
        }
        let event = match connection.state {
            State::ReqSent | State::MraReqRcvd => Event::ReqError,
            State::RepSent | State::MraRepRcvd => Event::RepError,
            State::SidrReqSent => Event::SidrReqError,
            State::DreqSent => Event::DreqError,
            State::TimeWait => Event::TimeWaitExit,
            _ => return,
        };
        if event == Event::DreqError {
            self.wait(now, id)
        } else {
            self.idle(id)
        }
        self.outbox.report(id, event);
    }
}

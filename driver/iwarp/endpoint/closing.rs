// SPDX-License-Identifier: GPL-2.0
//! The end of a connection as its owner asks for it, and the observer of its state.

use abi::connection::{Closed, Closing, ConnectionStatus, RdmaState};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Acquire, Relaxed, Release},
    },
    time::{Delta, hrtimer::HrTimerPointer},
};

use super::{Endpoint, State};
use crate::iwarp::{Observer, connection::Connection};

/// The time that a connection with messages has to be closed. The adapter gives up before, unless
/// it hangs itself.
const CLOSE_TIME: Delta = Delta::from_secs(10);

impl Endpoint {
    /// Names the observer of the connection, or none. The last one is not called any more when this
    /// returns.
    pub(in crate::iwarp) fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        let mut place = self.observer.lock();
        let old = core::mem::replace(&mut *place, observer);
        // Reports the events that happened before the callback was registered.
        if let Some(observer) = &*place {
            observer.changed();
        }
        drop(place);
        drop(old);
    }

    /// Calls the observer if the state has changed. Only the work item does this, with nothing
    /// locked, because the observer may use the queue pair.
    pub(super) fn tell(&self) {
        if self.told.xchg(true, Relaxed) {
            return;
        }
        if let Some(observer) = &*self.observer.lock() {
            observer.changed();
        }
    }

    /// Closes the connection, which is reset if that takes longer than `limit`, or ends it at once.
    pub(in crate::iwarp) fn disconnect(
        self: &Arc<Self>,
        how: Closing,
        limit: Option<Delta>,
    ) -> Result<Closed> {
        let mut state = self.state.lock();
        let State::Taken(taken) = &mut *state else { return Err(ENOTCONN) };
        let closed = self.connections.commands.close(taken.qpn, how)?;
        if how == Closing::Graceful {
            if limit.is_some() {
                taken.limit = None;
            }
            self.limit(taken, limit.unwrap_or(CLOSE_TIME));
        }
        drop(state);
        self.enqueue();
        Ok(closed)
    }

    /// Limits the time in which a connection with messages must be closed, which its owner has
    /// asked for in another way.
    pub(in crate::iwarp) fn closes(self: &Arc<Self>) {
        if let State::Taken(taken) = &mut *self.state.lock() {
            if !taken.is_bytes() {
                self.limit(taken, CLOSE_TIME);
            }
        }
    }

    /// Takes the connection off the adapter as soon as it is closed on both sides, or has ended.
    pub(in crate::iwarp) fn leave(self: &Arc<Self>) -> Result<Closed> {
        let mut state = self.state.lock();
        let State::Taken(taken) = &mut *state else { return Err(ENOTCONN) };
        taken.leaves = true;
        if let Err(error) = self.ask(taken) {
            taken.leaves = false;
            return Err(error);
        }
        let left = taken.leaves;
        drop(state);
        // The observer may be the caller.
        self.enqueue();
        Ok(if left { Closed::Pending } else { Closed::Done })
    }

    /// Makes the queue pair idle if that is possible.
    pub(in crate::iwarp) fn rest(self: &Arc<Self>, how: Closing) -> Result<Closed> {
        let mut state = self.state.lock();
        let State::Taken(taken) = &mut *state else { return Err(ENOTCONN) };
        // The owner must have got the last event before the queue pair gets another connection.
        let asked = self.ask(taken);
        let closed = asked.and_then(|()| self.connections.commands.close(taken.qpn, how));
        drop(state);
        self.enqueue();
        closed
    }

    fn limit(self: &Arc<Self>, taken: &mut Connection<Self>, limit: Delta) {
        if taken.limit.is_none() {
            self.late.store(false, Release);
            taken.limit = Some(self.clone().start(limit));
        }
    }

    /// Acts on the state of the connection: resets it if it hangs, and lets it leave the adapter.
    /// Returns true if the state may be another one then.
    pub(super) fn press(
        self: &Arc<Self>,
        taken: &mut Connection<Self>,
        status: &ConnectionStatus,
    ) -> Result<bool> {
        if taken.saw(status) {
            self.told.store(false, Release);
        }
        let commands = &self.connections.commands;
        if taken.is_over(status) {
            taken.limit = None;
        } else if taken.limit.is_some() && self.late.load(Acquire) {
            taken.limit = None;
            pr_debug!("a connection that is not closed in time is reset\n");
            commands.close(taken.qpn, Closing::Abortive)?;
            return Ok(true);
        } else if status.state == RdmaState::Closing as u8
            && !taken.is_bytes()
            && !taken.has_ended()
        {
            self.limit(taken, CLOSE_TIME);
        }
        let left = taken.leaves
            && taken.is_over(status)
            && commands.close(taken.qpn, Closing::Release)? == Closed::Done;
        taken.leaves &= !left;
        Ok(left)
    }
}

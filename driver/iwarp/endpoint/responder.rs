// SPDX-License-Identifier: GPL-2.0
//! An accepted connection, until the adapter takes it over.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Acquire, Release},
    },
    time::{
        Delta,
        hrtimer::{ArcHrTimerHandle, HrTimerPointer},
    },
};

use super::{Acceptor, Endpoint, State, Ticket};
use crate::{
    iwarp::{
        commands::Wishes,
        connection::Connection,
        socket::{Accepted, Snapshot, Socket},
        start::Request,
    },
    rdma::{
        iwcm::{Accepts, Address, CmId, ConnParam, ConnRequest, Offer, Refused},
        port::netdev::NetdevRef,
    },
};

/// The time in which an initiator must send its request.
const REQUEST_TIME: Delta = Delta::from_secs(5);
/// After this time in which the owner of a listener has neither got nor answered a request, the
/// next one is passed on, because the owner may want several before its first answer.
pub(in crate::iwarp) const PATIENCE: Delta = Delta::from_millis(500);
/// The time in which the owner of a listener must answer a request. No initiator waits so long.
/// When a listener ends, the core drops the requests that its owner has not got.
const ANSWER_TIME: Delta = Delta::from_secs(60);

/// An accepted connection whose request has not arrived completely, or waits until the listener's
/// owner can get it.
pub(super) struct Requesting {
    pub(super) socket: Socket<Endpoint>,
    pub(super) listener: Arc<dyn Acceptor>,
    pub(super) request: Request,
    timer: Option<ArcHrTimerHandle<Endpoint>>,
}

/// An accepted connection whose request was reported to the listener's owner.
pub(super) struct Offered {
    pub(super) socket: Socket<Endpoint>,
    pub(super) request: Request,
    pub(super) offer: Offer,
    _ticket: Ticket,
    _timer: ArcHrTimerHandle<Endpoint>,
}

impl Endpoint {
    /// Takes an accepted connection. The work item will read its request.
    pub(in crate::iwarp) fn serve(
        self: &Arc<Self>,
        accepted: Accepted,
        listener: Arc<dyn Acceptor>,
    ) -> Result {
        let request = Request::new()?;
        let socket = Socket::watch(accepted, self.clone());
        let timer = Some(self.clone().start(REQUEST_TIME));
        *self.state.lock() = State::Requesting(Requesting { socket, listener, request, timer });
        Ok(())
    }

    /// Closes a connection whose request has not arrived completely, or waits.
    pub(in crate::iwarp) fn abandon(&self) {
        let old = {
            let mut state = self.state.lock();
            if !matches!(*state, State::Requesting(_)) {
                return;
            }
            core::mem::replace(&mut *state, State::Idle)
        };
        drop(old);
    }

    /// Accepts the request that was reported. If this succeeds, the events of an accepted
    /// connection follow.
    pub(in crate::iwarp) fn accept(
        self: &Arc<Self>,
        netdev: &NetdevRef,
        id: CmId<Accepts>,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Accepts>> {
        let mut state = self.state.lock();
        let admitted = Wishes::new(param, self.connections.max_depth)
            .and_then(|wishes| Ok((self.admit(&mut state, netdev, &wishes)?, wishes.qpn)));
        let ((socket, snapshot), qpn) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return Err(Refused { id, error }),
        };
        *state = State::Taken(Connection::accepted(qpn, netdev.clone(), socket, snapshot, id));
        drop(state);
        self.enqueue();
        Ok(())
    }

    /// Hands the connection over to the adapter. Returns the connection's socket. If this fails,
    /// the connection is closed.
    fn admit(
        &self,
        state: &mut State,
        netdev: &NetdevRef,
        wishes: &Wishes,
    ) -> Result<(Socket<Self>, Snapshot)> {
        let State::Offered(offered) = core::mem::replace(state, State::Idle) else {
            return Err(ECONNABORTED);
        };
        let Offered { socket, request, .. } = offered;
        let snapshot = self.hand_over(&socket, netdev, &wishes.opening(Some(request.bytes())))?;
        Ok((socket, snapshot))
    }

    /// Rejects the request that was reported.
    pub(in crate::iwarp) fn reject(&self, private: &[u8]) {
        let state = core::mem::replace(&mut *self.state.lock(), State::Idle);
        if let State::Offered(Offered { socket, request, .. }) = state {
            // The socket is closed here. It sends the reply before its FIN.
            let _ = request.rejection(private).and_then(|reply| socket.write(&reply));
        }
    }

    /// Reads the bytes of the request that have arrived. If the request is complete, reports it to
    /// the listener's owner.
    pub(super) fn read(self: &Arc<Self>, state: &mut State) -> Result {
        let State::Requesting(requesting) = state else { return Ok(()) };
        loop {
            let missing = requesting.request.missing()?;
            if missing.is_empty() {
                break;
            }
            match requesting.socket.read(missing)? {
                Some(count) => requesting.request.add(count),
                None if self.late.load(Acquire) => return Err(ETIMEDOUT),
                None => return Ok(()),
            }
        }
        match requesting.listener.clone().admit(self) {
            Some(ticket) => self.offer(state, ticket),
            None => self.wait(requesting),
        }
    }

    /// Lets a request wait until the listener schedules the endpoint, or for some time. An error
    /// says that the peer has closed the connection.
    fn wait(self: &Arc<Self>, requesting: &mut Requesting) -> Result {
        requesting.socket.progress()?;
        // The drop of a handle stops the timer, so it must come before the next start.
        drop(requesting.timer.take());
        requesting.timer = Some(self.clone().start(PATIENCE));
        Ok(())
    }

    /// Reports a complete request to the listener's owner.
    fn offer(self: &Arc<Self>, state: &mut State, ticket: Ticket) -> Result {
        let State::Requesting(requesting) = core::mem::replace(state, State::Idle) else {
            return Ok(());
        };
        let Requesting { socket, listener, request, timer } = requesting;
        drop(timer);
        let names: KBox<(Address, Address)> = KBox::new(socket.names()?, GFP_KERNEL)?;
        let parts = request.parts(self.connections.max_depth)?;
        let offer = self.connections.add_offer(self)?;
        let (peer, private) = (parts.peer, parts.private);
        // The owner may answer at once, and then waits for the lock of the state.
        let passed_on = listener.request(&ConnRequest { names: &names, offer, peer, private });
        if let Err(error) = passed_on {
            let _ = self.connections.take_offer(offer);
            return Err(error);
        }
        self.late.store(false, Release);
        let timer = self.clone().start(ANSWER_TIME);
        *state = State::Offered(Offered { socket, request, offer, _ticket: ticket, _timer: timer });
        Ok(())
    }

    /// Closes a connection whose request was not answered in time, or not before the peer closed
    /// the connection.
    pub(super) fn give_up(&self, state: &mut State) {
        let State::Offered(offered) = &*state else { return };
        if offered.socket.progress().is_err() || self.late.load(Acquire) {
            let _ = self.connections.take_offer(offered.offer);
            *state = State::Idle;
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! One end of a connection.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`responder`] | an accepted connection until the adapter takes it over |
//! | [`stream`] | the handover of a program's socket |
//! | [`closing`] | the end that the owner asks for, and the observer of the state |

use kernel::{
    impl_has_hr_timer, impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc, ArcBorrow, Mutex,
        atomic::{Atomic, Release},
    },
    time::{
        Monotonic,
        hrtimer::{HrTimer, HrTimerCallback, HrTimerCallbackContext, HrTimerRestart, RelativeMode},
    },
    workqueue::{Work, WorkItem},
};

mod closing;
mod responder;
mod stream;

pub(super) use self::responder::PATIENCE;
use self::responder::{Offered, Requesting};
use super::{
    Connections, Observer,
    commands::{Opening, Wishes},
    connection::Connection,
    socket::{Progress, Snapshot, Socket, Watch},
    start,
};
use crate::rdma::{
    iwcm::{CmId, ConnParam, ConnRequest, Connects, Refused},
    port::netdev::NetdevRef,
};

/// The part of a listener that its accepted connections use.
pub(super) trait Acceptor: Send + Sync {
    /// Reports a request to the listener's owner.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if too many requests wait for the owner, `ECONNABORTED` if the listener was ended.
    fn request(&self, request: &ConnRequest<'_>) -> Result;

    /// Returns a ticket if the owner can get the request of an endpoint, which has arrived. If it
    /// must answer other requests first, the endpoint is scheduled after that.
    fn admit(self: Arc<Self>, endpoint: &Arc<Endpoint>) -> Option<Ticket>;

    /// Records that a ticket was given back.
    fn answered(&self);

    /// Records that the request of an endpoint will not arrive, or is no longer of use.
    fn leave(self: Arc<Self>, endpoint: &Endpoint);
}

/// The right to pass one request on to a listener's owner. The drop, after the answer, gives it
/// back.
pub(super) struct Ticket(Arc<dyn Acceptor>);

impl Ticket {
    /// Returns a ticket that was counted.
    pub(super) fn new(listener: Arc<dyn Acceptor>) -> Self {
        Self(listener)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// One end of a connection.
#[pin_data]
pub(super) struct Endpoint {
    connections: Arc<Connections>,
    #[pin]
    state: Mutex<State>,
    #[pin]
    work: Work<Self>,
    #[pin]
    timer: HrTimer<Self>,
    /// True if the request did not arrive in time, or was not answered in time, or the connection
    /// was not closed in time.
    late: Atomic<bool>,
    /// The observer of the connection.
    #[pin]
    observer: Mutex<Option<Arc<dyn Observer>>>,
    /// False if the observer must still be called.
    told: Atomic<bool>,
}

/// The states of an endpoint.
enum State {
    /// The endpoint does not have a socket yet, or no longer has one.
    Idle,
    /// The endpoint has no socket yet, and is about to connect.
    Reserved,
    /// The connection was accepted. Its request has not arrived completely.
    Requesting(Requesting),
    /// The listener's owner has got the request.
    Offered(Offered),
    /// The socket connects.
    Connecting(Connecting),
    /// The adapter has taken the connection over.
    Taken(Connection<Endpoint>),
}

/// A connection that is being made.
struct Connecting {
    socket: Socket<Endpoint>,
    netdev: NetdevRef,
    id: CmId<Connects>,
    wishes: Wishes,
}

/// An endpoint in a table.
#[derive(Clone)]
pub(super) struct EndpointRef(pub(super) Arc<Endpoint>);

impl PartialEq for EndpointRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl_has_work! {
    impl HasWork<Self> for Endpoint { self.work }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Endpoint {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for Endpoint {
    type Pointer<'a> = Arc<Self>;

    fn run(this: ArcBorrow<'_, Self>, _: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        this.late.store(true, Release);
        Arc::from(this).enqueue();
        HrTimerRestart::NoRestart
    }
}

impl Watch for Endpoint {
    fn changed(this: ArcBorrow<'_, Self>) {
        Arc::from(this).enqueue();
    }
}

impl Endpoint {
    /// Returns an endpoint without a socket.
    pub(super) fn new(connections: &Arc<Connections>) -> Result<Arc<Self>> {
        Self::with_state(connections, State::Idle)
    }

    /// Returns an endpoint that is about to connect. It has not ended.
    pub(super) fn reserved(connections: &Arc<Connections>) -> Result<Arc<Self>> {
        Self::with_state(connections, State::Reserved)
    }

    fn with_state(connections: &Arc<Connections>, state: State) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                connections: connections.clone(),
                state <- new_mutex!(state, "vrnic::iwarp::Endpoint"),
                work <- new_work!("vrnic::iwarp::Endpoint"),
                timer <- HrTimer::new(),
                late: Atomic::new(false),
                observer <- new_mutex!(None, "vrnic::iwarp::Endpoint::observer"),
                told: Atomic::new(true),
            }),
            GFP_KERNEL,
        )
    }

    /// Schedules the work item, which checks the endpoint. Can be called in any context.
    pub(super) fn enqueue(self: &Arc<Self>) {
        let _ = self.connections.queue.enqueue(self.clone());
    }

    /// Starts to connect, unless the endpoint was closed after its creation. The reply is reported
    /// later.
    pub(super) fn connect(
        self: &Arc<Self>,
        netdev: NetdevRef,
        id: CmId<Connects>,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Connects>> {
        let mut state = self.state.lock();
        let dialed = Wishes::new(param, self.connections.max_depth)
            .and_then(|wishes| Ok((self.dial(&state, &netdev, &id)?, wishes)));
        let (socket, wishes) = match dialed {
            Ok(dialed) => dialed,
            Err(error) => return Err(Refused { id, error }),
        };
        *state = State::Connecting(Connecting { socket, netdev, id, wishes });
        drop(state);
        self.enqueue();
        Ok(())
    }

    /// Returns a socket that connects, unless the endpoint was closed after its creation.
    fn dial(
        self: &Arc<Self>,
        state: &State,
        netdev: &NetdevRef,
        id: &CmId<Connects>,
    ) -> Result<Socket<Self>> {
        if !matches!(state, State::Reserved) {
            return Err(ECONNABORTED);
        }
        let names = (id.local(), id.remote());
        Socket::connect(netdev, (&names.0, &names.1), id.tos(), self.clone())
    }

    /// Returns whether the owner gets no more events.
    pub(super) fn has_ended(&self) -> bool {
        match &*self.state.lock() {
            State::Idle => true,
            State::Taken(taken) => taken.has_ended(),
            _ => false,
        }
    }

    /// Reports the last events to the owner. A connection that the adapter has taken over keeps its
    /// socket.
    pub(super) fn close(&self) {
        self.end(&mut self.state.lock());
    }

    /// Reports the last events to the owner, and closes the socket.
    pub(super) fn release(&self) {
        let old = {
            let mut state = self.state.lock();
            self.end(&mut state);
            core::mem::replace(&mut *state, State::Idle)
        };
        drop(old);
        // This waits for a call of the observer. None follows.
        let observer = self.observer.lock().take();
        drop(observer);
    }

    fn end(&self, state: &mut State) {
        match state {
            State::Reserved => *state = State::Idle,
            State::Connecting(_) => self.fail(state, ECONNABORTED),
            State::Taken(taken) => taken.end(),
            State::Idle | State::Requesting(_) | State::Offered(_) => {}
        }
    }

    /// Reports to the owner that the connection could not be made.
    fn fail(&self, state: &mut State, error: Error) {
        if let State::Connecting(connecting) = core::mem::replace(state, State::Idle) {
            let id = connecting.id;
            let names = (id.local(), id.remote());
            id.refuse(error, &names, &[]);
        }
    }

    /// Hands the connection of a socket over to the adapter. If that fails, the socket keeps the
    /// connection.
    fn hand_over(
        &self,
        socket: &Socket<Self>,
        netdev: &NetdevRef,
        opening: &Opening<'_>,
    ) -> Result<Snapshot> {
        let card = self.connections.card.as_ref().unwrap_or(netdev);
        let snapshot = socket.take(netdev, card)?;
        let commands = &self.connections.commands;
        commands.open(opening, &snapshot).inspect_err(|_| socket.give_back())?;
        Ok(snapshot)
    }

    /// Hands the connection over to the adapter if the socket has established it.
    fn open(&self, state: &mut State) -> Result {
        let State::Connecting(connecting) = &*state else { return Ok(()) };
        if connecting.socket.progress()? == Progress::Connecting {
            return Ok(());
        }
        let names = KBox::new(connecting.socket.names()?, GFP_KERNEL)?;
        let opening = connecting.wishes.opening(None);
        let snapshot = self.hand_over(&connecting.socket, &connecting.netdev, &opening)?;
        if snapshot.own {
            self.greet(connecting)?;
        }
        if let State::Connecting(connecting) = core::mem::replace(state, State::Idle) {
            let Connecting { socket, netdev, id, wishes } = connecting;
            let taken = Connection::initiated(wishes.qpn, netdev, socket, snapshot, id, names);
            *state = State::Taken(taken);
        }
        Ok(())
    }

    /// If the guest connects to itself, sends the request to the other end, which is a socket of
    /// the kernel. The adapter has sent the same bytes, but they do not arrive there. When the
    /// owner of the other end has accepted the request, the adapter takes that end over, with a
    /// sequence number after these bytes.
    fn greet(&self, connecting: &Connecting) -> Result {
        let Wishes { qpn, depths, private } = &connecting.wishes;
        let greeted =
            start::request(*depths, private).and_then(|request| connecting.socket.greet(&request));
        greeted.inspect_err(|_| {
            let _ = self.connections.commands.abort(*qpn);
        })
    }

    /// Checks the endpoint at once. If its lock is taken, the work item checks it: the holder of
    /// the lock may be waiting for the adapter.
    pub(super) fn check_or_enqueue(self: &Arc<Self>) {
        match self.state.try_lock() {
            Some(mut state) => self.check(&mut state),
            None => return self.enqueue(),
        }
        self.tell();
    }

    /// Checks the socket and the state of the connection in the adapter, and acts on what has
    /// changed.
    fn check(self: &Arc<Self>, state: &mut State) {
        if self.connections.is_over() {
            self.end(state);
        }
        if let Err(error) = self.read(state) {
            // A connection in another state stays. Only one that waits for its request is closed.
            if let State::Requesting(requesting) = core::mem::replace(state, State::Idle) {
                requesting.listener.leave(self);
            }
            pr_debug!("a connection without a request is closed: {error:?}\n");
        }
        self.give_up(state);
        if let Err(error) = self.open(state) {
            self.fail(state, error);
        }
        // A dead adapter cannot answer, and each command would wait until it is quiet. `died`
        // notifies the owner.
        if self.connections.commands.liveness.is_dead() {
            return;
        }
        if let State::Taken(taken) = state {
            if let Err(error) = self.ask(taken) {
                self.abandon_taken(taken, error);
            }
        }
    }

    /// Tells the adapter the MACs of the connection's frames, if they have changed.
    pub(super) fn follow_path(&self) {
        let mut state = self.state.lock();
        let State::Taken(taken) = &mut *state else { return };
        let Some(macs) = taken.other_macs(self.connections.card.as_ref()) else { return };
        match self.connections.commands.relocate(taken.qpn, macs) {
            Ok(()) => taken.set_macs(macs),
            Err(error) => pr_debug!("a connection keeps its MACs: {error:?}\n"),
        }
    }

    /// Queries the state of the connection in the adapter, and reports changes to the owner.
    fn ask(self: &Arc<Self>, taken: &mut Connection<Self>) -> Result {
        let commands = &self.connections.commands;
        if !taken.has_ended() && taken.was_touched() {
            taken.take_rejection()?;
            commands.abort(taken.qpn)?;
        }
        let status = commands.query(taken.qpn)?;
        taken.follow(&status)?;
        if self.press(taken, &status)? {
            let status = commands.query(taken.qpn)?;
            if taken.saw(&status) {
                self.told.store(false, Release);
            }
            taken.follow(&status)?;
        }
        Ok(())
    }

    /// Ends a connection whose state cannot be reported to its owner: the QP must not stay
    /// connected when the owner is notified that the connection has ended.
    fn abandon_taken(&self, taken: &mut Connection<Self>, error: Error) {
        // After the last event, another QP may have the number.
        if taken.has_ended() {
            return;
        }
        pr_debug!("a connection is given up: {error:?}\n");
        if let Err(error) = self.connections.commands.abort(taken.qpn) {
            pr_debug!("the adapter does not abort a connection: {error:?}\n");
        }
        taken.end();
    }
}

impl WorkItem for Endpoint {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.check(&mut this.state.lock());
        this.tell();
    }
}

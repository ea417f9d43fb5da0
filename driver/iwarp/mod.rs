// SPDX-License-Identifier: GPL-2.0
//! The connection manager of iWARP adapters. It makes connections with sockets of the kernel. The
//! adapter takes a connection over before the start frames of MPA are exchanged; only the request
//! that a responder gets is still read from the socket. Safe code, except [`socket`].
//!
//! | module | what it does |
//! | --- | --- |
//! | [`endpoint`] | one end of a connection, from the socket to the last event |
//! | [`connection`] | a connection that the adapter has; the events that must still be reported to its owner |
//! | [`listener`] | listeners, and the connections that they accept |
//! | [`requests`] | the requests that a listener's owner has, and those that wait |
//! | [`socket`] | TCP sockets of the kernel, from which connections are taken over |
//! | [`start`] | the start frames that pass through a socket |
//! | [`start_fields`] | the fields of these frames |
//! | [`commands`] | the admin commands |
//! | [`owner`] | what ends connections, and keeps them, until the device has gone |
//!
//! Each endpoint has a work item, which checks the endpoint's socket and the state of the
//! connection in the adapter. [`Connections`] has a work item that does so for all endpoints when
//! the adapter dies. Calls of the core change an endpoint under the same lock as its work item.
//!
//! Locks are taken in this order: the endpoint's, its listener's, the lock of the commands, that of
//! a socket. No lock is taken while a table of endpoints is locked.

mod commands;
mod connection;
mod endpoint;
mod listener;
mod owner;
mod requests;
mod socket;
mod start;
mod start_fields;

pub(crate) use self::{
    commands::Start,
    owner::{Ending, Kept, Owner},
    socket::{ClientSocket, Lender}, //
};

use abi::{
    Qpn,
    connection::{Closed, Closing, ConnectionStatus}, //
};
use kernel::{
    device, impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        Arc, Mutex,
        atomic::{Acquire, Atomic, Relaxed, Release},
    },
    time::{Delta, delay::fsleep},
    workqueue::{Work, WorkItem},
};

use self::{
    commands::Commands,
    endpoint::{Endpoint, EndpointRef},
    listener::Listener,
};
use crate::{
    listeners::{ConnectionEvents, LinkTable},
    quiesce::Liveness,
    rdma::{
        iwcm::{Accepts, CmId, ConnParam, Connects, Identity, Listens, Offer, Refused},
        port::netdev::NetdevRef,
    },
    workqueue::OwnQueue,
};

/// An object that is told of each change of a connection.
pub(crate) trait Observer: Send + Sync {
    /// Called when the state or the events of the connection have changed. May sleep, and may ask
    /// for the state; must not name another observer.
    fn changed(&self);
}

/// Returns the error for callers that name a QP whose state does not allow the command.
fn without_connection(error: Error) -> Error {
    if error == EINVAL { ENOTCONN } else { error }
}

/// The connections and listeners of an RDMA device.
#[pin_data]
pub(crate) struct Connections {
    #[pin]
    commands: Commands,
    queue: Arc<OwnQueue>,
    /// The network card, if these are connections of an Ethernet device on top of it.
    card: Option<NetdevRef>,
    /// READs that a connection may have, of either kind.
    max_depth: u8,
    /// The endpoints that have a queue pair.
    #[pin]
    endpoints: LinkTable<Qpn, EndpointRef>,
    /// The endpoints whose owner has got a request and has not answered it.
    #[pin]
    offers: LinkTable<u32, EndpointRef>,
    next_offer: Atomic<u32>,
    #[pin]
    listeners: Mutex<KVec<Arc<Listener>>>,
    /// True when no new connections may be made.
    over: Atomic<bool>,
    /// Checks all endpoints.
    #[pin]
    work: Work<Self, CHECK>,
    /// Compares the MACs of all connections with those that the adapter knows.
    #[pin]
    paths: Work<Self, PATHS>,
}

/// The work items of [`Connections`].
const CHECK: u64 = 0;
const PATHS: u64 = 1;

/// The shortest time between two comparisons of the MACs of all connections, whatever neighbours
/// do. Each takes a few milliseconds for thousands of connections.
const PATHS_PAUSE: Delta = Delta::from_millis(50);

impl_has_work! {
    impl HasWork<Self, CHECK> for Connections { self.work }
    impl HasWork<Self, PATHS> for Connections { self.paths }
}

impl WorkItem<CHECK> for Connections {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.look_at_all();
    }
}

impl WorkItem<PATHS> for Connections {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut last = None;
        while let Some((qpn, endpoint)) = this.endpoints.next(last).filter(|_| !this.is_over()) {
            endpoint.0.follow_path();
            last = Some(qpn);
        }
        if last.is_some() {
            fsleep(PATHS_PAUSE);
        }
    }
}

impl Connections {
    /// Returns an empty table of connections. `max_depth` is the number of READs that a connection
    /// may have, and `card` the network card if the RDMA device belongs to an Ethernet device on
    /// top of it.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        liveness: Arc<Liveness>,
        max_depth: u8,
        card: Option<NetdevRef>,
    ) -> Result<Arc<Self>> {
        let commands = Commands::new(device, liveness)?;
        let queue = OwnQueue::new(c"vrnic_iwarp")?;
        Arc::pin_init(
            try_pin_init!(Self {
                commands <- commands,
                queue,
                card,
                max_depth,
                endpoints <- LinkTable::new(),
                offers <- LinkTable::new(),
                next_offer: Atomic::new(1),
                listeners <- new_mutex!(KVec::new(), "vrnic::iwarp::Connections"),
                over: Atomic::new(false),
                work <- new_work!("vrnic::iwarp::Connections"),
                paths <- new_work!("vrnic::iwarp::Connections::paths"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether connections end because the device is being removed or the adapter has died.
    fn is_over(&self) -> bool {
        self.over.load(Acquire) || self.commands.liveness.is_dead()
    }

    /// Ends all connections because the device is being removed. Their owners get events.
    pub(crate) fn end(&self) {
        self.over.store(true, Release);
        self.look_at_all();
        self.queue.flush();
    }

    /// Frees the endpoints that are left in the tables, and waits for work items. Must be called
    /// once, after the device has been removed.
    pub(crate) fn clear(&self) {
        while let Some((offer, endpoint)) = self.offers.next(None) {
            self.offers.remove(offer, &endpoint);
            endpoint.0.release();
        }
        while let Some((qpn, endpoint)) = self.endpoints.next(None) {
            endpoint.0.release();
            self.endpoints.remove(qpn, &endpoint);
        }
        self.queue.flush();
    }

    /// Checks all endpoints, one after the other.
    fn look_at_all(&self) {
        let mut last = None;
        while let Some((qpn, endpoint)) = self.endpoints.next(last) {
            endpoint.0.check_or_enqueue();
            last = Some(qpn);
        }
    }

    /// Connects a QP; see [`crate::rdma::iwcm::IwOperations::connect`].
    pub(crate) fn connect(
        self: &Arc<Self>,
        netdev: NetdevRef,
        id: CmId<Connects>,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Connects>> {
        let qpn = Qpn::from(param.qpn);
        match self.reserve(qpn) {
            Ok(endpoint) => {
                endpoint.connect(netdev, id, param).inspect_err(|_| self.forget(qpn, &endpoint))
            }
            Err(error) => Err(Refused { id, error }),
        }
    }

    /// Hands the connection of a lent socket over to a TOE QP.
    ///
    /// # Errors
    ///
    /// `EISCONN` if the QP has a connection, and those of [`socket::Socket::hold`]. The socket then
    /// keeps its connection.
    pub(crate) fn lend(
        self: &Arc<Self>,
        device: &device::Device<device::Bound>,
        netdev: NetdevRef,
        qpn: Qpn,
        lender: &Lender<'_>,
    ) -> Result {
        let endpoint = self.reserve(qpn)?;
        let lent = endpoint.lend(device, netdev, qpn, lender);
        lent.inspect_err(|_| self.forget(qpn, &endpoint))
    }

    /// Begins to move the connection of a TOE QP to another QP, which is its owner from then on.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the first one has no connection, `EISCONN` if the other one has one. Both are
    /// as before then.
    pub(crate) fn start(&self, start: &Start<'_>) -> Result {
        let endpoint = self.endpoints.get(start.from).ok_or(ENOTCONN)?;
        self.replace(start.to, &endpoint.0)?;
        let started = endpoint.0.start(start);
        // The other one of the two entries keeps the endpoint.
        let left = if started.is_ok() { start.from } else { start.to };
        self.endpoints.remove(left, &endpoint);
        started
    }

    /// Returns the state of a QP's connection.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it has none, and had none.
    pub(crate) fn state(&self, qpn: Qpn) -> Result<KBox<ConnectionStatus>> {
        self.commands.query(qpn).map_err(without_connection)
    }

    /// Names the observer of a QP's connection, or none.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it has no connection, and had none.
    pub(crate) fn observe(&self, qpn: Qpn, observer: Option<Arc<dyn Observer>>) -> Result {
        self.endpoints.get(qpn).ok_or(ENOTCONN)?.0.observe(observer);
        Ok(())
    }

    /// Ends the connection of a QP, or makes the QP idle. A graceful end that takes longer than
    /// `limit` is an abortive one.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it has no connection, or none in a state in which this is possible; `EBUSY`
    /// for a graceful end with outstanding work requests.
    pub(crate) fn end_one(&self, qpn: Qpn, how: Closing, limit: Option<Delta>) -> Result<Closed> {
        let endpoint = self.endpoints.get(qpn).ok_or(ENOTCONN)?.0;
        let closed = match how {
            Closing::Graceful | Closing::Abortive => endpoint.disconnect(how, limit),
            Closing::Release => endpoint.leave(),
            Closing::Idle | Closing::IdleNow => endpoint.rest(how),
        };
        closed.map_err(without_connection)
    }

    /// Limits the time in which a connection with messages must be closed. Its owner has closed it.
    pub(crate) fn closes(&self, qpn: Qpn) {
        if let Some(endpoint) = self.endpoints.get(qpn) {
            endpoint.0.closes();
        }
    }

    /// Returns a new endpoint for a QP that is about to connect.
    fn reserve(self: &Arc<Self>, qpn: Qpn) -> Result<Arc<Endpoint>> {
        if self.is_over() {
            return Err(ENODEV);
        }
        let endpoint = Endpoint::reserved(self)?;
        self.replace(qpn, &endpoint)?;
        Ok(endpoint)
    }

    /// Accepts a request; see [`crate::rdma::iwcm::IwOperations::accept`].
    pub(crate) fn accept(
        &self,
        netdev: &NetdevRef,
        id: CmId<Accepts>,
        offer: Offer,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Accepts>> {
        let qpn = Qpn::from(param.qpn);
        let endpoint = self.take_offer(offer).and_then(|endpoint| {
            self.replace(qpn, &endpoint).inspect_err(|_| endpoint.release())?;
            Ok(endpoint)
        });
        match endpoint {
            Ok(endpoint) => {
                endpoint.accept(netdev, id, param).inspect_err(|_| self.forget(qpn, &endpoint))
            }
            Err(error) => Err(Refused { id, error }),
        }
    }

    /// Rejects a request.
    pub(crate) fn reject(&self, offer: Offer, private: &[u8]) -> Result {
        self.take_offer(offer)?.reject(private);
        Ok(())
    }

    /// Creates a listener.
    pub(crate) fn listen(
        self: &Arc<Self>,
        netdev: NetdevRef,
        id: CmId<Listens>,
        backlog: i32,
    ) -> Result {
        if self.is_over() {
            return Err(ENODEV);
        }
        let listener = Listener::new(self, netdev, id, backlog)?;
        let result = self.listeners.lock().push(listener.clone(), GFP_KERNEL);
        result.inspect_err(|_| listener.end())?;
        Ok(())
    }

    /// Makes all listeners check their network devices: a VLAN was added or removed, or a device
    /// has moved to another network namespace. May sleep.
    pub(crate) fn check_listeners(&self) {
        self.listeners.lock().iter().for_each(Listener::enqueue);
    }

    /// Ends a listener.
    pub(crate) fn stop_listening(&self, id: Identity) -> Result {
        let listener = {
            let mut listeners = self.listeners.lock();
            let place = listeners.iter().position(|listener| listener.identity() == id);
            listeners.remove(place.ok_or(ENOENT)?).map_err(|_| ENOENT)?
        };
        listener.end();
        Ok(())
    }

    /// Ends the connection of a QP that is about to be destroyed, and reports the last event to its
    /// owner. The socket is kept until [`Detached`] is dropped.
    pub(crate) fn close(&self, qpn: Qpn) {
        if let Some(endpoint) = self.endpoints.get(qpn) {
            endpoint.0.close();
        }
    }

    /// Removes the closed connection of a QP that is about to be destroyed. After that, another QP
    /// that connects may get the number at once.
    pub(crate) fn detach(&self, qpn: Qpn) -> Detached {
        let endpoint = self.endpoints.get(qpn);
        if let Some(endpoint) = &endpoint {
            self.endpoints.remove(qpn, endpoint);
        }
        Detached(endpoint)
    }

    /// Makes `endpoint` the endpoint of a QP, in place of an endpoint that has ended.
    fn replace(&self, qpn: Qpn, endpoint: &Arc<Endpoint>) -> Result {
        let old = self.endpoints.get(qpn);
        if let Some(old) = &old {
            if !old.0.has_ended() {
                return Err(EISCONN);
            }
            // The endpoint must be released first; see `forget`.
            old.0.release();
        }
        // Another call may have replaced the endpoint first.
        let replaced = self.endpoints.replace(qpn, old.as_ref(), EndpointRef(endpoint.clone()))?;
        if replaced { Ok(()) } else { Err(EISCONN) }
    }

    fn forget(&self, qpn: Qpn, endpoint: &Arc<Endpoint>) {
        // This must come first, because an object that is found in the table may be dropped in an
        // interrupt.
        endpoint.release();
        self.endpoints.remove(qpn, &EndpointRef(endpoint.clone()));
    }

    /// Gives a number to an endpoint whose request is reported to its owner.
    fn add_offer(&self, endpoint: &Arc<Endpoint>) -> Result<Offer> {
        let number = self.next_offer.fetch_add(1, Relaxed);
        self.offers.add(number, EndpointRef(endpoint.clone()))?;
        Ok(Offer(number as usize))
    }

    fn take_offer(&self, offer: Offer) -> Result<Arc<Endpoint>> {
        let number = u32::try_from(offer.0)?;
        let endpoint = self.offers.get(number).ok_or(ENOENT)?;
        self.offers.remove(number, &endpoint);
        Ok(endpoint.0)
    }
}

/// The connection of a QP that is being destroyed. It must be dropped when the adapter no longer
/// has the connection: until then the socket keeps its addresses from others.
pub(crate) struct Detached(Option<EndpointRef>);

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.0 {
            endpoint.0.release();
        }
    }
}

impl ConnectionEvents for Connections {
    fn changed(&self, qpn: Qpn) {
        if let Some(endpoint) = self.endpoints.get(qpn) {
            endpoint.0.enqueue();
        }
    }

    fn rerouted(self: Arc<Self>) {
        let _ = self.queue.enqueue::<Arc<Self>, PATHS>(self.clone());
    }

    fn died(self: Arc<Self>) {
        let _ = self.queue.enqueue::<Arc<Self>, CHECK>(self.clone());
    }
}

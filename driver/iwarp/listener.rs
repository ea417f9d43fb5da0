// SPDX-License-Identifier: GPL-2.0
//! Listeners.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex},
    time::{Delta, Instant, Monotonic},
    workqueue::{Work, WorkItem},
};

use super::{
    Connections,
    endpoint::{Acceptor, Endpoint, Ticket},
    requests::Requests,
    socket::{Accepted, LOOPBACK, Socket, Watch},
};
use crate::rdma::{
    iwcm::{CmId, ConnRequest, Identity, Listens},
    port::netdev::NetdevRef,
};

/// Number of connections of a listener that may wait for their request, or until the owner gets it.
/// A listener with a larger backlog may have as many as its backlog. Further connections wait in
/// the kernel.
const PENDING_MIN: usize = 64;
/// Maximum number of connections of a listener that may wait for their request.
const PENDING_MAX: usize = 1024;
/// The time that each connection has for its request when others wait in the kernel.
const REQUEST_TIME: Delta = Delta::from_millis(500);

#[pin_data]
pub(super) struct Listener {
    connections: Arc<Connections>,
    identity: Identity,
    #[pin]
    state: Mutex<Option<Listening>>,
    #[pin]
    work: Work<Self>,
}

/// The parts of a listener that has not been ended.
struct Listening {
    netdev: NetdevRef,
    id: CmId<Listens>,
    backlog: i32,
    /// The sockets with the numbers of their network devices, in ascending order.
    sockets: KVec<(i32, Socket<Listener>)>,
    /// True if a socket could not be made. This was logged.
    incomplete: bool,
    /// The connections whose request has not arrived, the oldest first.
    pending: KVec<Pending>,
    requests: Requests,
}

impl_has_work! {
    impl HasWork<Self> for Listener { self.work }
}

impl Watch for Listener {
    fn changed(this: ArcBorrow<'_, Self>) {
        let _ = this.connections.queue.enqueue(Arc::from(this));
    }
}

impl Listener {
    /// Listens at the address of `id`.
    pub(super) fn new(
        connections: &Arc<Connections>,
        netdev: NetdevRef,
        id: CmId<Listens>,
        backlog: i32,
    ) -> Result<Arc<Self>> {
        let identity = id.identity();
        let this = Arc::pin_init(
            pin_init!(Self {
                connections: connections.clone(),
                identity,
                state <- new_mutex!(None, "vrnic::iwarp::Listener"),
                work <- new_work!("vrnic::iwarp::Listener"),
            }),
            GFP_KERNEL,
        )?;
        let (sockets, pending) = (KVec::new(), KVec::new());
        let (incomplete, requests) = (false, Requests::new(backlog));
        let mut listening =
            Listening { netdev, id, backlog, sockets, incomplete, pending, requests };
        listening.follow(&this)?;
        *this.state.lock() = Some(listening);
        this.enqueue();
        Ok(this)
    }

    /// Schedules the work item, which checks the listener. Can be called in any context.
    pub(super) fn enqueue(self: &Arc<Self>) {
        let _ = self.connections.queue.enqueue(self.clone());
    }

    /// Returns the identity of the listener's identifier.
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Ends the listener. After the return the owner gets no more requests.
    pub(super) fn end(&self) {
        let Some(listening) = self.state.lock().take() else { return };
        drop(listening.sockets);
        for pending in listening.pending {
            pending.endpoint.abandon();
        }
        for endpoint in listening.requests.into_waiting() {
            endpoint.abandon();
        }
    }

    /// Changes the lists of a listener that has not been ended, and schedules the endpoint whose
    /// request the owner can get after that.
    fn change<R>(&self, change: impl FnOnce(&mut Listening) -> R) -> Option<R> {
        let (changed, next) = {
            let mut state = self.state.lock();
            let Some(listening) = &mut *state else { return None };
            (change(listening), listening.requests.next())
        };
        if let Some(next) = next {
            next.enqueue();
        }
        Some(changed)
    }

    /// Accepts one connection, if a connection and room for it exist. Returns whether this was the
    /// case.
    fn accept(self: &Arc<Self>) -> Result<bool> {
        let Some(Arrival { accepted, endpoint, displaced }) = self.take()? else {
            return Ok(false);
        };
        if let Some(displaced) = displaced {
            displaced.abandon();
            // Its request may have arrived meanwhile, and wait.
            self.clone().leave(&displaced);
        }
        let served = endpoint.serve(accepted, self.clone());
        served.inspect_err(|_| self.clone().leave(&endpoint))?;
        if self.state.lock().is_some() {
            endpoint.enqueue()
        } else {
            // The listener may have ended before the endpoint had its socket.
            endpoint.abandon()
        }
        Ok(true)
    }

    /// Accepts one connection, if a connection and room for it exist, and creates its endpoint. The
    /// endpoint must be in the list before it gets a notification, because its request may arrive
    /// at once. If there is no room, the oldest connection without a request makes room after
    /// [`REQUEST_TIME`], so that clients which send no request do not keep others away.
    fn take(&self) -> Result<Option<Arrival>> {
        let mut state = self.state.lock();
        let Some(listening) = &mut *state else { return Ok(None) };
        let pending = listening.pending.len() + listening.requests.waiting();
        let is_full = pending >= listening.max_pending();
        let oldest = listening.pending.first();
        if is_full && oldest.is_none_or(|oldest| oldest.since.elapsed() < REQUEST_TIME) {
            return Ok(None);
        }
        let Some(accepted) = listening.next() else { return Ok(None) };
        let endpoint = Endpoint::new(&self.connections)?;
        let displaced = if is_full { listening.pending.remove(0).ok() } else { None };
        let pending = Pending { endpoint: endpoint.clone(), since: Instant::now() };
        listening.pending.push(pending, GFP_KERNEL)?;
        Ok(Some(Arrival { accepted, endpoint, displaced: displaced.map(|old| old.endpoint) }))
    }
}

/// A connection whose request has not arrived.
struct Pending {
    endpoint: Arc<Endpoint>,
    /// When it was accepted.
    since: Instant<Monotonic>,
}

/// A connection that has arrived.
struct Arrival {
    accepted: Accepted,
    endpoint: Arc<Endpoint>,
    /// The waiting connection that makes room for this connection.
    displaced: Option<Arc<Endpoint>>,
}

impl Listening {
    /// Returns the number of connections that may wait.
    fn max_pending(&self) -> usize {
        usize::try_from(self.backlog).unwrap_or(0).clamp(PENDING_MIN, PENDING_MAX)
    }

    /// Removes a connection from those whose request has not arrived.
    fn forget(&mut self, endpoint: &Endpoint) {
        self.pending.retain(|other| !core::ptr::eq(&*other.endpoint, endpoint));
    }

    /// Listens on network devices that have appeared, and stops listening on devices that have been
    /// removed. A socket that the guest has ended (`ss -K`) is replaced. A failure on the loopback
    /// device is ignored, because another adapter's listener may have the port there.
    fn follow(&mut self, listener: &Arc<Listener>) -> Result {
        let (mut result, mut sockets, mut last) = (Ok(()), KVec::new(), -1);
        while let Some(device) = Socket::<Listener>::next_device(&self.netdev, &self.id, last) {
            let old = self.sockets.iter().position(|(other, _)| *other == device);
            let old = old.and_then(|place| self.sockets.remove(place).ok());
            let socket = match old.filter(|(_, socket)| socket.listens()) {
                Some((_, socket)) => Ok(socket),
                None => self.socket(device, listener),
            };
            let added = socket.and_then(|socket| Ok(sockets.push((device, socket), GFP_KERNEL)?));
            if device != LOOPBACK {
                result = result.and(added);
            }
            last = device;
        }
        self.sockets = sockets;
        result
    }

    /// Calls [`Self::follow`], and logs a message if it fails for the first time. This runs for
    /// each connection that arrives.
    fn keep_up(&mut self, listener: &Arc<Listener>) {
        let followed = self.follow(listener);
        if let (Err(error), false) = (followed, self.incomplete) {
            pr_warn!("a listener cannot listen on all its network devices: {error:?}\n");
        }
        self.incomplete = followed.is_err();
    }

    fn socket(&self, device: i32, listener: &Arc<Listener>) -> Result<Socket<Listener>> {
        Socket::listen(&self.netdev, device, &self.id, self.backlog, listener.clone())
    }

    /// Accepts one connection, if there is one. If one socket cannot accept, because the guest has
    /// ended it or memory is short, the connections of the other sockets are still accepted.
    fn next(&self) -> Option<Accepted> {
        self.sockets.iter().find_map(|(_, socket)| socket.accept().ok().flatten())
    }
}

impl Acceptor for Listener {
    fn request(&self, request: &ConnRequest<'_>) -> Result {
        self.state.lock().as_ref().ok_or(ECONNABORTED)?.id.request(request)
    }

    fn admit(self: Arc<Self>, endpoint: &Arc<Endpoint>) -> Option<Ticket> {
        let admitted = self.change(|listening| {
            listening.forget(endpoint);
            listening.requests.admit(endpoint)
        });
        if admitted == Some(false) {
            return None;
        }
        self.enqueue();
        Some(Ticket::new(self))
    }

    fn answered(&self) {
        self.change(|listening| listening.requests.answered());
    }

    fn leave(self: Arc<Self>, endpoint: &Endpoint) {
        self.change(|listening| {
            listening.forget(endpoint);
            listening.requests.leave(endpoint);
        });
        self.enqueue();
    }
}

impl WorkItem for Listener {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        match &mut *this.state.lock() {
            Some(listening) => listening.keep_up(&this),
            None => return,
        }
        // A connection that cannot be served is closed, and the next one is taken.
        while !matches!(this.accept(), Ok(false)) {}
    }
}

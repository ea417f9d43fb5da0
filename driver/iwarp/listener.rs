// SPDX-License-Identifier: GPL-2.0
//! Listeners.

use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{Arc, ArcBorrow, Mutex},
    workqueue::{Work, WorkItem},
};

use super::{
    Connections,
    endpoint::{Acceptor, Endpoint},
};
use crate::rdma::{
    iwcm::{CmId, Event, Identity},
    netdev::NetdevRef,
    socket::{Socket, Watch},
};

/// Most connections of a listener whose request has not come. The others wait in the kernel.
const PENDING_MAX: usize = 64;

/// A listener.
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
    socket: Socket<Listener>,
    id: CmId,
    /// Those whose request has not come.
    pending: KVec<Arc<Endpoint>>,
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
        netdev: &NetdevRef,
        id: CmId,
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
        let socket = Socket::listen(netdev, &id.local(), id.v6only(), backlog, this.clone())?;
        *this.state.lock() = Some(Listening { socket, id, pending: KVec::new() });
        this.enqueue();
        Ok(this)
    }

    fn enqueue(self: &Arc<Self>) {
        let _ = self.connections.queue.enqueue(self.clone());
    }

    /// Returns the identity of its identifier.
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Ends it. On return its owner is told of no more requests.
    pub(super) fn end(&self) {
        let Some(listening) = self.state.lock().take() else { return };
        drop(listening.socket);
        for endpoint in listening.pending {
            endpoint.release();
        }
    }

    /// Accepts one connection, if there is one and room for it. Returns whether there was.
    fn accept(self: &Arc<Self>) -> Result<bool> {
        let accepted = {
            let state = self.state.lock();
            let Some(listening) = &*state else { return Ok(false) };
            if listening.pending.len() >= PENDING_MAX {
                return Ok(false);
            }
            listening.socket.accept()?
        };
        let Some(accepted) = accepted else { return Ok(false) };
        let endpoint = Endpoint::new(&self.connections)?;
        endpoint.serve(accepted, self.clone())?;
        let added = match &mut *self.state.lock() {
            Some(listening) => listening.pending.push(endpoint.clone(), GFP_KERNEL).is_ok(),
            None => false,
        };
        if added {
            endpoint.enqueue()
        } else {
            endpoint.release()
        }
        Ok(true)
    }
}

impl Acceptor for Listener {
    fn report(&self, event: &Event<'_>) -> Result {
        self.state.lock().as_ref().ok_or(ECONNABORTED)?.id.report(event)
    }

    fn leave(self: Arc<Self>, endpoint: &Endpoint) {
        if let Some(listening) = &mut *self.state.lock() {
            listening.pending.retain(|other| !core::ptr::eq(&**other, endpoint));
        }
        self.enqueue();
    }
}

impl WorkItem for Listener {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // A connection that cannot be served is closed, and the next one is taken.
        while !matches!(this.accept(), Ok(false)) {}
    }
}

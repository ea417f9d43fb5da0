// SPDX-License-Identifier: GPL-2.0
//! The connection manager: one line each, to [`crate::iwarp`]; references to queue pairs.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Acquire, Atomic, Full, Release},
    },
    time::{Delta, delay::fsleep},
};

use super::{Ctx, Verbs};
use crate::{
    iwarp::Connections,
    pairing::PORT,
    rdma::{
        Device,
        event::QpLink,
        iwcm::{Accepts, CmId, ConnParam, Connects, Identity, IwOperations, Listens, Offer},
        netdev::NetdevRef,
        qp::Qp,
    },
};

/// Set in [`References`] while the queue pair is being destroyed.
const ENDED: u32 = 1 << 31;
/// The time between two looks for the end of the last reference.
const POLL: Delta = Delta::from_micros(100);

/// The number of references to a queue pair that the connection manager has.
pub(super) struct References(Atomic<u32>);

impl References {
    /// None yet.
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    fn take(&self) -> bool {
        let before = self.0.fetch_add(1, Full);
        if before & ENDED != 0 {
            self.0.fetch_sub(1, Release);
        }
        before & ENDED == 0
    }

    fn give_back(&self) {
        self.0.fetch_sub(1, Release);
    }

    /// Allows no more references, and waits until all have been given back. It calls `close`
    /// repeatedly, because a task that has a reference may be about to connect.
    pub(super) fn end(&self, close: impl Fn()) {
        self.0.fetch_add(ENDED, Full);
        loop {
            close();
            if self.0.load(Acquire) == ENDED {
                return;
            }
            fsleep(POLL);
        }
    }

    /// Allows references again.
    pub(super) fn resume(&self) {
        self.0.fetch_sub(ENDED, Release);
    }
}

/// Returns the Ethernet device of connections.
fn netdev(device: &Device<Verbs>) -> Result<NetdevRef> {
    device.netdev(PORT).ok_or(ENODEV)
}

fn connections<'a>(ctx: &'a Ctx<'_>) -> Result<&'a Arc<Connections>> {
    ctx.connections().ok_or(EOPNOTSUPP)
}

impl IwOperations for Verbs {
    fn connect(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        id: CmId<Connects>,
        param: &ConnParam<'_>,
    ) -> Result {
        connections(ctx)?.connect(netdev(device)?, id, param)
    }

    fn accept(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        id: CmId<Accepts>,
        offer: Offer,
        param: &ConnParam<'_>,
    ) -> Result {
        connections(ctx)?.accept(&netdev(device)?, id, offer, param)
    }

    fn reject(ctx: &Ctx<'_>, offer: Offer, private: &[u8]) -> Result {
        connections(ctx)?.reject(offer, private)
    }

    fn create_listen(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        id: CmId<Listens>,
        backlog: i32,
    ) -> Result {
        connections(ctx)?.listen(netdev(device)?, id, backlog)
    }

    fn destroy_listen(ctx: &Ctx<'_>, id: Identity) -> Result {
        connections(ctx)?.stop_listening(id)
    }

    fn get_qp(ctx: &Ctx<'_>, number: u32) -> Option<QpLink> {
        ctx.adapter.find_qp(number.into())
    }

    fn add_ref(qp: &Qp<Self>) -> bool {
        qp.references.take()
    }

    fn rem_ref(qp: &Qp<Self>) {
        qp.references.give_back();
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The connection manager: one line each, to [`crate::iwarp`].

use kernel::{prelude::*, sync::Arc};

use crate::verbs::{Ctx, Verbs, creator::Creator};
use crate::{
    iwarp::Connections,
    pairing::PORT,
    rdma::{
        Device,
        event::QpLink,
        iwcm::{
            Accepts, CmId, ConnParam, Connects, Identity, IwOperations, Listens, Offer, Refused,
        },
        port::netdev::NetdevRef,
        queues::qp::Qp,
    },
};

/// Returns the Ethernet device of connections.
fn netdev(device: &Device<Verbs>) -> Result<NetdevRef> {
    device.netdev(PORT).ok_or(ENODEV)
}

fn connections<'a>(ctx: &'a Ctx<'_>) -> Result<&'a Arc<Connections>> {
    ctx.connections().ok_or(EOPNOTSUPP)
}

/// Returns the connections, and the Ethernet device that they use.
fn parts<'a>(
    ctx: &'a Ctx<'_>,
    device: &Device<Verbs>,
) -> Result<(&'a Arc<Connections>, NetdevRef)> {
    Ok((connections(ctx)?, netdev(device)?))
}

impl IwOperations for Verbs {
    fn connect(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        id: CmId<Connects>,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Connects>> {
        match parts(ctx, device) {
            Ok((connections, netdev)) => connections.connect(netdev, id, param),
            Err(error) => Err(Refused { id, error }),
        }
    }

    fn accept(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        id: CmId<Accepts>,
        offer: Offer,
        param: &ConnParam<'_>,
    ) -> Result<(), Refused<Accepts>> {
        match parts(ctx, device) {
            Ok((connections, netdev)) => connections.accept(&netdev, id, offer, param),
            Err(error) => Err(Refused { id, error }),
        }
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

    fn may_connect(qp: &Qp<Self>, by_its_client: bool) -> bool {
        qp.creator.as_ref().map_or(by_its_client, Creator::is_current)
    }

    fn get_qp(ctx: &Ctx<'_>, number: u32) -> Option<QpLink> {
        ctx.adapter.find_qp(number.into())
    }
}

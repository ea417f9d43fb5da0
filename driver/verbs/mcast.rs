// SPDX-License-Identifier: GPL-2.0
//! Membership of datagram queue pairs in multicast groups. The program that joins has to make the
//! network send the group's frames here (rdma_cm sends the IGMP reports).

use abi::admin::{Mcast, command};
use kernel::prelude::*;

use super::{Ctx, Verbs};
use crate::rdma::{gid::Gid, qp::Qp};

pub(super) fn attach(ctx: &Ctx<'_>, qp: &Qp<Verbs>, group: Gid) -> Result {
    ctx.execute::<command::AttachMcast>(&Mcast::new(qp.qpn, group))?;
    Ok(())
}

pub(super) fn detach(ctx: &Ctx<'_>, qp: &Qp<Verbs>, group: Gid) -> Result {
    match ctx.execute::<command::DetachMcast>(&Mcast::new(qp.qpn, group)) {
        Err(error) if !ctx.adapter.is_dead() => Err(error),
        _ => Ok(()),
    }
}

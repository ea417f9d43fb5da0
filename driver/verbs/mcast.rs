// SPDX-License-Identifier: GPL-2.0
//! Membership of datagram queue pairs in multicast groups. That the network brings the group's
//! frames here is for whoever joins (rdma_cm sends the IGMP reports).

use abi::admin::{Mcast, command};
use kernel::prelude::*;

use super::{Hca, Verbs};
use crate::rdma::{gid::Gid, qp::Qp};

pub(super) fn attach(hca: &Hca<'_>, qp: &Qp<Verbs>, group: Gid) -> Result {
    hca.execute::<command::AttachMcast>(&Mcast::new(qp.qpn, group))?;
    Ok(())
}

pub(super) fn detach(hca: &Hca<'_>, qp: &Qp<Verbs>, group: Gid) -> Result {
    match hca.execute::<command::DetachMcast>(&Mcast::new(qp.qpn, group)) {
        Err(error) if !hca.adapter.is_dead() => Err(error),
        _ => Ok(()),
    }
}

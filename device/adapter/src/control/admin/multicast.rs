//! ATTACH_MCAST and DETACH_MCAST.

use std::mem::offset_of;

use vrnic_abi::admin::{Mcast, Status};
use vrnic_abi::qp::Type;

use super::{Outcome, bad};
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::multicast::is_group;

pub(super) fn attach<H: Host>(adapter: &Adapter<H>, params: &Mcast) -> Outcome<()> {
    if !is_group(&params.gid) {
        return Err(bad(offset_of!(Mcast, gid)));
    }
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    if qp.kind != Type::Ud {
        return Err(bad(offset_of!(Mcast, qpn)));
    }
    let join = || adapter.fabric().join_group();
    adapter.objects.groups.attach(params.gid, &qp, join).map_err(|_full| Status::NoResource)?;
    Ok(())
}

pub(super) fn detach<H: Host>(adapter: &Adapter<H>, params: &Mcast) -> Outcome<()> {
    if adapter.objects.groups.detach(params.gid, params.qpn) {
        Ok(())
    } else {
        Err(Status::NotFound.into())
    }
}

//! ATTACH_MCAST and DETACH_MCAST.

use std::mem::offset_of;

use vrnic_abi::admin::{Mcast, Status};
use vrnic_abi::qp::Type;

use super::{Outcome, bad};
use crate::function::Function;
use crate::host::Host;
use crate::objects::multicast::is_group;

pub(super) fn attach<H: Host>(function: &Function<H>, params: &Mcast) -> Outcome<()> {
    if !is_group(&params.gid) {
        return Err(bad(offset_of!(Mcast, gid)));
    }
    let qp = function.qp(params.qpn.get()).ok_or(Status::NotFound)?;
    if qp.kind != Type::Ud {
        return Err(bad(offset_of!(Mcast, qpn)));
    }
    let join = || function.fabric().join_group();
    function.objects.groups.attach(params.gid, &qp, join).map_err(|_full| Status::NoResource)?;
    Ok(())
}

pub(super) fn detach<H: Host>(function: &Function<H>, params: &Mcast) -> Outcome<()> {
    if function.objects.groups.detach(params.gid, params.qpn.get()) {
        Ok(())
    } else {
        Err(Status::NotFound.into())
    }
}

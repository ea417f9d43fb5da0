//! SRQs and XRC domains.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::ContextId;
use vrnic_abi::admin::{CreateSrq, ModifySrq, ResizeSrq, SrqResult, SrqStatus, SrqType, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::{Qpn, Srqn, Xrcdn, rq};

use super::queues::{same, take_slot};
use super::{Failure, Outcome, bad, pages_failure, zero};
use crate::adapter::Adapter;
use crate::domain::User;
use crate::host::Host;
use crate::memory::pages::Ring;
use crate::objects::srq::{NoRoom, Srq, Xrc};
use crate::objects::{Xrcd, held, hold, release};

pub(super) fn create_srq<H: Host>(adapter: &Adapter<H>, params: &CreateSrq) -> Outcome<SrqResult> {
    let kind = SrqType::from_raw(params.srq_type).ok_or(bad(offset_of!(CreateSrq, srq_type)))?;
    let objects = &adapter.objects;
    let pd = objects.pds.get(params.pdn).ok_or(Status::NotFound)?;
    let uar = objects.uars.get(params.uar).ok_or(Status::NotFound)?;
    if uar.context != pd.context {
        return Err(Status::Permission.into());
    }
    let xrc = xrc(adapter, params, kind, pd.context)?;
    let domain = adapter.core().domain();
    same(domain, &[uar.domain])?;
    let user = User { pdn: pd.pdn, qpn: Qpn::default(), domain };
    let ring = ring(adapter, params)?;
    let doorbell = take_slot(adapter, &uar, None)?;
    let make = |srqn| Ok::<_, Failure>(Srq::new(srqn, user, pd.context, doorbell, ring, xrc));
    let Some(srq) = objects.srqs.insert(make)? else {
        uar.release(doorbell.slot());
        return Err(Status::NoResource.into());
    };
    hold(&pd.users);
    if let Some(Xrc { xrcdn, cq }) = &srq.xrc {
        hold(&cq.users);
        if let Some(xrcd) = objects.xrcds.get(*xrcdn) {
            hold(&xrcd.users);
        }
    }
    Ok(SrqResult::new(srq.srqn, doorbell.slot()))
}

/// Returns the CQ and the domain of an SRQ for XRC targets. Other SRQs have neither.
fn xrc<H: Host>(
    adapter: &Adapter<H>,
    params: &CreateSrq,
    kind: SrqType,
    context: ContextId,
) -> Result<Option<Xrc>, Failure> {
    if kind == SrqType::Basic {
        zero(&params.xrcdn, offset_of!(CreateSrq, xrcdn))?;
        zero(&params.cqn, offset_of!(CreateSrq, cqn))?;
        return Ok(None);
    }
    // Contexts share a domain. The driver decides who may open it.
    adapter.objects.xrcds.get(params.xrcdn).ok_or(Status::NotFound)?;
    let cq = adapter.objects.cqs.get(params.cqn).ok_or(Status::NotFound)?;
    if cq.context != context {
        return Err(Status::Permission.into());
    }
    same(adapter.core().domain(), &[cq.domain])?;
    Ok(Some(Xrc { xrcdn: params.xrcdn, cq }))
}

fn ring<H: Host>(adapter: &Adapter<H>, params: &CreateSrq) -> Result<Ring, Failure> {
    if !adapter.has_ring_size(params.log_size) {
        return Err(bad(offset_of!(CreateSrq, log_size)));
    }
    let strides = rq::STRIDE_MIN.ilog2()..=rq::STRIDE_MAX.ilog2();
    if !strides.contains(&u32::from(params.log_stride)) {
        return Err(bad(offset_of!(CreateSrq, log_stride)));
    }
    Ring::read(adapter.paging(), &params.pages, params.log_size, params.log_stride)
        .map_err(|error| pages_failure(error, offset_of!(CreateSrq, pages)))
}

pub(super) fn resize_srq<H: Host>(adapter: &Adapter<H>, params: &ResizeSrq) -> Outcome<()> {
    if !adapter.has_ring_size(params.log_size) {
        return Err(bad(offset_of!(ResizeSrq, log_size)));
    }
    let srq = adapter.objects.srqs.get(params.srqn).ok_or(Status::NotFound)?;
    let ring = Ring::read(adapter.paging(), &params.pages, params.log_size, srq.log_stride())
        .map_err(|error| pages_failure(error, offset_of!(ResizeSrq, pages)))?;
    // Threads that read the old ring held the SRQ's lock, so the old memory can be freed.
    srq.resize(adapter.host(), ring).map_err(|NoRoom| Status::Busy.into())
}

pub(super) fn destroy_srq<H: Host>(adapter: &Adapter<H>, &srqn: &Srqn) -> Outcome<()> {
    let objects = &adapter.objects;
    let srq = objects.srqs.get(srqn).ok_or(Status::NotFound)?;
    if held(&srq.users) {
        return Err(Status::Busy.into());
    }
    objects.srqs.remove(srqn);
    srq.end();
    adapter.forget_srq(&srq);
    if let Some(uar) = objects.uars.get(srq.doorbell.uar()) {
        uar.release(srq.doorbell.slot());
    }
    if let Some(pd) = objects.pds.get(srq.pdn) {
        release(&pd.users);
    }
    if let Some(Xrc { xrcdn, cq }) = &srq.xrc {
        release(&cq.users);
        if let Some(xrcd) = objects.xrcds.get(*xrcdn) {
            release(&xrcd.users);
        }
    }
    Ok(())
}

pub(super) fn modify_srq<H: Host>(adapter: &Adapter<H>, params: &ModifySrq) -> Outcome<()> {
    let srq = adapter.objects.srqs.get(params.srqn).ok_or(Status::NotFound)?;
    let due = srq.arm(adapter.host(), params.limit.get());
    if due.map_err(|_| bad(offset_of!(ModifySrq, limit)))? {
        adapter.core().report(Kind::SrqLimit, srq.srqn);
    }
    Ok(())
}

pub(super) fn query_srq<H: Host>(adapter: &Adapter<H>, &srqn: &Srqn) -> Outcome<SrqStatus> {
    let srq = adapter.objects.srqs.get(srqn).ok_or(Status::NotFound)?;
    Ok(srq.status(adapter.host()))
}

pub(super) fn alloc_xrcd<H: Host>(adapter: &Arc<Adapter<H>>, _: &()) -> Outcome<Xrcdn> {
    let make = |xrcdn| Ok::<_, Failure>(Xrcd { xrcdn, users: 0.into() });
    let xrcd = adapter.objects.xrcds.insert(make)?.ok_or(Status::NoResource)?;
    Ok(xrcd.xrcdn)
}

pub(super) fn free_xrcd<H: Host>(adapter: &Adapter<H>, &xrcdn: &Xrcdn) -> Outcome<()> {
    let xrcds = &adapter.objects.xrcds;
    let xrcd = xrcds.get(xrcdn).ok_or(Status::NotFound)?;
    if held(&xrcd.users) {
        return Err(Status::Busy.into());
    }
    xrcds.remove(xrcdn);
    Ok(())
}

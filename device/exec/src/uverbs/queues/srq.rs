//! Shared receive queues.

use rustix::io::Errno;
use vrnic_abi::admin::{self, CreateSrq, DeviceFeatures, Pages, SrqType, command};
use vrnic_abi::uverbs::{SrqReq, SrqResp};
use vrnic_abi::{Cqn, Xrcdn, rq, sq};

use super::cq::ring;
use crate::uverbs::file::OpenFile;
use crate::uverbs::objects::{Object, Srq};
use crate::uverbs::region::forget;
use crate::uverbs::request::Request;
use crate::uverbs::ring::Rings;
use crate::uverbs::routes::{Route, Source};
use crate::uverbs::wire::device::CORE_OUT;
use crate::uverbs::wire::{HANDLE, UHW_IN, UHW_OUT, srq};
use crate::uverbs::write::{ModifySrq, QuerySrqResp};

/// `IB_SRQ_MAX_WR`, which is a change of the size.
const MAX_WR: u32 = 1 << 0;
/// `IB_SRQ_LIMIT`.
const LIMIT: u32 = 1 << 1;

/// Returns whether a ring of receives may have these logs of its size and of its stride.
#[must_use]
pub fn is_recv_queue(log_size: u8, log_stride: u8) -> bool {
    let strides = rq::STRIDE_MIN.trailing_zeros()..=rq::STRIDE_MAX.trailing_zeros();
    u32::from(log_size) <= sq::LOG_WQES_MAX && strides.contains(&log_stride.into())
}

/// Returns the place of a ring for receives of this number and this number of segments.
fn receives(
    file: &OpenFile,
    request: &Request<'_>,
    asked: &SrqReq,
    [max_wr, max_sge]: [u32; 2],
    rings: &mut Rings,
) -> Result<Pages, Errno> {
    if asked.reserved != [0; 6] || !is_recv_queue(asked.log_size, asked.log_stride) {
        return Err(Errno::INVAL);
    }
    let (entries, stride) = (1u32 << asked.log_size, 1u32 << asked.log_stride);
    if max_wr > entries || rq::stride(max_sge).is_none_or(|least| least > stride) {
        return Err(Errno::INVAL);
    }
    let len = u64::from(entries) * u64::from(stride);
    ring(file, request, rings, asked.buf.get(), len, false)
}

/// What the type of a shared receive queue demands.
#[derive(Debug)]
struct Kind {
    kind: SrqType,
    /// The handle and the number of the XRC domain.
    xrcd: Option<u32>,
    xrcdn: Xrcdn,
    cqn: Cqn,
}

impl Kind {
    /// Returns the type that a request names.
    fn of(file: &OpenFile, request: &Request<'_>) -> Result<Self, Errno> {
        let plain =
            Self { kind: SrqType::Basic, xrcd: None, xrcdn: Xrcdn::default(), cqn: Cqn::default() };
        match request.value::<u64>(srq::TYPE) {
            0 => Ok(plain),
            1 => {
                let cq = request.handle(srq::CQ)?.ok_or(Errno::NOENT)?;
                let (cqn, _) = file.objects.cq(cq)?;
                let xrcd = request.handle(srq::XRCD)?.ok_or(Errno::NOENT)?;
                let xrcdn = file.objects.xrcd(xrcd)?;
                Ok(Self { kind: SrqType::Xrc, xrcd: Some(xrcd), xrcdn, cqn })
            }
            // Tag matching.
            2 => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Creates a shared receive queue (`UVERBS_METHOD_SRQ_CREATE`, and `create_srq` of the driver).
///
/// # Errors
/// The kernel's, and the adapter's refusal.
pub fn create(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    file.objects.check_room()?;
    let pd = request.handle(srq::PD)?.ok_or(Errno::INVAL)?;
    let pdn = file.objects.pd(pd)?;
    let Kind { kind, xrcd, xrcdn, cqn } = Kind::of(file, request)?;
    let events = match request.file(srq::EVENT_FD)? {
        Some(channel) => Some(file.channel(channel)?),
        None => file.events().cloned(),
    };
    let (max_wr, max_sge): (u32, u32) = (request.value(srq::MAX_WR), request.value(srq::MAX_SGE));
    let caps = file.device().driver().caps();
    if max_wr == 0 || max_wr > caps.max_wr.get() || max_sge > caps.max_sge.get() {
        return Err(Errno::INVAL);
    }
    let asked: SrqReq = request.value(UHW_IN);
    let mut rings = Rings::new();
    let pages = receives(file, request, &asked, [max_wr, max_sge], &mut rings)?;
    let entries = 1u32 << asked.log_size;
    let uar = file.take_slot()?;
    let params = CreateSrq {
        pages,
        pdn,
        uar,
        log_size: asked.log_size,
        log_stride: asked.log_stride,
        // CAST: the enum's number.
        srq_type: kind as u8,
        xrcdn,
        cqn,
    };
    let created = file.device().driver().command::<command::CreateSrq>(&params);
    let result = created.inspect_err(|_| file.release_slot(uar))?;
    let srqn = result.srqn;
    file.keep_rings(Source::Srq, srqn.get(), rings);
    let user_handle = request.value(srq::USER_HANDLE);
    let route = Route { user_handle, events, ..Route::default() };
    file.device().routes().insert((file.device().number(), Source::Srq, srqn.get()), route);
    let log_stride = asked.log_stride;
    let object = Object::Srq(Srq { srqn, uar, max_wr: entries, max_sge, log_stride, xrcd });
    let handle = file.objects.insert(object);
    let (slot, uar_mmap) = (result.slot, uar.offset().into());
    let answer = SrqResp { srqn, slot, uar, uar_mmap, ..SrqResp::default() };
    request
        .respond_or_zero(UHW_OUT, &answer)
        .and_then(|()| request.respond(srq::RESP_MAX_WR, &entries))
        .and_then(|()| request.respond(srq::RESP_MAX_SGE, &max_sge))
        .and_then(|()| request.respond(srq::RESP_NUMBER, &srqn.get()))
        .and_then(|()| request.respond_handle(HANDLE, handle.into()))
        .inspect_err(|_| forget(file, handle, &object))
}

/// Changes the size, the limit, or first the size and then the limit (`ib_uverbs_modify_srq`, and
/// `modify_srq` of the driver).
///
/// # Errors
/// `EINVAL` for a ring or a limit that does not fit, and the adapter's refusal.
pub fn modify(
    file: &mut OpenFile,
    request: &Request<'_>,
    command: &ModifySrq,
) -> Result<(), Errno> {
    let mut srq = file.objects.srq(command.srq_handle)?;
    let limit = (command.attr_mask & LIMIT != 0).then_some(command.srq_limit);
    if command.attr_mask & MAX_WR != 0 {
        srq.max_wr = resize(file, request, &srq, command.max_wr, limit)?;
        file.objects.replace(command.srq_handle, Object::Srq(srq));
    }
    let Some(limit) = limit else { return Ok(()) };
    if limit > srq.max_wr {
        return Err(Errno::INVAL);
    }
    let params = admin::ModifySrq::new(srq.srqn, limit);
    file.device().driver().command::<command::ModifySrq>(&params)
}

/// Moves a queue to another ring of the process, which contains the posted receives already.
/// Returns the number of entries.
fn resize(
    file: &mut OpenFile,
    request: &Request<'_>,
    srq: &Srq,
    max_wr: u32,
    limit: Option<u32>,
) -> Result<u32, Errno> {
    let caps = file.device().driver().caps();
    if !caps.has(DeviceFeatures::RESIZE_SRQ) {
        return Err(Errno::OPNOTSUPP);
    }
    if max_wr == 0 || max_wr > caps.max_wr.get() {
        return Err(Errno::INVAL);
    }
    let asked: SrqReq = request.value(UHW_IN);
    let mut rings = Rings::new();
    let pages = receives(file, request, &asked, [max_wr, srq.max_sge], &mut rings)?;
    let entries = 1u32 << asked.log_size;
    if limit.is_some_and(|limit| limit > entries) || asked.log_stride != srq.log_stride {
        return Err(Errno::INVAL);
    }
    let params = admin::ResizeSrq::new(srq.srqn, asked.log_size, pages);
    file.device().driver().command::<command::ResizeSrq>(&params)?;
    // The adapter does not read the old ring any more.
    file.replace_rings(Source::Srq, srq.srqn.get(), rings);
    Ok(entries)
}

/// Returns the size and the limit (`ib_uverbs_query_srq`).
///
/// # Errors
/// The adapter's refusal.
pub fn query(file: &OpenFile, request: &Request<'_>, handle: u32) -> Result<(), Errno> {
    let srq = file.objects.srq(handle)?;
    let status = file.device().driver().command::<command::QuerySrq>(&srq.srqn)?;
    let (max_wr, max_sge, srq_limit) = (srq.max_wr, srq.max_sge, status.limit.get());
    request.respond_or_zero(CORE_OUT, &QuerySrqResp { max_wr, max_sge, srq_limit, reserved: 0 })
}

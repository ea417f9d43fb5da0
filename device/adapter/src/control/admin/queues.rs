//! EQs, CQs and QPs.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::ContextId;
use vrnic_abi::admin::{
    CqFlags, CqResult, CreateCq, CreateEq, CreateQp, EqResult, ModifyCq, NO_QUEUE, Pages, QpFlags,
    QpOptions, QpResult, ResizeCq, ResizeCqResult, Status, TagForm, Transport,
};
use vrnic_abi::cq::LOG_CQES_MAX;
use vrnic_abi::doorbell::{BarRange, Doorbell};
use vrnic_abi::qp::{Service, State, Type};
use vrnic_abi::{Cqn, Eqn, Qpn, eq, pci, rq, sq};
use vrnic_abi::{Pdn, UarIndex, Xrcdn};

use super::{Failure, Outcome, bad, pages_failure, spread, zero};
use crate::adapter::Adapter;
use crate::domain::Domain;
use crate::host::{Host, Transfers};
use crate::memory::device_sq::DeviceRing;
use crate::memory::pages::Ring;
use crate::objects::cq::{self, Cq, WhenFull};
use crate::objects::eq::EventQueue;
use crate::objects::qp::{Parts, Qp, SendRing};
use crate::objects::srq::Srq;
use crate::objects::uar::{Owner, Uar};
use crate::objects::{Pd, Xrcd, held, hold, release};
use crate::requests::command_tag::Tags;

pub(super) fn create_eq<H: Host>(adapter: &Adapter<H>, params: &CreateEq) -> Outcome<EqResult> {
    let vector = params.vector.get();
    if vector == pci::VECTOR_ASYNC || vector >= adapter.vectors() {
        return Err(bad(offset_of!(CreateEq, vector)));
    }
    if !(4..=eq::LOG_SIZE_MAX).contains(&u32::from(params.log_size)) {
        return Err(bad(offset_of!(CreateEq, log_size)));
    }
    let ring = Ring::read(adapter.paging(), &params.pages, params.log_size, 4)
        .map_err(|error| pages_failure(error, offset_of!(CreateEq, pages)))?;
    let objects = &adapter.objects;
    let uar = objects.uars.get(UarIndex::new(0)).ok_or(Status::Internal)?;
    let doorbell = take_slot(adapter, &uar, None)?;
    let holding = Arc::clone(&objects.holding);
    let make = |eqn| Ok::<_, Failure>(EventQueue::new(eqn, vector, doorbell, ring, holding));
    let Some(eq) = objects.eqs.insert(make)? else {
        uar.release(doorbell.slot());
        return Err(Status::NoResource.into());
    };
    refresh_eqs(adapter);
    Ok(EqResult::new(eq.eqn, doorbell.slot()))
}

pub(super) fn destroy_eq<H: Host>(adapter: &Adapter<H>, &eqn: &Eqn) -> Outcome<()> {
    let objects = &adapter.objects;
    let eq = objects.eqs.get(eqn).ok_or(Status::NotFound)?;
    if held(&eq.users) {
        return Err(Status::Busy.into());
    }
    objects.eqs.remove(eqn);
    eq.end();
    refresh_eqs(adapter);
    if let Some(uar) = objects.uars.get(UarIndex::new(0)) {
        uar.release(eq.doorbell.slot());
    }
    Ok(())
}

fn refresh_eqs<H: Host>(adapter: &Adapter<H>) {
    if let Some(asynchronous) = adapter.core().asynchronous.read().as_ref() {
        adapter.objects.refresh_eqs(asynchronous);
    }
}

pub(super) fn create_cq<H: Host>(adapter: &Adapter<H>, params: &CreateCq) -> Outcome<CqResult> {
    if u32::from(params.log_size) > LOG_CQES_MAX {
        return Err(bad(offset_of!(CreateCq, log_size)));
    }
    let when_full = when_full(params)?;
    let objects = &adapter.objects;
    let uar = objects.uars.get(params.uar).ok_or(Status::NotFound)?;
    let eq = objects.eqs.get(params.eqn).ok_or(Status::NotFound)?;
    let ring = Ring::read(adapter.paging(), &params.pages, params.log_size, 6)
        .map_err(|error| pages_failure(error, offset_of!(CreateCq, pages)))?;
    let entries = objects.cq_entries.take(ring.size()).ok_or(Status::NoResource)?;
    let doorbell = take_slot(adapter, &uar, None)?;
    let parts = cq::Parts {
        domain: uar.domain,
        context: uar.context,
        doorbell,
        eq: Arc::clone(&eq),
        ring,
        when_full,
    };
    let make = |cqn| Ok::<_, Failure>(Cq::new(cqn, parts));
    let Some(cq) = objects.cqs.insert(make)? else {
        uar.release(doorbell.slot());
        return Err(Status::NoResource.into());
    };
    entries.keep();
    hold(&eq.users);
    uar.assign(doorbell.slot(), Owner::Cq(Arc::clone(&cq)));
    Ok(CqResult::new(cq.cqn, doorbell.slot()))
}

/// Returns what happens when a CQ is full.
fn when_full(params: &CreateCq) -> Result<WhenFull, Failure> {
    let flags = CqFlags::from_bits(params.flags).ok_or_else(|| bad(offset_of!(CreateCq, flags)))?;
    let (holding, few) = (flags.contains(CqFlags::HOLDING), params.few.get());
    let limit = if holding { 1 << params.log_size } else { 1 };
    if few >= limit {
        return Err(bad(offset_of!(CreateCq, few)));
    }
    match (holding, flags.contains(CqFlags::IGNORE_OVERRUN)) {
        (true, true) => Err(bad(offset_of!(CreateCq, flags))),
        (true, false) => Ok(WhenFull::Hold { few }),
        (false, true) => Ok(WhenFull::Lose),
        (false, false) => Ok(WhenFull::Fail),
    }
}

/// Allocates a doorbell slot and zeroes its words. If worker numbers are given, spreads slots over
/// them.
pub(super) fn take_slot<H: Host>(
    adapter: &Adapter<H>,
    uar: &Uar<H>,
    workers: Option<usize>,
) -> Result<Doorbell, Failure> {
    let doorbell = uar.take(workers).ok_or(Status::NoResource)?;
    adapter.host().bar_zero(doorbell.words());
    Ok(doorbell)
}

pub(super) fn modify_cq<H: Host>(adapter: &Adapter<H>, params: &ModifyCq) -> Outcome<()> {
    let cq = adapter.objects.cqs.get(params.cqn).ok_or(Status::NotFound)?;
    cq.set_moderation(params.count.get(), params.period.get());
    rearm(adapter, &cq);
    Ok(())
}

/// Lets a holding CQ report again that it is full, or that few entries are left, and lets it go on
/// if it has room.
fn rearm<H: Host>(adapter: &Adapter<H>, cq: &Arc<Cq>) {
    cq.rearm(adapter.host());
    if cq.holds() {
        adapter.core().resume_cq(cq);
    }
}

pub(super) fn resize_cq<H: Host>(
    adapter: &Adapter<H>,
    params: &ResizeCq,
) -> Outcome<ResizeCqResult> {
    if u32::from(params.log_size) > LOG_CQES_MAX {
        return Err(bad(offset_of!(ResizeCq, log_size)));
    }
    let cq = adapter.objects.cqs.get(params.cqn).ok_or(Status::NotFound)?;
    let ring = Ring::read(adapter.paging(), &params.pages, params.log_size, 6)
        .map_err(|error| pages_failure(error, offset_of!(ResizeCq, pages)))?;
    let entries = &adapter.objects.cq_entries;
    let (old, new) = (cq.size(), ring.size());
    let added = entries.take(new.saturating_sub(old)).ok_or(Status::NoResource)?;
    let first = cq.resize(adapter.host(), ring).ok_or(Status::BadState)?;
    added.keep();
    entries.give(old.saturating_sub(new));
    rearm(adapter, &cq);
    // Threads that wrote to the old ring held the CQ's lock, so the old memory can be freed.
    Ok(ResizeCqResult::new(first))
}

pub(super) fn destroy_cq<H: Host>(adapter: &Adapter<H>, &cqn: &Cqn) -> Outcome<()> {
    let objects = &adapter.objects;
    let cq = objects.cqs.get(cqn).ok_or(Status::NotFound)?;
    if held(&cq.users) {
        return Err(Status::Busy.into());
    }
    objects.cqs.remove(cqn);
    objects.cq_entries.give(cq.size());
    cq.end();
    adapter.forget_cq(&cq);
    if let Some(uar) = objects.uars.get(cq.doorbell.uar()) {
        uar.release(cq.doorbell.slot());
    }
    release(&cq.eq.users);
    Ok(())
}

/// The objects that a QP uses, all of one context.
struct Base<H: Host> {
    uar: Arc<Uar<H>>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
}

pub(super) fn create_qp<H: Host>(adapter: &Adapter<H>, params: &CreateQp) -> Outcome<QpResult> {
    if params.qp_type != Type::XrcTgt as u8 {
        zero(&params.xrcdn, offset_of!(CreateQp, xrcdn))?;
    }
    let form = TagForm::from_raw(params.tag_form).ok_or(bad(offset_of!(CreateQp, tag_form)))?;
    let kind = Type::from_raw(params.qp_type).ok_or(Status::Unsupported)?;
    let flags = QpFlags::from_bits(params.flags).ok_or(bad(offset_of!(CreateQp, flags)))?;
    check_kind(adapter, params, kind, flags)?;
    let options = options(adapter, params, kind)?;
    let objects = &adapter.objects;
    let Home { pd, xrcd, context } = home(adapter, params, kind)?;
    let Base { uar, send_cq, recv_cq } = base(adapter, params, context)?;
    check_queues(params, kind)?;
    let srq = shared_queue(adapter, params, context)?;
    let spread = spread::of(adapter, params, flags, kind)?;
    let rq = recv_ring(adapter, params)?;
    let sq = send_ring(adapter, params, flags, context)?;
    let device_sq = sq.device().map(|ring| ring.range());
    let give = |_: &Failure| give_back(adapter, context, device_sq);
    let doorbell = take_slot(adapter, &uar, Some(adapter.workers())).inspect_err(give)?;
    let parts = Parts {
        kind,
        pdn: pd.as_ref().map_or(Pdn::default(), |pd| pd.pdn),
        domain: adapter.core().domain(),
        context,
        tpt: adapter.tpt(),
        doorbell,
        send_cq: Arc::clone(&send_cq),
        recv_cq: Arc::clone(&recv_cq),
        flags,
        options,
        tags: Tags::new(form, params.tag_offset.get()),
        sq,
        rq,
        srq: srq.clone(),
        srqs: Arc::clone(&objects.srqs),
        xrcdn: xrcd.as_ref().map_or(Xrcdn::default(), |xrcd| xrcd.xrcdn),
    };
    let Some(qp) = objects.add_qp(kind, |qpn| Qp::new(qpn, adapter.workers(), parts)) else {
        uar.release(doorbell.slot());
        give_back(adapter, context, device_sq);
        return Err(Status::NoResource.into());
    };
    pd.iter().for_each(|pd| hold(&pd.users));
    xrcd.iter().for_each(|xrcd| hold(&xrcd.users));
    for cq in [&send_cq, &recv_cq] {
        hold(&cq.users);
        cq.attach(qp.qpn);
    }
    if let Some(srq) = &srq {
        hold(&srq.users);
    }
    if let Some(spread) = spread {
        objects.spreads.add(qp.qpn, spread);
    }
    uar.assign(doorbell.slot(), Owner::Qp(Arc::clone(&qp)));
    let sq_offset = device_sq.map_or(0, |range| range.start);
    Ok(QpResult::new(qp.qpn, doorbell.slot(), sq_offset))
}

/// Returns the options, which only QPs of datagrams, or with messages of iWARP, have.
fn options<H: Host>(adapter: &Adapter<H>, params: &CreateQp, kind: Type) -> Outcome<QpOptions> {
    let mut possible = QpOptions::empty();
    possible.set(QpOptions::BLOCK_LOOPBACK, kind.is_datagram());
    possible.set(QpOptions::ACKNOWLEDGED, adapter.has_messages_of_tcp(kind));
    QpOptions::from_bits(params.options)
        .filter(|options| possible.contains(*options))
        .ok_or_else(|| bad(offset_of!(CreateQp, options)))
}

/// Checks that the adapter has QPs of this type, with these properties.
fn check_kind<H: Host>(
    adapter: &Adapter<H>,
    params: &CreateQp,
    kind: Type,
    flags: QpFlags,
) -> Result<(), Failure> {
    let offered = match adapter.transport() {
        Transport::Iwarp => kind.info().iwarp,
        _ => kind.info().roce,
    };
    if !offered {
        return Err(Status::Unsupported.into());
    }
    let keys = QpFlags::NO_SQ_KEYS | QpFlags::WINDOWS_ONLY;
    if flags.intersects(keys) && !kind.info().is_connected() {
        return Err(bad(offset_of!(CreateQp, flags)));
    }
    if kind.info().service != Service::Bytes {
        let of_bytes = !adapter.has_messages_of_tcp(kind) && flags.contains(QpFlags::QUEUE_LENGTH);
        let plain = !of_bytes && !flags.contains(QpFlags::PUSH);
        return if plain { Ok(()) } else { Err(bad(offset_of!(CreateQp, flags))) };
    }
    // The places of bytes that arrive out of order are known only in a queue of its own.
    zero(&params.srqn, offset_of!(CreateQp, srqn))?;
    // Only clients of the kernel have requests about keys on it: the commands of iSCSI.
    let owner = adapter.objects.pds.get(params.pdn).map(|pd| pd.context.get());
    if flags.contains(QpFlags::REACTIVE) && owner != Some(0) {
        return Err(bad(offset_of!(CreateQp, flags)));
    }
    zero(&params.tag_form, offset_of!(CreateQp, tag_form))
}

/// The objects that a QP belongs to.
struct Home {
    /// The PD of the QP; an XRC target has none.
    pd: Option<Arc<Pd>>,
    /// The domain of an XRC target.
    xrcd: Option<Arc<Xrcd>>,
    context: ContextId,
}

fn home<H: Host>(adapter: &Adapter<H>, params: &CreateQp, kind: Type) -> Result<Home, Failure> {
    let objects = &adapter.objects;
    if kind == Type::XrcTgt {
        zero(&params.pdn, offset_of!(CreateQp, pdn))?;
        let xrcd = objects.xrcds.get(params.xrcdn).ok_or(Status::NotFound)?;
        // An XRC target may outlive the process that created it.
        return Ok(Home { pd: None, xrcd: Some(xrcd), context: ContextId::new(0) });
    }
    let pd = objects.pds.get(params.pdn).ok_or(Status::NotFound)?;
    if kind == Type::Gsi && pd.context.get() != 0 {
        return Err(Status::Permission.into());
    }
    Ok(Home { context: pd.context, pd: Some(pd), xrcd: None })
}

/// Checks that a QP has only the queues that its type has.
fn check_queues(params: &CreateQp, kind: Type) -> Result<(), Failure> {
    let info = kind.info();
    if !info.receives {
        zero(&params.srqn, offset_of!(CreateQp, srqn))?;
        if params.rq_log_size != NO_QUEUE {
            return Err(bad(offset_of!(CreateQp, rq_log_size)));
        }
    }
    if !info.sends && params.sq_log_size != NO_QUEUE {
        return Err(bad(offset_of!(CreateQp, sq_log_size)));
    }
    Ok(())
}

/// Checks that objects to be used together are of one domain.
pub(super) fn same(domain: Domain, others: &[Domain]) -> Result<(), Failure> {
    if others.iter().all(|other| *other == domain) {
        Ok(())
    } else {
        Err(Status::Permission.into())
    }
}

fn base<H: Host>(
    adapter: &Adapter<H>,
    params: &CreateQp,
    context: ContextId,
) -> Result<Base<H>, Failure> {
    let objects = &adapter.objects;
    let uar = objects.uars.get(params.uar).ok_or(Status::NotFound)?;
    let send_cq = objects.cqs.get(params.send_cqn).ok_or(Status::NotFound)?;
    let recv_cq = objects.cqs.get(params.recv_cqn).ok_or(Status::NotFound)?;
    if uar.context != context || send_cq.context != context || recv_cq.context != context {
        return Err(Status::Permission.into());
    }
    let domain = adapter.core().domain();
    same(domain, &[uar.domain, send_cq.domain, recv_cq.domain])?;
    Ok(Base { uar, send_cq, recv_cq })
}

/// Returns the SRQ that replaces the QP's receive queue, if one is named.
fn shared_queue<H: Host>(
    adapter: &Adapter<H>,
    params: &CreateQp,
    context: ContextId,
) -> Result<Option<Arc<Srq>>, Failure> {
    if params.srqn.get() == 0 {
        return Ok(None);
    }
    if params.rq_log_size != NO_QUEUE {
        return Err(bad(offset_of!(CreateQp, rq_log_size)));
    }
    let srq = adapter.objects.srqs.get(params.srqn).ok_or(Status::NotFound)?;
    if srq.context != context {
        return Err(Status::Permission.into());
    }
    same(adapter.core().domain(), &[srq.domain])?;
    if srq.xrc.is_some() {
        return Err(bad(offset_of!(CreateQp, srqn)));
    }
    Ok(Some(srq))
}

fn recv_ring<H: Host>(adapter: &Adapter<H>, params: &CreateQp) -> Result<Option<Ring>, Failure> {
    if params.rq_log_size == NO_QUEUE {
        return Ok(None);
    }
    if !adapter.has_ring_size(params.rq_log_size) {
        return Err(bad(offset_of!(CreateQp, rq_log_size)));
    }
    if !(rq::STRIDE_MIN.ilog2()..=rq::STRIDE_MAX.ilog2()).contains(&u32::from(params.rq_log_stride))
    {
        return Err(bad(offset_of!(CreateQp, rq_log_stride)));
    }
    let pages = Pages::new(params.rq_table, params.rq_page_shift, params.rq_levels);
    Ring::read(adapter.paging(), &pages, params.rq_log_size, params.rq_log_stride)
        .map(Some)
        .map_err(|error| pages_failure(error, offset_of!(CreateQp, rq_table)))
}

fn send_ring<H: Host>(
    adapter: &Adapter<H>,
    params: &CreateQp,
    flags: QpFlags,
    context: ContextId,
) -> Result<SendRing, Failure> {
    let (log_size, log_stride) = (params.sq_log_size, params.sq_log_stride);
    if log_size == NO_QUEUE {
        return Ok(SendRing::None);
    }
    if !adapter.has_ring_size(log_size) {
        return Err(bad(offset_of!(CreateQp, sq_log_size)));
    }
    if !(sq::STRIDE_MIN.ilog2()..=sq::STRIDE_MAX.ilog2()).contains(&u32::from(log_stride)) {
        return Err(bad(offset_of!(CreateQp, sq_log_stride)));
    }
    if flags.contains(QpFlags::SQ_IN_DEVICE) {
        if params.sq_table.get() != 0 {
            return Err(bad(offset_of!(CreateQp, sq_table)));
        }
        if params.sq_levels != 0 {
            return Err(bad(offset_of!(CreateQp, sq_levels)));
        }
        let len = 1 << (log_size + log_stride);
        let start =
            adapter.objects.sq_memory.lock().take(context, len).ok_or(Status::NoResource)?;
        let ring = DeviceRing::new(start, log_size, log_stride);
        adapter.host().bar_zero(ring.range());
        return Ok(SendRing::Device(ring));
    }
    let pages = Pages::new(params.sq_table, params.sq_page_shift, params.sq_levels);
    Ring::read(adapter.paging(), &pages, log_size, log_stride)
        .map(SendRing::Guest)
        .map_err(|error| pages_failure(error, offset_of!(CreateQp, sq_table)))
}

/// Frees the device memory of a send queue, if it has any.
fn give_back<H: Host>(adapter: &Adapter<H>, context: ContextId, device_sq: Option<BarRange>) {
    if let Some(range) = device_sq {
        adapter.objects.sq_memory.lock().give(context, range);
    }
}

/// Drops the entries of a QP that has ended or was reset from CQs that hold them back.
pub(super) fn forget_held<H: Host>(adapter: &Adapter<H>, qp: &Qp<H>) {
    for cq in [&qp.send_cq, &qp.recv_cq] {
        if cq.forget(qp.qpn) {
            adapter.core().resume_cq(cq);
        }
    }
}

pub(super) fn destroy_qp<H: Host>(adapter: &Arc<Adapter<H>>, &qpn: &Qpn) -> Outcome<()> {
    let objects = &adapter.objects;
    if objects.flows.has_rules_of(qpn) || objects.spreads.names(qpn) {
        return Err(Status::Busy.into());
    }
    let qp = objects.remove_qp(qpn).ok_or(Status::NotFound)?;
    adapter.send_last(&qp);
    objects.spreads.remove(qpn);
    adapter.core().counted.set(qpn, &qp.is_counted, None);
    qp.dead.store(true, Ordering::SeqCst);
    qp.set_state(State::Reset);
    if let Some(uar) = objects.uars.get(qp.doorbell.uar()) {
        uar.release(qp.doorbell.slot());
    }
    adapter.part(&qp);
    adapter.hang_up(&qp);
    // Takes both locks, so no worker uses the QP any more.
    let askers = qp.askers();
    qp.clear(adapter.host());
    adapter.host().wait_for_transfers(&Transfers::Of(askers));
    adapter.core().ranges.end_all_of(qpn);
    adapter.core().mark_waits.forget(qpn, &qp.mark_wait);
    adapter.end_commands(&qp);
    adapter.forget_qp(&qp);
    objects.groups.forget(qp.qpn);
    give_back(adapter, qp.context, qp.sq.device().map(|ring| ring.range()));
    if let Some(pd) = objects.pds.get(qp.pdn) {
        release(&pd.users);
    }
    forget_held(adapter, &qp);
    for cq in [&qp.send_cq, &qp.recv_cq] {
        cq.detach(qp.qpn);
        release(&cq.users);
    }
    if let Some(xrcd) = objects.xrcds.get(qp.xrcdn) {
        release(&xrcd.users);
    }
    if let Some(srq) = &qp.srq {
        srq.publish(adapter.host());
        release(&srq.users);
    }
    Ok(())
}

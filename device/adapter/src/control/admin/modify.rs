//! MODIFY_QP and QUERY_QP.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::{ModifyQp, QueryQp, Status, Transport};
use vrnic_abi::qp::{Access, AddressVector, Attr, AttrMask, PATH_MIGRATED, Service, State};
use vrnic_roce::Psn;
use zerocopy::{FromBytes, IntoBytes};

use super::{Failure, Outcome, bad, depths, queues, zero};
use crate::adapter::Adapter;
use crate::datapath::transport::wire::{self, Modified, Refused};
use crate::host::{HeldMemory, Host, Lane, Transfers};
use crate::limits;
use crate::objects::qp::transitions::{self, Change};
use crate::objects::qp::{Path, Qp, RequesterConfig, Rights, Route};

pub(super) fn modify_qp<H: Host>(adapter: &Arc<Adapter<H>>, params: &ModifyQp) -> Outcome<()> {
    let mask = AttrMask::from_bits(params.mask.get()).ok_or(bad(offset_of!(ModifyQp, mask)))?;
    let addr = params.attr_addr;
    if !addr.is_multiple_of(8) {
        return Err(bad(offset_of!(ModifyQp, attr_addr)));
    }
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    let mut bytes = [0; size_of::<Attr>()];
    adapter.host().hold(Lane::SHARED).read(addr, &mut bytes).map_err(|_| Status::BadAddress)?;
    let new = Attr::read_from_bytes(&bytes).map_err(|_| Status::Internal)?;
    zero(&new.reserved, offset_of!(Attr, reserved))?;
    if mask.contains(AttrMask::AV) {
        let av = offset_of!(Attr, av);
        zero(&new.av.reserved, av + offset_of!(AddressVector, reserved))?;
        zero(&new.av.reserved2, av + offset_of!(AddressVector, reserved2))?;
    }
    check_values(&new, mask, adapter.mtu())?;
    let current = qp.state();
    if mask.contains(AttrMask::CUR_STATE) && State::from_raw(new.cur_state) != Some(current) {
        return Err(Status::BadState.into());
    }
    let next = if mask.contains(AttrMask::STATE) {
        State::from_raw(new.state).ok_or(bad(offset_of!(Attr, state)))?
    } else {
        current
    };
    // OPEN_CONNECTION connects QPs of iWARP.
    let service = qp.kind.info().service;
    let connects = !matches!(service, Service::RawPacket | Service::Bytes) && next == State::Rtr;
    if adapter.transport() == Transport::Iwarp && connects {
        return Err(Status::Unsupported.into());
    }
    let change = Change { from: current, to: next };
    let stays = matches!(current, State::Rts | State::Sqd) && current == next;
    if stays && mask.intersects(depths::BOTH) && depths::has_connection(&qp) {
        return depths::change(&qp, &new, mask);
    }
    if !transitions::allowed(qp.kind, change, mask) {
        return Err(Status::BadState.into());
    }
    // A connection that is being closed cannot return to another state.
    let goes_on = current == State::Sqd && !matches!(next, State::Reset | State::Err);
    if goes_on && qp.requester.lock().path.closes_in_sqd() {
        return Err(Status::BadState.into());
    }
    // There is only one path, and every QP is already on it.
    let migrates = mask.contains(AttrMask::PATH_MIG_STATE) && new.path_mig_state != PATH_MIGRATED;
    if migrates || mask.contains(AttrMask::ALT_PATH) {
        return Err(Status::Unsupported.into());
    }
    check_reads(&qp, mask, change)?;
    apply(adapter, &qp, &new, mask, change)
}

/// Checks that the number of READs and atomics of a half changes only while none of them is
/// outstanding.
///
/// # Errors
/// [`Status::BadState`] in the state SQD if the send queue has not drained, or if the peer's READs
/// are being answered.
fn check_reads<H: Host>(qp: &Qp<H>, mask: AttrMask, change: Change) -> Result<(), Failure> {
    let stays = change == Change { from: State::Sqd, to: State::Sqd };
    let asks = stays && mask.contains(AttrMask::MAX_QP_RD_ATOMIC);
    if asks && qp.requester.lock().has_begun() {
        return Err(Status::BadState.into());
    }
    let answers = stays && mask.contains(AttrMask::MAX_DEST_RD_ATOMIC);
    if answers && qp.responder.lock().packets.as_ref().is_some_and(|half| half.is_reading()) {
        return Err(Status::BadState.into());
    }
    Ok(())
}

/// Checks each attribute that the mask names. `mtu` is the port's MTU.
fn check_values(attr: &Attr, mask: AttrMask, mtu: u8) -> Result<(), Failure> {
    let checks = [
        (AttrMask::PORT, attr.port == 1, offset_of!(Attr, port)),
        (AttrMask::PKEY_INDEX, attr.pkey_index.get() == 0, offset_of!(Attr, pkey_index)),
        (AttrMask::PATH_MTU, (1..=mtu).contains(&attr.path_mtu), offset_of!(Attr, path_mtu)),
        (AttrMask::TIMEOUT, attr.timeout < 32, offset_of!(Attr, timeout)),
        (AttrMask::RETRY_CNT, attr.retry_cnt < 8, offset_of!(Attr, retry_cnt)),
        (AttrMask::RNR_RETRY, attr.rnr_retry < 8, offset_of!(Attr, rnr_retry)),
        (AttrMask::MIN_RNR_TIMER, attr.min_rnr_timer < 32, offset_of!(Attr, min_rnr_timer)),
        (AttrMask::DEST_QPN, attr.dest_qpn.get() < 1 << 24, offset_of!(Attr, dest_qpn)),
        (
            AttrMask::MAX_QP_RD_ATOMIC,
            u32::from(attr.max_rd_atomic) <= limits::MAX_RD_ATOMIC,
            offset_of!(Attr, max_rd_atomic),
        ),
        (
            AttrMask::MAX_DEST_RD_ATOMIC,
            u32::from(attr.max_dest_rd_atomic) <= limits::MAX_RD_ATOMIC,
            offset_of!(Attr, max_dest_rd_atomic),
        ),
    ];
    match checks.iter().find(|(bit, fits, _)| mask.contains(*bit) && !fits) {
        Some((_, _, offset)) => Err(bad(*offset)),
        None => Ok(()),
    }
}

/// Sets the attributes, then the state.
///
/// # Errors
/// [`Status::BadState`] if the state of the QP has changed since then, or the failure of its path.
fn apply<H: Host>(
    adapter: &Arc<Adapter<H>>,
    qp: &Arc<Qp<H>>,
    new: &Attr,
    mask: AttrMask,
    change: Change,
) -> Outcome<()> {
    match change.to {
        State::Reset => {
            reset(adapter, qp);
            return Ok(());
        }
        State::Err => {
            let mut requester = qp.requester.lock();
            if qp.fail() {
                requester.path.end();
            }
            drop(requester);
            qp.schedule(adapter.core());
            return Ok(());
        }
        _ => {}
    }
    let mut attr = *qp.attr.lock();
    merge(&mut attr, new, mask);
    if adapter.transport() != Transport::Iwarp {
        let modified = Modified { attr: &attr, mask, change };
        wire::connect(adapter.network(), qp, modified).map_err(|refused| match refused {
            Refused::Path => bad(offset_of!(Attr, av)),
            Refused::Memory => Status::NoResource.into(),
        })?;
    }
    merge(&mut qp.attr.lock(), new, mask);
    let addressed = mask.contains(AttrMask::AV).then(|| wire::route(adapter.network(), &new.av));
    configure(qp, addressed);
    if change.from != change.to {
        let drain = change.to == State::Sqd;
        qp.attr.lock().sq_draining = u8::from(drain);
        let notify = mask.contains(AttrMask::EN_SQD_ASYNC_NOTIFY) && new.en_sqd_async_notify != 0;
        qp.requester.lock().notify_drained = drain && notify;
    }
    if !qp.change_state(change.from, change.to) {
        return Err(Status::BadState.into());
    }
    // The next entry of the QP may wait for an earlier limit.
    if matches!(change.to, State::Rts | State::Sqd) {
        qp.schedule(adapter.core());
    }
    Ok(())
}

/// Moves a QP to the state RESET.
pub(super) fn reset<H: Host>(adapter: &Arc<Adapter<H>>, qp: &Arc<Qp<H>>) {
    qp.set_state(State::Reset);
    adapter.hang_up(qp);
    *qp.attr.lock() = Attr::default();
    let askers = qp.askers();
    qp.clear(adapter.host());
    adapter.host().wait_for_transfers(&Transfers::Of(askers));
    adapter.core().ranges.end_all_of(qp.qpn);
    queues::forget_held(adapter, qp);
    adapter.core().injection.forget_qp(qp.qpn);
    if let Some(srq) = &qp.srq {
        srq.publish(adapter.host());
    }
    adapter.end_commands(qp);
}

/// Copies the attributes that the mask names.
fn merge(attr: &mut Attr, new: &Attr, mask: AttrMask) {
    macro_rules! take {
        ($($bit:ident => $($field:ident),+;)*) => {
            $(if mask.contains(AttrMask::$bit) { $(attr.$field = new.$field;)+ })*
        };
    }
    take! {
        ACCESS_FLAGS => access;
        PKEY_INDEX => pkey_index;
        PORT => port;
        QKEY => qkey;
        AV => av;
        PATH_MTU => path_mtu;
        TIMEOUT => timeout;
        RETRY_CNT => retry_cnt;
        RNR_RETRY => rnr_retry;
        MAX_QP_RD_ATOMIC => max_rd_atomic;
        MIN_RNR_TIMER => min_rnr_timer;
        MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        DEST_QPN => dest_qpn;
        EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
        RATE_LIMIT => rate_limit;
    }
    // PSNs have 24 bits; programs may set more.
    if mask.contains(AttrMask::RQ_PSN) {
        attr.rq_psn = Psn::new(new.rq_psn.get()).get().into();
    }
    if mask.contains(AttrMask::SQ_PSN) {
        attr.sq_psn = Psn::new(new.sq_psn.get()).get().into();
    }
}

/// Copies the attributes to the requester and the responder. `addressed` is the route to the peer,
/// which may be none, or none if the route stays.
pub(super) fn configure<H: Host>(qp: &Qp<H>, addressed: Option<Option<Route>>) {
    // Held until the end, because the other end of a TCP connection also sets attributes of both
    // halves.
    let mut requester = qp.requester.lock();
    let attr = *qp.attr.lock();
    let route = addressed.unwrap_or(requester.config.route);
    // The peer is looked up again when the next message is sent.
    requester.peer = None;
    requester.config = RequesterConfig {
        dest_qpn: attr.dest_qpn,
        route,
        mtu: attr.path_mtu,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        max_rd_atomic: attr.max_rd_atomic,
        qkey: attr.qkey.get(),
        first_psn: Psn::new(attr.sq_psn.get()),
    };
    requester.limit(attr.rate_limit.get());
    let mut responder = qp.responder.lock();
    responder.access = Rights(Access::from_bits_truncate(attr.access.get()));
    responder.min_rnr_timer = attr.min_rnr_timer;
    responder.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    responder.qkey = attr.qkey.get();
    responder.source_qpn = attr.dest_qpn;
    // If the QP has a TCP connection, the peer sets this route.
    if !matches!(requester.path, Path::Tcp(_)) {
        responder.route = route.map(|route| route.reversed());
    }
    responder.first_psn = Psn::new(attr.rq_psn.get());
    responder.mtu = attr.path_mtu;
    if let Some(receiver) = &mut responder.packets {
        receiver.set_min_rnr_timer(attr.min_rnr_timer);
    }
}

pub(super) fn query_qp<H: Host>(adapter: &Adapter<H>, params: &QueryQp) -> Outcome<()> {
    if !params.attr_addr.is_multiple_of(8) {
        return Err(bad(offset_of!(QueryQp, attr_addr)));
    }
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    let attr = adapter.query_qp(&qp);
    adapter
        .host()
        .hold(Lane::SHARED)
        .write(params.attr_addr, attr.as_bytes())
        .map_err(|_| Status::BadAddress)?;
    Ok(())
}

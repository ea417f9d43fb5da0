//! The sending half of a datagram QP at work.
//!
//! Each entry names its own destination and is done when it has left: nothing comes back, and what
//! cannot be delivered is dropped in silence and counted at the sender (IBTA volume 1, 9.8). Only
//! the sender's own faults are errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vrnic_abi::cq::{Opcode, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Access, GRH_LEN, MULTICAST_QPN, QKEY_OWN};
use vrnic_abi::sq::{DatagramSeg, Flags};
use zerocopy::{FromBytes, IntoBytes};

use crate::datapath::refusal::Refusal;
use crate::datapath::responder::{outcome, receives};
use crate::datapath::send_queue::{BATCH, Turn, advance, not_now};
use crate::datapath::sgl::{Broken, Side, copy};
use crate::datapath::there::There;
use crate::datapath::turn::Site;
use crate::datapath::wqe::{Segment, Send};
use crate::datapath::wqe_fetch::Batch;
use crate::function::Function;
use crate::host::Host;
use crate::limits::MAX_MTU;
use crate::memory::tpt::Denied;
use crate::objects::completion::{Completion, Origin};
use crate::objects::multicast::{is_group, is_group_mac};
use crate::objects::qp::{Peer, Qp, Requester, Responder};
use crate::stats::Counter;
use crate::transport::network_header;
use crate::transport::packet_counters;

/// The VLAN id that means "no VLAN".
const NO_VLAN: u16 = 0xffff;

/// The receivers at a destination.
enum Target<H: Host> {
    /// A QP.
    One(Peer<H>),
    /// The members of a multicast group, on all functions.
    Group(Vec<Peer<H>>),
}

/// A destination that was looked up: usually the next datagram goes there too.
struct Route<H: Host> {
    to: DatagramSeg,
    target: Target<H>,
    /// The sender's address.
    sgid: [u8; 16],
    vlan: u16,
}

/// Result of sending a datagram.
enum Sent {
    /// The datagram has been delivered; the destination's receive CQ may have an event due.
    Delivered { event_due: bool },
    /// The datagram has been sent and is lost.
    Dropped,
    /// It could not be sent: status and the check that failed.
    Failed(Status, u32),
}

/// Lets `qp` execute entries of its send queue, which are copied to `batch`.
pub(crate) fn run<H: Host>(
    here: &Site<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
) -> Turn {
    let mut route = None;
    for _ in 0..BATCH {
        let index = requester.ci;
        let place = match batch.take(here, qp, index) {
            Ok(Some(place)) => place,
            Ok(None) => return Turn::Idle,
            Err(why) => {
                here.function.warn(|name| {
                    tracing::warn!(
                        function = name,
                        qpn = qp.qpn,
                        "the send queue has failed: {why}"
                    )
                });
                here.function.qp_failed(qp, Kind::QpFatal);
                return Turn::Failed;
            }
        };
        advance(qp, requester);
        let raw = batch.entry(&place);
        let done = match Send::parse(qp.kind, raw, index) {
            Ok(send) => {
                here.step(Counter::TxSendReq);
                execute(here, (qp, requester.config.qkey), (&send, raw), &mut route)
            }
            Err(malformed) => {
                let place = (malformed.wr_id, index);
                let status = malformed.status;
                fail(here, qp, &Completion::of_send(qp.qpn, place, malformed.opcode, status))
            }
        };
        if let Some(turn) = done.or_else(|| not_now(here.function, qp, requester)) {
            return turn;
        }
    }
    Turn::More
}

/// Executes an entry and writes its completion; `None` to go on with the next.
fn execute<H: Host>(
    here: &Site<'_, H>,
    (qp, own_qkey): (&Arc<Qp<H>>, u32),
    (send, raw): (&Send, &[u8]),
    route: &mut Option<Route<H>>,
) -> Option<Turn> {
    let mut source = Side::default();
    let too_long = send.length > here.function.mtu_bytes();
    let up = here.function.carries();
    let sent = match source.add_source((here, qp.pdn), send, raw) {
        Ok(()) if too_long => Sent::Failed(Status::LocLenErr, 0),
        Ok(()) if !up => Sent::Dropped,
        Ok(()) => {
            route_to(here, raw, route);
            route.as_ref().map_or(Sent::Dropped, |route| {
                let qkey = route.to.qkey.get();
                let qkey = if qkey & QKEY_OWN != 0 { own_qkey } else { qkey };
                deliver(here, qp, send, (&source, qkey), route)
            })
        }
        Err(denied) => Sent::Failed(denied.local_status(), denied as u32),
    };
    let place = (send.wr_id, send.index);
    let completion = Completion::of_send(qp.qpn, place, send.completed(), Status::Success);
    if let Sent::Failed(status, vendor_err) = sent {
        return fail(here, qp, &Completion { status, vendor_err, ..completion });
    }
    if up {
        packet_counters::sent(here, send, MAX_MTU);
    }
    if matches!(sent, Sent::Dropped) {
        here.step(Counter::TxRoceDiscards);
    }
    let wanted = qp.signal_all || send.flags.contains(Flags::SIGNALED);
    let failed = wanted && here.complete(&qp.send_cq, &completion).is_err();
    if let (Sent::Delivered { event_due: true }, Some(Target::One(peer))) =
        (sent, route.as_ref().map(|route| &route.target))
    {
        peer.function.contain(|| peer.function.fire(&peer.qp.recv_cq));
    }
    if failed {
        here.function.qp_failed(qp, Kind::QpFatal);
        return Some(Turn::Failed);
    }
    None
}

/// Ends an entry with an error, and the send queue with it.
fn fail<H: Host>(here: &Site<'_, H>, qp: &Qp<H>, completion: &Completion) -> Option<Turn> {
    // The state first, so that a program that sees the completion finds it.
    qp.fail_send();
    // An overflowing CQ has raised its own event.
    let _overflow = here.complete(&qp.send_cq, completion);
    Some(Turn::Failed)
}

/// Makes `route` the way to where the entry `raw` wants to go; none when there is none.
fn route_to<H: Host>(here: &Site<'_, H>, raw: &[u8], route: &mut Option<Route<H>>) {
    let Some(to) = Send::destination(raw) else {
        *route = None;
        return;
    };
    if route.as_ref().is_none_or(|route| route.to.as_bytes() != to.as_bytes()) {
        *route = find(here.function, to);
    }
}

/// Looks a destination up: the station must hold the address on the VLAN of the source's.
fn find<H: Host>(function: &Function<H>, to: &DatagramSeg) -> Option<Route<H>> {
    let source = function.objects.gid(to.av.sgid_index.get())?;
    let vlan = source.vlan.get();
    let target = if is_group_mac(to.av.dmac) {
        Target::Group(members(function, to, vlan)?)
    } else {
        Target::One(station(function, to, vlan)?)
    };
    let to = DatagramSeg::read_from_bytes(to.as_bytes()).ok()?;
    Some(Route { to, target, sgid: source.gid, vlan })
}

/// The QP behind a station.
fn station<H: Host>(function: &Function<H>, to: &DatagramSeg, vlan: u16) -> Option<Peer<H>> {
    let peer = function.fabric().function(to.av.dmac)?;
    if !peer.objects.has_gid(to.av.dgid, vlan) {
        return None;
    }
    let qp = peer.qp(to.dest_qpn.get())?;
    qp.kind.is_datagram().then_some(Peer { function: peer, qp })
}

/// The members of a group, on this function as on others that are on the VLAN.
fn members<H: Host>(function: &Function<H>, to: &DatagramSeg, vlan: u16) -> Option<Vec<Peer<H>>> {
    if to.dest_qpn.get() != MULTICAST_QPN || !is_group(&to.av.dgid) {
        return None;
    }
    let mut members = Vec::new();
    for peer in function.fabric().all() {
        if peer.objects.has_vlan(vlan) {
            let here = peer.objects.groups.members(&to.av.dgid);
            members.extend(here.into_iter().map(|qp| Peer { function: Arc::clone(&peer), qp }));
        }
    }
    Some(members)
}

/// Brings a datagram to the receivers at its destination.
fn deliver<H: Host>(
    here: &Site<'_, H>,
    qp: &Qp<H>,
    send: &Send,
    source: (&Side<'_>, u32),
    route: &Route<H>,
) -> Sent {
    let members = match &route.target {
        Target::One(peer) => return deliver_to(here, qp, send, source, (route, peer)),
        Target::Group(members) => members,
    };
    let mut all = Sent::Dropped;
    for member in members {
        match deliver_to(here, qp, send, source, (route, member)) {
            Sent::Delivered { event_due } => {
                if event_due {
                    member.function.contain(|| member.function.fire(&member.qp.recv_cq));
                }
                all = Sent::Delivered { event_due: false };
            }
            Sent::Dropped => {}
            failed @ Sent::Failed(..) => return failed,
        }
    }
    all
}

/// Brings a datagram to one QP.
fn deliver_to<H: Host>(
    here: &Site<'_, H>,
    qp: &Qp<H>,
    send: &Send,
    source: (&Side<'_>, u32),
    (route, peer): (&Route<H>, &Peer<H>),
) -> Sent {
    let Peer { function, qp: to } = peer;
    if !function.carries() || !to.receives() {
        return Sent::Dropped;
    }
    if send.length > function.mtu_bytes() {
        return Sent::Dropped;
    }
    let there = There::new(function, to);
    let brought = catch_unwind(AssertUnwindSafe(|| bring(here, qp, send, source, (route, &there))));
    brought.unwrap_or_else(|panic| {
        there.charge(panic);
        Sent::Dropped
    })
}

/// Brings a datagram to a QP that receives.
fn bring<H: Host>(
    here: &Site<'_, H>,
    qp: &Qp<H>,
    send: &Send,
    (source, qkey): (&Side<'_>, u32),
    (route, there): (&Route<H>, &There<'_, H>),
) -> Sent {
    let to = there.qp;
    let mut responder = to.responder.lock();
    // It may have been reset or destroyed before the lock was ours.
    if responder.qkey != qkey || !to.receives() {
        return Sent::Dropped;
    }
    let (header, ipv4) = network_header::header(&route.sgid, &route.to, payload(send));
    match place(here, there, &mut responder, (source, &header, send.length)) {
        Ok(()) => {}
        Err(Fault::Source) => {
            return Sent::Failed(Denied::Memory.local_status(), Denied::Memory as u32);
        }
        Err(Fault::Dropped) => return Sent::Dropped,
        Err(Fault::Receiver(refusal)) => {
            there.act(|| outcome::fail(there, &mut responder, refusal));
            return Sent::Dropped;
        }
    }
    let Some(recv) = responder.current.take() else { return Sent::Dropped };
    let vlan = Some(route.vlan).filter(|vlan| *vlan != NO_VLAN);
    let completion = Completion {
        wr_id: recv.wr_id,
        wqe_index: recv.index,
        qpn: to.qpn,
        opcode: Opcode::Recv,
        status: Status::Success,
        vendor_err: 0,
        // A datagram is short.
        byte_len: u32::try_from(send.length).unwrap_or(u32::MAX).saturating_add(GRH_LEN),
        imm: send.imm(),
        solicited: send.flags.contains(Flags::SOLICITED),
        src_qpn: qp.qpn,
        origin: Some(Origin { ipv4, smac: here.function.mac(), vlan }),
        srqn: 0,
        key: None,
    };
    match there.act(|| outcome::complete(there, &mut responder, &completion)) {
        Ok(()) => {
            packet_counters::taken(&there.site, send);
            Sent::Delivered { event_due: std::mem::take(&mut responder.event_due) }
        }
        Err(_) => Sent::Dropped,
    }
}

/// Bytes behind the transport's headers.
fn payload(send: &Send) -> u16 {
    let imm = if send.imm().is_some() { 4 } else { 0 };
    u16::try_from(send.length).unwrap_or(u16::MAX).saturating_add(imm)
}

/// Why a datagram was not placed.
enum Fault {
    /// The sender's memory is not there.
    Source,
    /// No receive, or one that is too short: dropped, and the receive is kept.
    Dropped,
    /// The receive or its memory is faulty: the receiver fails.
    Receiver(Refusal),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Receiver(refusal)
    }
}

/// Copies header and data into the next receive, which becomes the current one.
fn place<H: Host>(
    here: &Site<'_, H>,
    there: &There<'_, H>,
    responder: &mut Responder,
    (source, header, length): (&Side<'_>, &network_header::Header, u64),
) -> Result<(), Fault> {
    if responder.current.is_none() {
        responder.current = there.act(|| receives::next(there, responder))?;
    }
    let Some(recv) = responder.current.as_ref() else {
        there.site.step(Counter::OutOfBuffer);
        return Err(Fault::Dropped);
    };
    let segments = recv.segments.as_ref().ok_or(Refusal::Malformed)?;
    if segments.total() < length + u64::from(GRH_LEN) {
        return Err(Fault::Dropped);
    }
    let (mut head, mut body) = (Side::default(), Side::default());
    let (mut left, mut left_of_body) = (GRH_LEN, length);
    for Segment { addr, len, key } in segments.iter(&responder.raw) {
        let own = (&there.site, recv.pdn);
        let first = len.min(left);
        left -= first;
        // What the datagram does not fill is not looked at; no longer than the segment.
        let filled = u64::from(len - first).min(left_of_body);
        left_of_body -= filled;
        let rest = Segment { addr: addr.wrapping_add(first.into()), len: filled as u32, key };
        head.add(own, &Segment { addr, len: first, key }, Access::LOCAL_WRITE)
            .and_then(|()| body.add(own, &rest, Access::LOCAL_WRITE))
            .map_err(|_| Refusal::Operational)?;
    }
    let mut prefix = Side::default();
    prefix.set_inline(header);
    let (from, to) = (&here.memory, &there.site.memory);
    copy::<H>((&prefix, to), (&head, to), 0, GRH_LEN.into()).map_err(|_| Refusal::Operational)?;
    copy::<H>((source, from), (&body, to), 0, length).map_err(|broken| match broken {
        Broken::Source => Fault::Source,
        Broken::Target => Refusal::Operational.into(),
    })?;
    there.site.moved(length);
    here.moved(length);
    Ok(())
}

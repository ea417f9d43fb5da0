//! The sending half of a datagram QP.
//!
//! Each entry names its own destination and is complete when it has been sent. There is no answer,
//! and a datagram that cannot be delivered is dropped without an error and counted at the sender
//! (IBTA volume 1, 9.8). Only the sender's own faults are errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{MULTICAST_QPN, QKEY_OWN};
use vrnic_abi::sq::{DatagramSeg, Flags};
use vrnic_roce::wire;
use zerocopy::{FromBytes, IntoBytes};

use crate::datapath::responder::outcome;
use crate::datapath::send_queue::{BATCH, Entry, Taken, Turn, not_now, take};
use crate::datapath::sgl::SgList;
use crate::datapath::there::There;
use crate::datapath::transport::datagram_receive::{Arrived, Incoming, NotPlaced, place, received};
use crate::datapath::transport::fanout::{self, Members};
use crate::datapath::transport::packet_counters;
use crate::datapath::transport::packets::datagrams::{self, Leaving};
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::{CopyFault, Host};
use crate::limits::MAX_MTU;
use crate::memory::tpt::Denied;
use crate::network_header::{self, NetworkHeader};
use crate::objects::completion::{Completion, Origin, WrError};
use crate::objects::multicast::{is_group, is_group_mac};
use crate::objects::qp::{Peer, Progress, Qp, Requester};
use crate::requests::wqe::{Malformed, SendWqe};
use crate::slice::cost;
use crate::stats::Counter;

/// Time in nanoseconds before a datagram is tried again when the network has no room for it.
const PAUSE_NS: u64 = 10_000;
/// The VLAN id that means "no VLAN".
const NO_VLAN: u16 = 0xffff;

/// The receivers at a destination.
enum Target<H: Host> {
    /// A QP.
    One(Peer<H>),
    /// A station that is reached by packets.
    Packets(wire::Path),
    /// Members of a multicast group, on all adapters, which are looked up during the delivery.
    /// Packets are sent to the members outside of the daemon, if there is a path to them.
    Group(Option<Box<Members<H>>>, Option<wire::Path>),
}

/// The destination of the last datagram. The next one usually has the same.
struct Route<H: Host> {
    to: DatagramSeg,
    target: Target<H>,
    /// The sender's address.
    sgid: [u8; 16],
    vlan: u16,
}

/// The fields of a datagram's header that the receiver sees.
#[derive(Clone, Copy)]
struct Way<'a> {
    to: &'a DatagramSeg,
    sgid: &'a [u8; 16],
    vlan: u16,
}

/// The result of sending a datagram.
enum Sent {
    /// The datagram has been delivered. The destination's receive CQ may have an event due.
    Delivered { event_due: bool },
    /// The datagram has been sent and is lost.
    Dropped,
    /// It could not be sent.
    Failed(WrError),
    /// The datagram must still be delivered to members of its group, in a later poll.
    Underway,
    /// The network has no room for it at present.
    Later,
}

/// Executes entries of the send queue of `qp`, which are copied to `batch`.
pub(crate) fn run<H: Host>(
    (network, here): (Network<'_, H>, &TurnContext<'_, H>),
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
) -> Turn {
    let (mut route, mut entry) = (None, Entry::EMPTY);
    for _ in 0..BATCH {
        match take(here, qp, requester, batch, &mut entry) {
            Taken::Entry => {}
            Taken::Empty => return Turn::Idle,
            Taken::Malformed(Malformed { id, opcode, status }) => {
                return fail(here, qp, &Completion::of_send(qp.qpn, id, opcode, status));
            }
            Taken::Failed => return Turn::Failed,
        }
        let raw = batch.entry(&entry.place);
        let done = execute((network, here), (qp, requester), (&entry.send, raw), &mut route);
        if let Some(turn) = done.or_else(|| not_now(here.core, qp, requester)) {
            return turn;
        }
        if here.slice.is_over() {
            break;
        }
    }
    Turn::More
}

/// Executes an entry and writes its completion. Returns `None` if the next entry can be executed.
fn execute<H: Host>(
    (network, here): (Network<'_, H>, &TurnContext<'_, H>),
    (qp, requester): (&Arc<Qp<H>>, &mut Requester<H>),
    (send, raw): (&SendWqe, &[u8]),
    route: &mut Option<Route<H>>,
) -> Option<Turn> {
    let mut source = SgList::default();
    let too_long = send.length > here.core.mtu_bytes();
    let up = here.core.carries();
    let sent = match source.add_source((here, qp.pdn), send, raw) {
        Ok(()) if too_long => Sent::Failed(Status::LocLenErr.into()),
        Ok(()) if !up => Sent::Dropped,
        Ok(()) => {
            route_to(network, qp, raw, route);
            let own_qkey = requester.config.qkey;
            route.as_mut().map_or(Sent::Dropped, |route| {
                let qkey = route.to.qkey.get();
                let qkey = if qkey & QKEY_OWN != 0 { own_qkey } else { qkey };
                let to = route.to.dest_qpn;
                let datagram = Leaving { send, source: &source, to, qkey };
                deliver((network, here), qp, &datagram, (route, &mut requester.progress))
            })
        }
        Err(denied) => Sent::Failed(denied.into()),
    };
    if matches!(sent, Sent::Underway) {
        requester.keep(send, raw, 0);
        return Some(Turn::More);
    }
    if matches!(sent, Sent::Later) {
        requester.keep(send, raw, 0);
        let until = here.host().now().saturating_add(PAUSE_NS);
        requester.not_before = Some(until);
        return Some(Turn::Wait(until));
    }
    let completion = Completion::of_send(qp.qpn, send.id(), send.completed(), Status::Success);
    if let Sent::Failed(WrError { status, vendor_err }) = sent {
        return Some(fail(here, qp, &Completion { status, vendor_err, ..completion }));
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
        fire(here, peer);
    }
    if failed {
        qp.failed(here.core, Kind::QpFatal);
        return Some(Turn::Failed);
    }
    None
}

/// Ends an entry with an error, and the send queue with it.
fn fail<H: Host>(here: &TurnContext<'_, H>, qp: &Qp<H>, completion: &Completion) -> Turn {
    // The state is set first, so that a program that sees the completion finds it.
    qp.fail_send();
    // The CQ has already raised its own event for the overflow.
    let _overflow = here.complete(&qp.send_cq, completion);
    Turn::Failed
}

/// Reports an event of a destination's receive CQ.
fn fire<H: Host>(here: &TurnContext<'_, H>, peer: &Peer<H>) {
    here.slice.charge(cost::EVENT);
    peer.core.contain(|| peer.qp.recv_cq.fire(&peer.core.caller(here.slice.lane())));
}

/// Sets `route` to the destination of the entry `raw`, or to none if there is no such destination.
fn route_to<H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    raw: &[u8],
    route: &mut Option<Route<H>>,
) {
    let Some(to) = SendWqe::destination(raw) else {
        *route = None;
        return;
    };
    if route.as_ref().is_none_or(|route| route.to.as_bytes() != to.as_bytes()) {
        *route = find(network, qp, to);
    }
}

/// Looks a destination up. Its station must have the address on the VLAN of the source address.
fn find<H: Host>(network: Network<'_, H>, qp: &Qp<H>, to: &DatagramSeg) -> Option<Route<H>> {
    let source = network.own.gid(to.av.sgid_index.get())?;
    let vlan = source.vlan.get();
    let target = if is_group_mac(to.av.dmac) {
        if to.dest_qpn.get() != MULTICAST_QPN || !is_group(&to.av.dgid) {
            return None;
        }
        let outside =
            network.fabric.has_uplink().then(|| datagrams::way(network, qp, to)).flatten();
        Target::Group(None, outside)
    } else if network.fabric.needs_packets(to.av.dmac) {
        // A packet has room for 24 bits, and the largest number stands for a group.
        if to.dest_qpn.get() >= MULTICAST_QPN {
            return None;
        }
        Target::Packets(datagrams::way(network, qp, to)?)
    } else {
        Target::One(station(network, to, vlan)?)
    };
    let to = DatagramSeg::read_from_bytes(to.as_bytes()).ok()?;
    Some(Route { to, target, sgid: source.gid, vlan })
}

/// Returns the QP behind a station.
fn station<H: Host>(network: Network<'_, H>, to: &DatagramSeg, vlan: u16) -> Option<Peer<H>> {
    let peer = network.fabric.station(to.av.dmac)?;
    if !peer.has_gid(to.av.dgid, vlan) {
        return None;
    }
    let qp = peer.qp(to.dest_qpn)?;
    qp.kind.is_datagram().then(|| Peer { core: Arc::clone(peer.core()), qp })
}

/// Delivers a datagram to its destination. `progress` records how far it has come.
fn deliver<H: Host>(
    (network, here): (Network<'_, H>, &TurnContext<'_, H>),
    qp: &Qp<H>,
    datagram: &Leaving<'_>,
    (route, progress): (&mut Route<H>, &mut Option<Progress>),
) -> Sent {
    let Route { to, target, sgid, vlan } = route;
    let way = Way { to, sgid, vlan: *vlan };
    let leave = |path: &wire::Path| sent(datagrams::send((network, here), qp, path, datagram));
    match target {
        Target::One(peer) => {
            if let Some(watcher) = network.fabric.watch.of_messages() {
                datagrams::show((network, watcher), (here, qp), to, datagram);
            }
            deliver_to(here, qp, datagram, (way, peer))
        }
        Target::Packets(path) => {
            let station = path.ethernet.destination;
            let room = network.fabric.room(here.core.mac(), station);
            if room > 0 { leave(path) } else { Sent::Later }
        }
        Target::Group(found, outside) => {
            if let (None, Some(path)) = (&progress, outside)
                && let Sent::Failed(error) = leave(path)
            {
                return Sent::Failed(error);
            }
            let progress = progress.get_or_insert_with(|| fanout::begin(network.fabric));
            deliver_to_group((network, here), (qp, datagram), way, (found, progress))
        }
    }
}

/// Delivers a datagram to the members of its group in this daemon. `found` are those that come
/// next, if they have been looked up.
fn deliver_to_group<H: Host>(
    (network, here): (Network<'_, H>, &TurnContext<'_, H>),
    (qp, datagram): (&Qp<H>, &Leaving<'_>),
    way: Way<'_>,
    (found, progress): (&mut Option<Box<Members<H>>>, &mut Progress),
) -> Sent {
    while let Some(next) = progress.next {
        let members = match found.take().filter(|members| members.begin_at(next)) {
            Some(members) => members,
            None => {
                let group = &way.to.av.dgid;
                Members::find(network.fabric, group, way.vlan, next, here.slice).into()
            }
        };
        let mut failed = None;
        members.each(progress, here.slice, |member| {
            match deliver_to(here, qp, datagram, (way, member)) {
                Sent::Delivered { event_due } => {
                    if event_due {
                        fire(here, member);
                    }
                    return Some(true);
                }
                Sent::Failed(error) => failed = Some(Sent::Failed(error)),
                Sent::Dropped | Sent::Underway | Sent::Later => return Some(false),
            }
            None
        });
        if let Some(failed) = failed {
            return failed;
        }
        *found = Some(members);
        if here.slice.is_over() && progress.next.is_some() {
            return Sent::Underway;
        }
    }
    if progress.delivered { Sent::Delivered { event_due: false } } else { Sent::Dropped }
}

/// Returns the result of sending a datagram as a packet, which is never acknowledged.
fn sent(left: Result<(), CopyFault>) -> Sent {
    match left {
        Ok(()) => Sent::Delivered { event_due: false },
        Err(_) => Sent::Failed(Denied::Memory.into()),
    }
}

/// Delivers a datagram to one QP.
fn deliver_to<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    datagram: &Leaving<'_>,
    (way, peer): (Way<'_>, &Peer<H>),
) -> Sent {
    let Peer { core, qp: to } = peer;
    here.slice.charge(cost::DELIVERY);
    if !core.carries() || !to.receives() {
        return Sent::Dropped;
    }
    if datagram.send.length > core.mtu_bytes() {
        return Sent::Dropped;
    }
    let there = There::new(core, to, here.slice);
    let brought = catch_unwind(AssertUnwindSafe(|| bring(here, qp, datagram, (way, &there))));
    brought.unwrap_or_else(|panic| {
        there.charge(panic);
        Sent::Dropped
    })
}

/// Delivers a datagram to a QP that can receive.
fn bring<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    datagram: &Leaving<'_>,
    (way, there): (Way<'_>, &There<'_, H>),
) -> Sent {
    let (to, Leaving { send, source, qkey, .. }) = (there.qp, *datagram);
    let mut responder = to.responder.lock();
    // The QP may have been reset or destroyed before the lock was acquired.
    if responder.qkey != qkey || !to.receives() {
        return Sent::Dropped;
    }
    let NetworkHeader { bytes, ipv4 } = network_header::header(way.sgid, way.to, payload(send));
    let incoming = Incoming { source, header: &bytes, length: send.length };
    match place(here, there, &mut responder, &incoming) {
        Ok(()) => {}
        Err(NotPlaced::Source) => return Sent::Failed(Denied::Memory.into()),
        Err(NotPlaced::Dropped) => return Sent::Dropped,
        Err(NotPlaced::Receiver(refusal)) => {
            there.act(|| outcome::fail(there, &mut responder, refusal));
            return Sent::Dropped;
        }
    }
    let arrived = Arrived {
        length: send.length,
        imm: send.imm(),
        solicited: send.flags.contains(Flags::SOLICITED),
        src_qpn: qp.qpn,
        origin: Origin { ipv4, smac: here.core.mac(), vlan: Some(way.vlan).filter(is_vlan) },
    };
    match received(there, &mut responder, &arrived) {
        Ok(()) => {
            packet_counters::taken(&there.turn, send);
            Sent::Delivered { event_due: std::mem::take(&mut responder.event_due) }
        }
        Err(_) => Sent::Dropped,
    }
}

/// Returns whether the number names a VLAN.
fn is_vlan(vlan: &u16) -> bool {
    *vlan != NO_VLAN
}

/// Returns the number of bytes behind the transport headers.
fn payload(send: &SendWqe) -> u16 {
    let imm = if send.imm().is_some() { 4 } else { 0 };
    u16::try_from(send.length).unwrap_or(u16::MAX).saturating_add(imm)
}

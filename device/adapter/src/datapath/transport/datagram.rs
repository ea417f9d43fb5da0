//! The sending half of a datagram QP.
//!
//! Each entry names its own destination and is complete when it has been sent. There is no answer,
//! and a datagram that cannot be delivered is dropped without an error and counted at the sender
//! (IBTA volume 1, 9.8). Only the sender's own faults are errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vrnic_abi::Qpn;
use vrnic_abi::admin::QpOptions;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{MULTICAST_QPN, NO_VLAN, QKEY_OWN};
use vrnic_abi::sq::{DatagramSeg, Flags};
use vrnic_faults::Site;
use vrnic_packet::MacAddr;
use vrnic_roce::wire;
use zerocopy::{FromBytes, IntoBytes};

use crate::datapath::complete::Completer;
use crate::datapath::injected;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::responder::outcome;
use crate::datapath::send_queue::Turn;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::datagram_receive::{Arrived, Incoming, NotPlaced, place, received};
use crate::datapath::transport::executing::{Executor, execute_all, wait_for_pages, wait_for_room};
use crate::datapath::transport::fanout::{self, Members};
use crate::datapath::transport::packet_counters;
use crate::datapath::transport::packets::datagrams::{self, Leaving};
use crate::datapath::transport::peers::{Fabric, Network};
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::ethernet::Heading;
use crate::host::Host;
use crate::limits::MAX_MTU;
use crate::memory::tpt::Denied;
use crate::network_header::{self, NetworkHeader};
use crate::objects::completion::{Origin, WrError};
use crate::objects::multicast::is_group;
use crate::objects::network::addresses::in_vlan;
use crate::objects::network::gids::GidEntry;
use crate::objects::qp::{Peer, Progress, Qp, Requester};
use crate::requests::wqe::SendWqe;
use crate::slice::cost;
use crate::stats::Counter;

/// The receivers at a destination.
enum Target<H: Host> {
    /// A QP of an adapter of this daemon.
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
    source: GidEntry,
}

/// A turn of a datagram QP.
struct DatagramTurn<'a, 't, H: Host> {
    network: Network<'a, H>,
    here: &'a TurnContext<'t, H>,
    qp: &'a Arc<Qp<H>>,
    requester: &'a mut Requester<H>,
    route: Option<Route<H>>,
}

/// The delivery of a datagram to QPs of this daemon.
struct Delivery<'a, 't, H: Host> {
    here: &'a TurnContext<'t, H>,
    datagram: &'a Leaving<'a>,
    to: &'a DatagramSeg,
    /// The sender, which the receiver sees.
    from: GidEntry,
    /// True if QPs of the sender's function do not receive it as members of its group.
    blocked: bool,
}

/// The result of sending a datagram.
enum Sent {
    /// The datagram has been delivered. The destination's receive CQ may have an event due.
    Delivered { event_due: bool },
    /// The datagram has been sent and is lost.
    Dropped,
    /// The datagram could not be sent.
    Failed(WrError),
    /// The datagram must still be delivered to members of its group, in a later poll.
    Underway,
    /// The network has no room for it at present.
    Later,
    /// Pages of the sender's memory are absent, and have been requested.
    Absent,
}

/// Executes entries of the send queue of `qp`, which are copied to `batch`.
pub(crate) fn run<H: Host>(
    network: Network<'_, H>,
    here: &TurnContext<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
) -> Turn {
    let mut turn = DatagramTurn { network, here, qp, requester, route: None };
    execute_all(here, qp, &mut turn, batch)
}

impl<H: Host> Executor<H> for DatagramTurn<'_, '_, H> {
    fn requester(&mut self) -> &mut Requester<H> {
        self.requester
    }

    fn execute(&mut self, send: &SendWqe, raw: &[u8], _done: u64) -> Option<Turn> {
        let (here, qp) = (self.here, self.qp);
        let mut source = SgList::default();
        let too_long = send.length > here.core.mtu_bytes();
        let up = here.core.carries();
        let sent = match source.add_source(here, qp.user(), send, raw) {
            Ok(()) if too_long => Sent::Failed(Status::LocLenErr.into()),
            Ok(()) if !up => Sent::Dropped,
            Ok(()) => {
                self.route_to(raw);
                self.deliver(send, &source)
            }
            Err(denied) => Sent::Failed(denied.into()),
        };
        if matches!(sent, Sent::Underway) {
            self.requester.keep(send, raw, 0);
            return Some(Turn::More);
        }
        if matches!(sent, Sent::Absent) {
            return Some(wait_for_pages(here, self.requester, send, raw));
        }
        if matches!(sent, Sent::Later) {
            return Some(wait_for_room(here, self.requester, send, raw, 0));
        }
        let completer = Completer { here, qp };
        let finish = |result| completer.finish(send, send.completed(), None, result);
        if let Sent::Failed(error) = sent {
            return finish(Err(error));
        }
        if up {
            packet_counters::sent(here, send, MAX_MTU);
        }
        if matches!(sent, Sent::Dropped) {
            here.step(Counter::TxRoceDiscards);
        }
        let end = finish(Ok(()));
        if let (Sent::Delivered { event_due: true }, Some(Target::One(peer))) =
            (sent, self.route.as_ref().map(|route| &route.target))
        {
            fire(here, peer);
        }
        end
    }
}

impl<H: Host> DatagramTurn<'_, '_, H> {
    /// Looks up the destination of the entry `raw`, unless the last datagram had the same one.
    fn route_to(&mut self, raw: &[u8]) {
        let Some(to) = SendWqe::destination(raw) else {
            self.route = None;
            return;
        };
        if self.route.as_ref().is_none_or(|route| route.to.as_bytes() != to.as_bytes()) {
            self.route = find(self.network, self.qp.qpn, to);
        }
    }

    /// Delivers a datagram, whose data is in `source`, to its destination, if that exists.
    fn deliver(&mut self, send: &SendWqe, source: &SgList<'_>) -> Sent {
        let Self { network, here, qp, requester, route } = self;
        let Some(Route { to, target, source: from }) = route else { return Sent::Dropped };
        let qkey = to.qkey.get();
        let qkey = if qkey & QKEY_OWN != 0 { requester.config.qkey } else { qkey };
        let datagram = Leaving { from: qp.qpn, send, source, to: to.dest_qpn, qkey };
        let leave = |path: &wire::Path| match datagrams::send(*network, here, path, &datagram) {
            Ok(()) => Sent::Delivered { event_due: false },
            Err(_) => match source.fault(here, 0..send.length) {
                Denied::Absent => Sent::Absent,
                denied => Sent::Failed(denied.into()),
            },
        };
        let blocked = qp.options.contains(QpOptions::BLOCK_LOOPBACK);
        let delivery = Delivery { here, datagram: &datagram, to, from: *from, blocked };
        match target {
            Target::One(peer) => {
                if let Some(watcher) = network.fabric.watch.of_all() {
                    datagrams::show(*network, here, watcher, to, &datagram);
                }
                if here.core.injection.looks_at(Site::Message)
                    && injected::loses(here, qp.qpn, send)
                {
                    return Sent::Dropped;
                }
                delivery.to_one(peer)
            }
            Target::Packets(path) => {
                let heading = Heading::of(&path.ethernet, path.network.traffic_class);
                let room = network.fabric.room(here.core.mac(), heading);
                if room > 0 { leave(path) } else { Sent::Later }
            }
            Target::Group(found, outside) => {
                if let (None, Some(path)) = (&requester.progress, outside)
                    && let unsent @ (Sent::Failed(_) | Sent::Absent) = leave(path)
                {
                    return unsent;
                }
                let progress =
                    requester.progress.get_or_insert_with(|| fanout::begin(network.fabric));
                delivery.to_group(network.fabric, found, progress)
            }
        }
    }
}

/// Reports an event of a destination's receive CQ.
fn fire<H: Host>(here: &TurnContext<'_, H>, peer: &Peer<H>) {
    here.slice.charge(cost::EVENT);
    peer.core.contain(|| peer.qp.recv_cq.fire(&peer.core.caller(here.slice.lane())));
}

/// Looks a destination up. Its station must have the address on the VLAN of the source address.
fn find<H: Host>(network: Network<'_, H>, from: Qpn, to: &DatagramSeg) -> Option<Route<H>> {
    let source = network.own.gids.get(to.av.sgid_index.get())?;
    let target = if MacAddr(to.av.dmac).is_group() {
        if to.dest_qpn.get() != MULTICAST_QPN || !is_group(&to.av.dgid) {
            return None;
        }
        let outside =
            network.fabric.has_uplink().then(|| datagrams::way(network, from, to)).flatten();
        Target::Group(None, outside)
    } else if network.fabric.needs_packets(in_vlan(MacAddr(to.av.dmac), source.vlan)) {
        // A packet has room for 24 bits, and the largest number stands for a group.
        if to.dest_qpn.get() >= MULTICAST_QPN {
            return None;
        }
        Target::Packets(datagrams::way(network, from, to)?)
    } else {
        Target::One(station(network, to, source.vlan)?)
    };
    let to = DatagramSeg::read_from_bytes(to.as_bytes()).ok()?;
    Some(Route { to, target, source })
}

/// Returns the QP behind a station.
fn station<H: Host>(network: Network<'_, H>, to: &DatagramSeg, vlan: u16) -> Option<Peer<H>> {
    let peer = network.fabric.station(in_vlan(MacAddr(to.av.dmac), vlan))?;
    if !peer.gids.has(&GidEntry { gid: to.av.dgid, vlan, mac: MacAddr(to.av.dmac) }) {
        return None;
    }
    let qp = peer.qp(to.dest_qpn)?;
    qp.kind.is_datagram().then(|| Peer { core: Arc::clone(peer.core()), qp })
}

impl<H: Host> Delivery<'_, '_, H> {
    /// Delivers it to the members of its group in this daemon. `found` are the next members, if
    /// they have been looked up. `progress` records which members have it.
    fn to_group(
        &self,
        fabric: &Fabric<H>,
        found: &mut Option<Box<Members<H>>>,
        progress: &mut Progress,
    ) -> Sent {
        let slice = self.here.slice;
        while let Some(next) = progress.next {
            let members = match found.take().filter(|members| members.begin_at(next)) {
                Some(members) => members,
                None => {
                    let group = &self.to.av.dgid;
                    Members::find(fabric, group, self.from.vlan, next, slice).into()
                }
            };
            let mut failed = None;
            members.each(progress, slice, |member| {
                if self.blocked && Arc::ptr_eq(&member.core, self.here.core) {
                    return Some(false);
                }
                match self.to_one(member) {
                    Sent::Delivered { event_due } => {
                        if event_due {
                            fire(self.here, member);
                        }
                        return Some(true);
                    }
                    Sent::Failed(error) => failed = Some(Sent::Failed(error)),
                    Sent::Absent => failed = Some(Sent::Absent),
                    Sent::Dropped | Sent::Underway | Sent::Later => return Some(false),
                }
                None
            });
            if let Some(failed) = failed {
                return failed;
            }
            *found = Some(members);
            if slice.is_over() && progress.next.is_some() {
                return Sent::Underway;
            }
        }
        if progress.delivered { Sent::Delivered { event_due: false } } else { Sent::Dropped }
    }

    /// Delivers it to one QP.
    fn to_one(&self, Peer { core, qp: to }: &Peer<H>) -> Sent {
        let here = self.here;
        here.slice.charge(cost::DELIVERY);
        if !core.carries() || !to.receives() {
            return Sent::Dropped;
        }
        if self.datagram.send.length > core.mtu_bytes() {
            return Sent::Dropped;
        }
        let there = PeerContext::new(core, to, here.slice);
        let brought = catch_unwind(AssertUnwindSafe(|| self.bring(&there)));
        brought.unwrap_or_else(|panic| {
            there.charge(panic);
            Sent::Dropped
        })
    }

    /// Delivers it to a QP that can receive.
    fn bring(&self, there: &PeerContext<'_, H>) -> Sent {
        let (here, to) = (self.here, there.qp);
        let Leaving { from, send, source, qkey, .. } = *self.datagram;
        let mut responder = to.responder.lock();
        // The QP may have been reset or destroyed before the lock was acquired.
        if responder.qkey != qkey || !to.receives() {
            return Sent::Dropped;
        }
        let NetworkHeader { bytes, ipv4 } =
            network_header::header(&self.from.gid, self.to, payload(send));
        let incoming = Incoming { source, header: &bytes, length: send.length };
        match place(here, there, &mut responder, &incoming) {
            Ok(()) => {}
            Err(NotPlaced::Source(Denied::Absent)) => return Sent::Absent,
            Err(NotPlaced::Source(denied)) => return Sent::Failed(denied.into()),
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
            src_qpn: from,
            origin: Origin {
                ipv4,
                smac: self.from.mac,
                vlan: Some(self.from.vlan).filter(is_vlan),
            },
        };
        match received(there, &mut responder, &arrived) {
            Ok(()) => {
                packet_counters::taken(&there.turn, send);
                Sent::Delivered { event_due: std::mem::take(&mut responder.event_due) }
            }
            Err(_) => Sent::Dropped,
        }
    }
}

/// Returns whether the number names a VLAN.
fn is_vlan(vlan: &u16) -> bool {
    *vlan != NO_VLAN
}

/// Returns the number of bytes after the transport headers.
fn payload(send: &SendWqe) -> u16 {
    let imm = if send.imm().is_some() { 4 } else { 0 };
    u16::try_from(send.length).unwrap_or(u16::MAX).saturating_add(imm)
}

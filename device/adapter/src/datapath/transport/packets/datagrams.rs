//! Datagrams to and from stations outside of the daemon.

use std::net::IpAddr;
use std::sync::Arc;

use vrnic_abi::qp::NO_VLAN;
use vrnic_abi::sq::{DatagramSeg, Flags};
use vrnic_packet::ethernet::vlan_of;
use vrnic_packet::ip::Addresses;
use vrnic_roce::datagram::{self, Incoming, Outgoing, network_header};
use vrnic_roce::wire::{self, Frame as RoceFrame, Mtu, Qpn};
use vrnic_roce::{Discard, Psn};

use super::connect::{Ends, path};
use super::frames;
use super::requests::Received;
use crate::datapath::constants::MEMBERS_AT_ONCE;
use crate::datapath::peer_context::PeerContext;
use crate::datapath::responder::outcome;
use crate::datapath::sgl::SgList;
use crate::datapath::transport::datagram_receive::{self, Arrived, NotPlaced, place};
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::TurnContext;
use crate::ethernet::Frame;
use crate::host::{CopyFault, Host};
use crate::objects::completion::Origin;
use crate::objects::multicast::Member;
use crate::objects::network::gids::GidEntry;
use crate::objects::qp::Qp;
use crate::requests::wqe::SendWqe;
use crate::slice::{Slice, cost};
use crate::stats::Counter;
use crate::watch::Watcher;

/// A datagram to send.
#[derive(Clone, Copy)]
pub(crate) struct Leaving<'a> {
    /// The sending QP.
    pub(crate) from: vrnic_abi::Qpn,
    /// The work request that sends the datagram.
    pub(crate) send: &'a SendWqe,
    /// The memory of its data.
    pub(crate) source: &'a SgList<'a>,
    /// The destination QP.
    pub(crate) to: vrnic_abi::Qpn,
    /// The Q_Key that its receiver must have.
    pub(crate) qkey: u32,
}

/// Returns the path of datagrams to a destination, or `None` if its addresses have different
/// families.
pub(crate) fn way<H: Host>(
    network: Network<'_, H>,
    from: vrnic_abi::Qpn,
    to: &DatagramSeg,
) -> Option<wire::Path> {
    path(network.own, &to.av, Ends { own: from, peer: to.dest_qpn })
}

/// Sends a datagram as a packet.
///
/// # Errors
/// Returns an error if the sender's memory is not accessible.
pub(crate) fn send<H: Host>(
    network: Network<'_, H>,
    here: &TurnContext<'_, H>,
    path: &wire::Path,
    datagram: &Leaving<'_>,
) -> Result<(), CopyFault> {
    let mut outbox = Vec::with_capacity(1);
    build(here, path, datagram, &mut outbox)?;
    here.slice.charge_copies(network.transmit(datagram.from, &mut outbox));
    Ok(())
}

/// Reports a datagram for a QP of the daemon, or for a group, to the watcher.
#[cold]
pub(crate) fn show<H: Host>(
    network: Network<'_, H>,
    here: &TurnContext<'_, H>,
    watcher: &dyn Watcher,
    to: &DatagramSeg,
    datagram: &Leaving<'_>,
) {
    let Some(path) = way(network, datagram.from, to) else { return };
    let mut outbox = Vec::with_capacity(1);
    if build(here, &path, datagram, &mut outbox).is_err() {
        return;
    }
    let station = network.fabric.station(path.ethernet.receiver());
    let receiver = station.as_ref().map(|station| station.core().name());
    for frame in outbox {
        watcher.datagram(network.core().name(), receiver, frame);
    }
}

/// Builds the packet of a datagram.
fn build<H: Host>(
    here: &TurnContext<'_, H>,
    path: &wire::Path,
    &Leaving { from, send, source, to, qkey }: &Leaving<'_>,
    outbox: &mut Vec<Frame>,
) -> Result<(), CopyFault> {
    // CAST: the length was checked against the port's MTU.
    let length = u32::try_from(send.length).unwrap_or(u32::MAX);
    let datagram = Outgoing {
        destination: Qpn::new(to.get()),
        qkey,
        imm: send.imm(),
        solicited: send.flags.contains(Flags::SOLICITED),
        length,
    };
    let mut sender = datagram::Sender::new(Qpn::new(from.get()), qkey, Psn::new(send.index));
    let Ok((head, body)) = sender.next(&datagram, Mtu::M4096) else { return Ok(()) };
    let parts = frames::Parts { path, head: &head, body: &body, length: length as usize };
    frames::add(outbox, &parts, |payload| source.read::<H>(&here.memory, 0, payload))?;
    here.slice.charge(cost::PACKET);
    here.slice.charge_copy(length.into());
    Ok(())
}

/// Delivers a datagram to a QP.
///
/// # Errors
/// Returns the reason for which it is dropped.
pub(super) fn receive<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    received: &Received<'_>,
    slice: &Slice<'_, H>,
) -> Result<(), Discard> {
    let parsed = &received.parsed;
    let own = GidEntry {
        gid: gid(parsed.network.addresses.destination()),
        vlan: vlan(parsed),
        mac: parsed.ethernet.destination,
    };
    if !network.own.gids.has(&own) {
        return Err(Discard::Address);
    }
    bring(network, qp, received, slice)
}

/// Delivers a datagram to the members of a group. A datagram from an adapter of this daemon is
/// dropped, because that adapter has already delivered it to all members in the daemon.
///
/// # Errors
/// Returns the reason for which it is dropped.
pub(super) fn receive_by_group<H: Host>(
    network: Network<'_, H>,
    received: &Received<'_>,
    slice: &Slice<'_, H>,
) -> Result<(), Discard> {
    let parsed = &received.parsed;
    if !network.own.gids.has_vlan(vlan(parsed)) {
        return Err(Discard::Address);
    }
    if network.fabric.has_driver(parsed.ethernet.sender()) {
        return Ok(());
    }
    let group = gid(parsed.network.addresses.destination());
    let mut from = Some(0);
    while let Some(first) = from {
        let (members, next) = network.own.groups.members(&group, first, MEMBERS_AT_ONCE);
        for Member { qp, .. } in &members {
            slice.charge(cost::DELIVERY);
            // The other members get it even if this one drops it.
            let _dropped = bring(network, qp, received, slice);
        }
        from = next;
    }
    Ok(())
}

fn bring<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    Received { parsed: frame, packet, .. }: &Received<'_>,
    slice: &Slice<'_, H>,
) -> Result<(), Discard> {
    if !qp.kind.is_datagram() || !qp.receives() {
        return Err(Discard::State);
    }
    let there = PeerContext::new(network.core(), qp, slice);
    let mut responder = qp.responder.lock();
    let Incoming { source, imm, solicited, bytes } = datagram::accept(packet, responder.qkey)?;
    let header = network_header(frame.network_header);
    let mut payload = SgList::default();
    payload.set_inline(bytes);
    let length = bytes.len() as u64;
    let incoming = datagram_receive::Incoming { source: &payload, header: &header, length };
    match place(&there.turn, &there, &mut responder, &incoming) {
        Ok(()) => {}
        Err(NotPlaced::Source(_) | NotPlaced::Dropped) => return Err(Discard::Refused),
        Err(NotPlaced::Receiver(refusal)) => {
            outcome::fail(&there, &mut responder, refusal);
            return Err(Discard::Refused);
        }
    }
    let origin = Origin {
        ipv4: matches!(frame.network.addresses, Addresses::V4 { .. }),
        smac: frame.ethernet.source,
        vlan: Some(vlan(frame)).filter(|vlan| *vlan != NO_VLAN),
    };
    let arrived = Arrived { length, imm, solicited, src_qpn: source.get().into(), origin };
    there.turn.step(Counter::RxSendReq);
    there.turn.step(Counter::RxPkts);
    there.turn.add(Counter::RxBytes, length);
    if datagram_receive::received(&there, &mut responder, &arrived).is_ok()
        && std::mem::take(&mut responder.event_due)
    {
        there.turn.fire(&qp.recv_cq);
    }
    Ok(())
}

/// Returns the VLAN of a frame, or the number for "no VLAN".
fn vlan(frame: &RoceFrame<'_>) -> u16 {
    frame.ethernet.vlan.and_then(vlan_of).unwrap_or(NO_VLAN)
}

/// Returns the GID of an address.
fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

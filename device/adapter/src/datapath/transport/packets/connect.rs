//! Creates and changes the engines of a QP whose peer is reached by packets.

use vrnic_abi::qp::{Attr, AttrMask, NO_VLAN, State, Type};
use vrnic_packet::ip::{Addresses, Header as IpHeader};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_roce::Psn;
use vrnic_roce::admission::Admission;
use vrnic_roce::congestion::RateControl;
use vrnic_roce::requester::{self, Limits, Recovery, Requester};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Responder};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::build::source_port;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::packet::DEFAULT_PKEY;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{self, Mtu, Qpn};

use vrnic_abi::qp::AddressVector;

use crate::datapath::transport::peers::Network;
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::network::gids::GidEntry;
use crate::objects::qp::outstanding::OUTSTANDING;
use crate::objects::qp::remote::{Engine, Receiver, Sender, Way};
use crate::objects::qp::transitions::Change;
use crate::objects::qp::{Path, Qp, Route};

/// Maximum number of packets that a requester may have outstanding.
const WINDOW: u32 = 128;
/// Maximum number of packets after a missing one that a responder keeps.
const HOLD: u32 = 128;
/// The bits of a traffic class that announce a sender that reacts to congestion marks (RFC 3168).
const ECN_CAPABLE: u8 = 2;
/// The ECN bits.
const ECN: u8 = 3;

/// The reason for which a QP cannot have its new attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No packet can take the path: the source does not exist, the addresses have different
    /// families, or the path needs another transport than the QP has.
    Path,
    /// The adapter has no memory for the READs and atomics of the peer.
    Memory,
}

/// The attributes of a QP after MODIFY_QP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modified<'a> {
    /// All attributes.
    pub(crate) attr: &'a Attr,
    /// The attributes that have been set.
    pub(crate) mask: AttrMask,
    /// The change of the state.
    pub(crate) change: Change,
}

/// Prepares a QP for its new attributes. If its peer is reached by packets, creates the engine of
/// the receiving half before it can receive, and that of the sending half when it has all
/// attributes, and changes them in the state SQD.
///
/// # Errors
/// Returns the reason for which it cannot have them. Nothing has changed then.
pub(crate) fn connect<H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    modified: Modified<'_>,
) -> Result<(), Refused> {
    let Modified { attr, mask, change } = modified;
    let Some(transport) = transport(qp.kind) else { return Ok(()) };
    let begins = (change.from, change.to) == (State::Init, State::Rtr);
    let new_path = begins || mask.contains(AttrMask::AV);
    let ends = Ends { own: qp.qpn, peer: attr.dest_qpn };
    let path = path(network.own, &attr.av, ends);
    if new_path && path.is_none() {
        return Err(Refused::Path);
    }
    let to = path.as_ref().map(|path| path.ethernet.receiver());
    let needs_packets = || to.is_some_and(|to| network.fabric.needs_packets(to));
    let way = path.map(|path| {
        let addresses = Some(path.network.addresses);
        Way { path, admission: Admission { transport, pkey: DEFAULT_PKEY, addresses } }
    });
    let by_packets = matches!(qp.requester.lock().path, Path::Packets(_));
    match (change.from, change.to) {
        (State::Init, State::Rtr) if needs_packets() => begin(network, qp, modified, way),
        (State::Rtr | State::Sqe, State::Rts) if by_packets => begin(network, qp, modified, way),
        (State::Sqd, _) => {
            if new_path && needs_packets() != by_packets {
                return Err(Refused::Path);
            }
            change_in_sqd(qp, attr, way.filter(|_| new_path))
        }
        _ => Ok(()),
    }
}

/// Creates the engines.
fn begin<H: Host>(
    network: Network<'_, H>,
    qp: &Qp<H>,
    Modified { attr, change, .. }: Modified<'_>,
    way: Option<Way>,
) -> Result<(), Refused> {
    let (Some(way), Some(mtu)) = (way, Mtu::from_code(attr.path_mtu)) else { return Ok(()) };
    let memory = &network.own.claims.memory;
    let receives = change.to == State::Rtr && qp.kind != Type::XrcIni;
    if receives {
        let engine = receiver(qp.kind, attr, way.admission.transport, mtu);
        let mut receiver = Box::new(Receiver::new(engine, way, memory));
        if qp.kind != Type::Uc && !receiver.reserve(attr.max_dest_rd_atomic) {
            return Err(Refused::Memory);
        }
        qp.responder.lock().packets = Some(receiver);
    }
    let mut attr = *attr;
    let mut requester = qp.requester.lock();
    // The engine has failed with the send queue. A new one continues with its sequence numbers,
    // and the work requests that were outstanding are flushed.
    let mut failed = match (change.from, std::mem::take(&mut requester.path)) {
        (State::Sqe, Path::Packets(failed)) => Some(failed),
        _ => None,
    };
    if let Some(failed) = &failed {
        attr.sq_psn = failed.engine.psn().get().into();
    }
    let mut engine = engine(qp, &attr, way.admission.transport, mtu);
    if let Some(parameters) = *network.core().dcqcn.read() {
        engine.set_rate_control(RateControl::new(parameters).ok());
    }
    let mut sender = Box::new(Sender::new(engine, way, &qp.sq, memory));
    if let Some(failed) = &mut failed {
        sender.succeed(failed);
    }
    requester.path = Path::Packets(sender);
    Ok(())
}

/// Changes the engines of a QP in the state SQD.
fn change_in_sqd<H: Host>(qp: &Qp<H>, attr: &Attr, way: Option<Way>) -> Result<(), Refused> {
    let mut requester = qp.requester.lock();
    if let Some(receiver) = &mut qp.responder.lock().packets {
        if !receiver.set_max_dest_rd_atomic(attr.max_dest_rd_atomic) {
            return Err(Refused::Memory);
        }
        receiver.way = way.unwrap_or(receiver.way);
    }
    if let Path::Packets(sender) = &mut requester.path {
        sender.engine.set_limits(limits(attr));
        sender.way = way.unwrap_or(sender.way);
    }
    Ok(())
}

/// Returns the transport of a connected QP of this type.
pub(crate) const fn transport(kind: Type) -> Option<Transport> {
    match kind {
        Type::Rc => Some(Transport::Rc),
        Type::Uc => Some(Transport::Uc),
        Type::XrcIni | Type::XrcTgt => Some(Transport::Xrc),
        Type::Ud | Type::Gsi | Type::RawPacket | Type::Toe => None,
    }
}

/// The source and the destination QP of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The QP that sends the packet.
    pub(crate) own: vrnic_abi::Qpn,
    /// The QP that receives the packet.
    pub(crate) peer: vrnic_abi::Qpn,
}

/// Returns the route to the address of a vector, or `None` if its addresses have different
/// families, or if the source does not exist.
pub(crate) fn route<H: Host>(objects: &Objects<H>, av: &AddressVector) -> Option<Route> {
    let GidEntry { gid, vlan, mac } = objects.gids.get(av.sgid_index.get())?;
    let addresses = Addresses::from_gids(gid, av.dgid)?;
    Some(Route { from: mac, to: MacAddr(av.dmac), addresses, vlan })
}

/// Returns the headers of packets between two QPs for an address vector, or `None` if its addresses
/// have different families, or if the source does not exist.
pub(crate) fn path<H: Host>(
    objects: &Objects<H>,
    av: &AddressVector,
    Ends { own, peer }: Ends,
) -> Option<wire::Path> {
    let Route { from, to, addresses, vlan } = route(objects, av)?;
    let vlan = Some(vlan).filter(|vlan| *vlan != NO_VLAN);
    let priority = u16::from(av.sl & 7) << 13;
    let flow_label = av.flow_label.get() & 0x000f_ffff;
    let unmarked = av.traffic_class & ECN == 0;
    Some(wire::Path {
        ethernet: Ethernet {
            destination: to,
            source: from,
            vlan: vlan.map(|vlan| vlan & 0x0fff | priority),
        },
        network: IpHeader {
            addresses,
            traffic_class: av.traffic_class | if unmarked { ECN_CAPABLE } else { 0 },
            hop_limit: av.hop_limit.max(1),
            flow_label,
        },
        source_port: source_port(flow_label, own.get(), peer.get()),
    })
}

const fn limits(attr: &Attr) -> Limits {
    Limits {
        timeout: AckTimeout::new(attr.timeout),
        retry_count: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        max_rd_atomic: attr.max_rd_atomic,
    }
}

fn engine<H: Host>(qp: &Qp<H>, attr: &Attr, transport: Transport, mtu: Mtu) -> Requester {
    let Limits { timeout, retry_count, rnr_retry, max_rd_atomic } = limits(attr);
    Requester::new(requester::Config {
        transport,
        destination: Qpn::new(attr.dest_qpn.get()),
        mtu,
        first_psn: Psn::new(attr.sq_psn.get()),
        timeout,
        retry_count,
        rnr_retry,
        max_rd_atomic,
        window: WINDOW,
        recovery: Recovery::Leap,
        congestion_control: true,
        capacity: qp.sq.size().min(OUTSTANDING) as usize,
    })
}

fn receiver(kind: Type, attr: &Attr, transport: Transport, mtu: Mtu) -> Engine {
    let first_psn = Psn::new(attr.rq_psn.get());
    if kind == Type::Uc {
        return Engine::Unreliable(Box::new(UnreliableResponder::new(mtu, first_psn)));
    }
    Engine::Reliable(Box::new(Responder::new(responder::Config {
        transport,
        destination: Qpn::new(attr.dest_qpn.get()),
        mtu,
        first_psn,
        min_rnr_timer: RnrTimer::new(attr.min_rnr_timer),
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        hold: HOLD,
    })))
}

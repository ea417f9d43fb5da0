//! Creates the engines of a QP whose peer is reached by packets.

use vrnic_abi::qp::{Attr, State, Type};
use vrnic_roce::Psn;
use vrnic_roce::admission::Admission;
use vrnic_roce::requester::{self, Recovery, Requester};
use vrnic_roce::responder::unreliable::UnreliableResponder;
use vrnic_roce::responder::{self, Responder};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::build::source_port;
use vrnic_roce::wire::frame::Ethernet;
use vrnic_roce::wire::network::{Addresses, Network as IpHeader};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::packet::DEFAULT_PKEY;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{self, Mtu, Qpn};

use vrnic_abi::qp::AddressVector;

use crate::datapath::transport::peers::Network;
use crate::host::Host;
use crate::objects::Objects;
use crate::objects::qp::outstanding::OUTSTANDING;
use crate::objects::qp::remote::{Engine, Receiver, Sender, Way};
use crate::objects::qp::transitions::Change;
use crate::objects::qp::{Path, Qp, Route};

/// Maximum number of packets that a requester may have outstanding.
const WINDOW: u32 = 128;
/// Maximum number of packets behind a missing one that a responder keeps.
const HOLD: u32 = 128;
/// The VLAN id that means "no VLAN".
pub(super) const NO_VLAN: u16 = 0xffff;
/// The bits of a traffic class that announce a sender that reacts to congestion marks (RFC 3168).
const ECN_CAPABLE: u8 = 2;
/// The ECN bits.
const ECN: u8 = 3;

/// Creates the engines of a QP that changes its state, if its peer is reached by packets: that of
/// the receiving half before it can receive, that of the sending half when it has all attributes.
pub(crate) fn connect<H: Host>(network: Network<'_, H>, qp: &Qp<H>, attr: &Attr, change: Change) {
    let mut attr = *attr;
    let connects = match (change.from, change.to, &qp.requester.lock().path) {
        (State::Init, State::Rtr, _) => network.fabric.needs_packets(attr.av.dmac),
        (State::Rtr, State::Rts, Path::Packets(_)) => true,
        // The engine has failed with the send queue. A new one continues with its sequence numbers,
        // and the work requests that were outstanding are flushed.
        (State::Sqe, State::Rts, Path::Packets(sender)) => {
            attr.sq_psn = sender.engine.psn().get().into();
            true
        }
        _ => false,
    };
    let attr = &attr;
    let Some(transport) = transport(qp.kind).filter(|_| connects) else { return };
    let Some(mtu) = Mtu::from_code(attr.path_mtu) else { return };
    let ends = Ends { own: qp.qpn, peer: attr.dest_qpn };
    let Some(path) = path(network.own, &attr.av, ends) else { return };
    let addresses = Some(path.network.addresses);
    let admission = Admission { transport, pkey: DEFAULT_PKEY, addresses };
    let way = Way { path, admission };
    let mut sender = Box::new(sender(qp, attr, way, mtu));
    let mut requester = qp.requester.lock();
    if let (State::Sqe, Path::Packets(failed)) = (change.from, &requester.path) {
        sender.outstanding.succeed(&failed.outstanding);
    }
    requester.path = Path::Packets(sender);
    drop(requester);
    if change.to == State::Rtr && qp.kind != Type::XrcIni {
        let engine = receiver(qp.kind, attr, transport, mtu);
        qp.responder.lock().packets = Some(Box::new(Receiver::new(engine, way)));
    }
}

/// Returns the transport of a connected QP of this type.
pub(crate) const fn transport(kind: Type) -> Option<Transport> {
    match kind {
        Type::Rc => Some(Transport::Rc),
        Type::Uc => Some(Transport::Uc),
        Type::XrcIni | Type::XrcTgt => Some(Transport::Xrc),
        Type::Ud | Type::Gsi => None,
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
    let source = objects.gid(av.sgid_index.get())?;
    let addresses = Addresses::from_gids(source.gid, av.dgid)?;
    Some(Route { addresses, vlan: source.vlan.get() })
}

/// Returns the headers of packets between two QPs for an address vector, or `None` if its addresses
/// have different families, or if the source does not exist.
pub(crate) fn path<H: Host>(
    objects: &Objects<H>,
    av: &AddressVector,
    Ends { own, peer }: Ends,
) -> Option<wire::Path> {
    let Route { addresses, vlan } = route(objects, av)?;
    let vlan = Some(vlan).filter(|vlan| *vlan != NO_VLAN);
    let priority = u16::from(av.sl & 7) << 13;
    let flow_label = av.flow_label.get() & 0x000f_ffff;
    let unmarked = av.traffic_class & ECN == 0;
    Some(wire::Path {
        ethernet: Ethernet {
            destination: av.dmac,
            source: objects.core().mac(),
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

fn sender<H: Host>(qp: &Qp<H>, attr: &Attr, way: Way, mtu: Mtu) -> Sender {
    let engine = Requester::new(requester::Config {
        transport: way.admission.transport,
        destination: Qpn::new(attr.dest_qpn.get()),
        mtu,
        first_psn: Psn::new(attr.sq_psn.get()),
        timeout: AckTimeout::new(attr.timeout),
        retry_count: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        max_rd_atomic: attr.max_rd_atomic,
        window: WINDOW,
        recovery: Recovery::Leap,
        congestion_control: true,
        capacity: qp.sq.size().min(OUTSTANDING) as usize,
    });
    Sender::new(engine, way, &qp.sq)
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

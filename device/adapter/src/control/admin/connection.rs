//! OPEN_CONNECTION, QUERY_CONNECTION, MOVE_CONNECTION, START_RDMA, CLOSE_CONNECTION, SET_ISCSI and
//! END_COMMAND.
//!
//! | module | contents |
//! | --- | --- |
//! | `bytes` | connections that carry bytes instead of messages |
//! | `close` | CLOSE_CONNECTION |
//! | `rdma` | the beginning of messages on such a connection |
//! | `iscsi` | SET_ISCSI and END_COMMAND |

mod bytes;
mod close;
mod iscsi;
mod rdma;

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use vrnic_abi::admin::{MoveConnection, OpenConnection, QueryConnection, Status};
use vrnic_abi::connection::{Connection, ConnectionFlags, PRIVATE_MAX, Role, Stage};
use vrnic_abi::qp::{State, Type};
use vrnic_iwarp::Stream;
use vrnic_iwarp::mpa::start::Wishes;
use vrnic_iwarp::stream::Config;
use vrnic_iwarp::wire::start::CONTROL;
use vrnic_packet::ethernet::vlan_of;
use vrnic_packet::{MacAddr, Nanos, VlanMac};
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_tcp::context::{Tick, TimestampState};
use vrnic_tcp::wire::frame;
use vrnic_tcp::{Context, Params, SeqNum};
use zerocopy::{FromBytes, IntoBytes};

pub(super) use self::close::close_connection;
pub(super) use self::iscsi::{end_command, set_iscsi};
pub(super) use self::rdma::start_rdma;
use super::modify::configure;
use super::{Failure, Outcome, bad, zero};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::limits;
use crate::objects::network::claims::Tuple;
use crate::objects::qp::outstanding::OUTSTANDING;
use crate::objects::qp::tcp::ends::Ends;
use crate::objects::qp::tcp::link::Link;
use crate::objects::qp::tcp::rdma::Rdma;
use crate::objects::qp::tcp::{Content, Tcp, rule_of};
use crate::objects::qp::{Path, Qp};
use crate::vlans::{NotMember, Vlans};

/// Number of bytes of a frame besides TCP's payload and options.
const HEADERS: usize = 14 + 4 + 40 + 20;
/// Maximum number of bytes of private data, without the control words of an enhanced start frame.
const PROGRAM_DATA_MAX: usize = PRIVATE_MAX - CONTROL;
/// The receive window in bytes. All of these bytes can be stored: while a SEND waits for a receive,
/// nothing after it is placed, and bytes that were dropped would be sent again only after a
/// time-out.
const WINDOW: u32 = 1 << 20;
/// The bits of a tag for the VLAN's identifier. The others are the priority (IEEE 802.1Q, 9.6).
const VID: u16 = 0x0fff;
/// The minimum size of segments.
const MSS_MIN: u16 = 128;
/// The maximum size of segments that are sent, even if the peer accepts longer ones, so that no
/// frame is longer than a RoCE frame.
const MSS_MAX: u16 = (FRAME_MAX - HEADERS) as u16;

pub(super) fn open_connection<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &OpenConnection,
) -> Outcome<()> {
    if !params.addr.is_multiple_of(8) {
        return Err(bad(offset_of!(OpenConnection, addr)));
    }
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    let mut bytes = [0; size_of::<Connection>()];
    let memory = adapter.host().hold(Lane::SHARED);
    memory.read(params.addr, &mut bytes).map_err(|_| Status::BadAddress)?;
    drop(memory);
    let connection = Connection::read_from_bytes(&bytes).map_err(|_| Status::Internal)?;
    if !matches!(qp.kind, Type::Rc | Type::Toe) || qp.state() != State::Init {
        return Err(Status::BadState.into());
    }
    let role = Role::from_raw(connection.role).ok_or(bad(offset_of!(Connection, role)))?;
    if (qp.kind == Type::Toe) != (role == Role::Stream) {
        return Err(bad(offset_of!(Connection, role)));
    }
    let tcp = if role == Role::Stream {
        bytes::bytes(adapter, &qp, &connection, params.addr)?
    } else {
        let tcp = rdma(adapter, &qp, role, &connection)?;
        let mut attr = qp.attr.lock();
        attr.max_rd_atomic = u8::try_from(connection.ord.get()).unwrap_or(u8::MAX);
        attr.max_dest_rd_atomic = u8::try_from(connection.ird.get()).unwrap_or(u8::MAX);
        tcp
    };
    // The connection has the addresses of TCP.
    configure(&qp, Some(None));
    qp.requester.lock().path = Path::Tcp(Box::new(tcp));
    if !qp.change_state(State::Init, State::Rts) {
        return Err(Status::BadState.into());
    }
    qp.schedule(adapter.core());
    Ok(())
}

pub(super) fn query_connection<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &QueryConnection,
) -> Outcome<()> {
    if !params.addr.is_multiple_of(8) {
        return Err(bad(offset_of!(QueryConnection, addr)));
    }
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    let status = qp.requester.lock().path.status().ok_or(Status::BadState)?;
    let memory = adapter.host().hold(Lane::SHARED);
    memory.write(params.addr, status.as_bytes()).map_err(|_| Status::BadAddress)?;
    Ok(())
}

pub(super) fn move_connection<H: Host>(
    adapter: &Arc<Adapter<H>>,
    params: &MoveConnection,
) -> Outcome<()> {
    let qp = adapter.qp(params.qpn).ok_or(Status::NotFound)?;
    let dmac = MacAddr(params.dmac);
    if dmac.is_group() || dmac.is_zero() {
        return Err(bad(offset_of!(MoveConnection, dmac)));
    }
    // A QP that gets a connection later has the MACs of the one that has it now.
    let from = qp.requester.lock().path.promise().and_then(|promise| promise.from());
    let qp = from.map_or(qp, |from| from.qp);
    let tag = match &qp.requester.lock().path {
        Path::Tcp(tcp) => tcp.link.ends().path.vlan,
        _ => None,
    };
    let at = VlanMac::tagged(MacAddr(params.smac), tag);
    let address = adapter.fabric().claim(at, &adapter.objects);
    let address = address.ok_or(bad(offset_of!(MoveConnection, smac)))?;
    if !address.is_own() {
        return Err(Status::Busy.into());
    }
    let mut requester = qp.requester.lock();
    let copied_from = requester.config.route.map(|route| route.from);
    let ends = match &mut requester.path {
        Path::Tcp(tcp) if tcp.link.life().stage() != Stage::Gone => tcp.link.ends_mut(),
        _ => return Err(Status::BadState.into()),
    };
    ends.relocate(address, dmac, copied_from);
    Ok(())
}

/// A connection that the adapter has claimed.
struct Claimed<H: Host> {
    now: Nanos,
    tcp: vrnic_tcp::Connection,
    ends: Ends<H>,
}

/// Checks the state of a connection, claims its frames for a QP, and takes TCP over.
fn claim<H: Host>(
    adapter: &Adapter<H>,
    qp: &Qp<H>,
    connection: &Connection,
    params: &Params,
) -> Result<Claimed<H>, Failure> {
    let flags =
        ConnectionFlags::from_bits(connection.flags).ok_or(bad(offset_of!(Connection, flags)))?;
    zero(&connection.reserved, offset_of!(Connection, reserved))?;
    let mss = connection.mss.get().min(MSS_MAX);
    if mss < MSS_MIN {
        return Err(bad(offset_of!(Connection, mss)));
    }
    let vlans = adapter.core().port.vlans();
    let path = path(flags, connection, vlans)?;
    let at = VlanMac::tagged(path.from, path.vlan);
    let address = adapter.fabric().claim(at, &adapter.objects);
    let address = address.ok_or(bad(offset_of!(Connection, smac)))?;
    if !address.is_own() {
        return Err(Status::Busy.into());
    }
    let (local, remote) = (path.source, path.destination);
    let vlan = at.vlan;
    let claim = adapter.objects.claims.claim(Tuple { vlan, local, remote }, qp.qpn)?;
    let now = adapter.host().now();
    let context = context(flags, connection, mss);
    let params = Params { keepalive: adapter.keepalive(), ..*params };
    let tcp = vrnic_tcp::Connection::adopt(now, &context, &params);
    Ok(Claimed { now, tcp, ends: Ends::new(path, mss, claim, address) })
}

/// Checks a number of outstanding READs and atomics, a parameter at an offset.
fn check_depth(depth: u16, offset: usize) -> Result<(), Failure> {
    if u32::from(depth) > limits::MAX_RD_ATOMIC { Err(bad(offset)) } else { Ok(()) }
}

/// Checks the state of a connection for messages, and takes it over.
fn rdma<H: Host>(
    adapter: &Adapter<H>,
    qp: &Qp<H>,
    role: Role,
    connection: &Connection,
) -> Result<Tcp<H>, Failure> {
    if connection.flags & ConnectionFlags::PEER_CLOSED.bits() != 0 {
        return Err(bad(offset_of!(Connection, flags)));
    }
    check_depth(connection.ird.get(), offset_of!(Connection, ird))?;
    check_depth(connection.ord.get(), offset_of!(Connection, ord))?;
    let params = Params { window: WINDOW, buffer: WINDOW as usize, ..Params::default() };
    let Claimed { now, tcp, ends } = claim(adapter, qp, connection, &params)?;
    let wishes = Wishes {
        crc: adapter.demands_crcs(),
        ird: connection.ird.get(),
        ord: connection.ord.get(),
        ..Wishes::default()
    };
    let config = Config {
        wishes,
        capacity: qp.sq.size().min(OUTSTANDING) as usize,
        // An FPDU fills a segment. Timestamps also take a part of it.
        emss: u32::try_from(tcp.mss()).unwrap_or(u32::MAX),
        rule: rule_of(qp.flags),
        extensions: true,
        ..Config::default()
    };
    let stream = stream(role, config, connection)?;
    let memory = &adapter.objects.claims.memory;
    let link = Link::new(tcp, ends, &qp.sq, memory);
    let rdma = Rdma::new(now, role, qp.options, link.tcp(), stream, memory);
    Ok(Tcp { link, content: Content::Rdma(Box::new(rdma)) })
}

/// Returns the stream. Its first bytes are the request of an initiator, or the reply of a responder
/// to the request that it has received.
fn stream(role: Role, config: Config, connection: &Connection) -> Result<Stream, Failure> {
    let private_len = usize::from(connection.private_len.get());
    let private = connection.private.get(..private_len).filter(|_| private_len <= PROGRAM_DATA_MAX);
    let private = private.ok_or(bad(offset_of!(Connection, private_len)))?;
    let request_len = usize::from(connection.request_len.get());
    let request = connection.request.get(..request_len);
    let request = request.ok_or(bad(offset_of!(Connection, request_len)))?;
    match role {
        Role::Initiator if request.is_empty() => Ok(Stream::initiate(config, private)),
        Role::Initiator => Err(bad(offset_of!(Connection, request_len))),
        Role::Responder => Stream::respond(config, request, private)
            .map_err(|_failure| bad(offset_of!(Connection, request))),
        Role::Stream => Err(bad(offset_of!(Connection, role))),
    }
}

/// Returns the headers below TCP, for a port with these VLANs.
fn path(
    flags: ConnectionFlags,
    connection: &Connection,
    vlans: &Vlans,
) -> Result<frame::Path, Failure> {
    let address = |bytes: [u8; 16], port: u16| {
        let [a, b, c, d, ..] = bytes;
        let ip = if flags.contains(ConnectionFlags::IPV6) {
            IpAddr::V6(Ipv6Addr::from(bytes))
        } else {
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        };
        SocketAddr::new(ip, port)
    };
    let tag = flags.contains(ConnectionFlags::VLAN).then_some(connection.vlan.get());
    let vlan = vlans.of_guest(tag.and_then(vlan_of));
    let vlan = vlan.map_err(|NotMember| bad(offset_of!(Connection, vlan)))?;
    let priority = tag.map(|tag| tag & !VID);
    Ok(frame::Path {
        to: MacAddr(connection.dmac),
        from: MacAddr(connection.smac),
        vlan: vlan.map(|vlan| vlan | priority.unwrap_or_default()).or(priority),
        source: address(connection.local, connection.local_port.get()),
        destination: address(connection.remote, connection.remote_port.get()),
        traffic_class: connection.traffic_class,
        hop_limit: connection.hop_limit.max(1),
    })
}

/// Returns the state of TCP.
fn context(flags: ConnectionFlags, connection: &Connection, mss: u16) -> Context {
    let micros = flags.contains(ConnectionFlags::MICROSECONDS);
    let timestamps = TimestampState {
        value: connection.timestamp.get(),
        tick: if micros { Tick::Micros } else { Tick::Millis },
        recent: connection.recent_timestamp.get(),
    };
    Context {
        send_next: SeqNum(connection.send_next.get()),
        receive_next: SeqNum(connection.receive_next.get()),
        send_window: connection.send_window.get(),
        max_send_window: connection.max_send_window.get(),
        receive_window: connection.receive_window.get(),
        send_scale: connection.send_scale,
        receive_scale: connection.receive_scale,
        peer_closed: flags.contains(ConnectionFlags::PEER_CLOSED),
        mss,
        sack: flags.contains(ConnectionFlags::SACK),
        timestamps: flags.contains(ConnectionFlags::TIMESTAMPS).then_some(timestamps),
        round_trip: None,
    }
}

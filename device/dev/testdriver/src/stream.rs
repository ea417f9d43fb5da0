//! TCP connections for endpoints, as a kernel hands them over after the handshake.

use vrnic_abi::connection::{Connection, ConnectionFlags, PRIVATE_MAX, Role, START_MAX};

use crate::admin::Refused;
use crate::bus::Bus;
use crate::endpoint::Endpoint;
use crate::qp::{TO_RTS, attributes};

/// The first sequence numbers of the initiator and of the responder.
const FIRST: [u32; 2] = [0xffff_f000, 7];
/// The ports of the initiator and of the responder.
const PORTS: [u16; 2] = [4000, 5000];
/// The window that each end advertises, in bytes.
const WINDOW: u32 = 1 << 20;
/// Number of READs and atomics that each end allows.
const READS: u16 = 16;
/// Bytes of a segment on an Ethernet with an MTU of 1500.
pub const MSS: u16 = 1460;

/// Connects two endpoints in the state RESET, with segments of [`MSS`]; the first is the initiator.
///
/// # Panics
/// If an adapter refuses.
#[track_caller]
pub fn connect_pair<B: Bus>(a: &Endpoint<B>, b: &Endpoint<B>) {
    connect_pair_with(a, b, MSS);
}

/// Connects two endpoints in the state RESET, with segments of at most `mss` bytes.
///
/// # Panics
/// If an adapter refuses.
#[track_caller]
pub fn connect_pair_with<B: Bus>(a: &Endpoint<B>, b: &Endpoint<B>, mss: u16) {
    open(a, 0, b.guest.mac(), mss).expect("OPEN_CONNECTION");
    open(b, 1, a.guest.mac(), mss).expect("OPEN_CONNECTION");
}

/// Gives an endpoint its end of the connection: 0 is the initiator, 1 the responder.
///
/// # Errors
/// If the adapter refuses.
///
/// # Panics
/// If the QP cannot go to INIT.
#[track_caller]
pub fn open<B: Bus>(
    end: &Endpoint<B>,
    number: usize,
    peer: [u8; 6],
    mss: u16,
) -> Result<(), Refused> {
    end.guest.take_through(end.qpn, attributes(peer, 0), &TO_RTS[..1]);
    end.guest.open_connection(end.qpn, &connection(number, [end.guest.mac(), peer], mss))
}

/// Returns the start frame that the adapter of an initiator without private data sends first.
#[must_use]
pub fn request() -> Vec<u8> {
    let (crc, enhanced, revision) = (0x40, 0x10, 2);
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([crc | enhanced, revision, 0, 4]);
    // The peer-to-peer model, with a WRITE or a READ as the first message.
    frame.extend((0x8000 | READS).to_be_bytes());
    frame.extend((0xc000 | READS).to_be_bytes());
    frame
}

/// Returns the state of an end of the connection: 0 is the initiator, 1 the responder, whose kernel
/// has received the request. The first MAC is the end's own one, the second its peer's.
///
/// # Panics
/// Never: the numbers are small.
#[must_use]
pub fn connection(number: usize, [smac, dmac]: [[u8; 6]; 2], mss: u16) -> Connection {
    let own = number.min(1);
    let peer = 1 - own;
    let address = |last: u8| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[10, 9, 0, last]);
        bytes
    };
    let addresses = [address(1), address(2)];
    let role = if own == 0 { Role::Initiator } else { Role::Responder };
    let (mut frame, mut request_len, mut receive_next) = ([0; START_MAX], 0, FIRST[peer]);
    if own == 1 {
        let request = request();
        frame[..request.len()].copy_from_slice(&request);
        request_len = u16::try_from(request.len()).expect("a short frame");
        receive_next = receive_next.wrapping_add(request_len.into());
    }
    Connection {
        role: role as u8,
        flags: ConnectionFlags::SACK.bits(),
        vlan: 0.into(),
        smac,
        dmac,
        traffic_class: 0,
        hop_limit: 64,
        local: addresses[own],
        remote: addresses[peer],
        local_port: PORTS[own].into(),
        remote_port: PORTS[peer].into(),
        send_next: FIRST[own].into(),
        receive_next: receive_next.into(),
        send_window: WINDOW.into(),
        max_send_window: WINDOW.into(),
        receive_window: WINDOW.into(),
        send_scale: 7,
        receive_scale: 7,
        mss: mss.into(),
        timestamp: 0.into(),
        recent_timestamp: 0.into(),
        ird: READS.into(),
        ord: READS.into(),
        private_len: 0.into(),
        request_len: request_len.into(),
        private: [0; PRIVATE_MAX],
        request: frame,
        reserved: [0; 6],
    }
}

/// Returns the state of an end of a connection that carries bytes: the one of [`connection`]
/// without start frames.
///
/// # Panics
/// Never: the numbers are small.
#[must_use]
pub fn bare_connection(number: usize, macs: [[u8; 6]; 2], mss: u16) -> Connection {
    Connection {
        role: Role::Stream as u8,
        receive_next: FIRST[1 - number.min(1)].into(),
        ird: 0.into(),
        ord: 0.into(),
        request_len: 0.into(),
        request: [0; START_MAX],
        ..connection(number, macs, mss)
    }
}

/// Connects two TOE endpoints in the state RESET, with segments of [`MSS`].
///
/// # Panics
/// If an adapter refuses.
#[track_caller]
pub fn connect_toes<B: Bus>(a: &Endpoint<B>, b: &Endpoint<B>) {
    connect_toes_with(a, b, MSS);
}

/// Connects two TOE endpoints in the state RESET, with segments of at most `mss` bytes.
///
/// # Panics
/// If an adapter refuses.
#[track_caller]
pub fn connect_toes_with<B: Bus>(a: &Endpoint<B>, b: &Endpoint<B>, mss: u16) {
    for (number, end, peer) in [(0, a, b), (1, b, a)] {
        let macs = [end.guest.mac(), peer.guest.mac()];
        end.guest.take_through(end.qpn, attributes(macs[1], 0), &TO_RTS[..1]);
        let connection = bare_connection(number, macs, mss);
        end.guest.open_toe(end.qpn, &connection, &[]).expect("OPEN_CONNECTION");
    }
}

/// Gives a TOE endpoint its end of the connection: 0 or 1. Its kernel has received these bytes.
///
/// # Errors
/// If the adapter refuses.
///
/// # Panics
/// If the QP cannot go to INIT.
#[track_caller]
pub fn open_toe<B: Bus>(
    end: &Endpoint<B>,
    number: usize,
    peer: [u8; 6],
    received: &[u8],
) -> Result<(), Refused> {
    end.guest.take_through(end.qpn, attributes(peer, 0), &TO_RTS[..1]);
    let connection = bare_connection(number, [end.guest.mac(), peer], MSS);
    end.guest.open_toe(end.qpn, &connection, received)
}

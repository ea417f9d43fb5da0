//! The records of connections whose peers are reached by packets.

use std::net::IpAddr;
use std::time::Duration;

use vrnic_abi::admin::{Carried, ConnectionRecord, NONE, TcpState};
use vrnic_abi::qp::NO_VLAN;
use vrnic_packet::ethernet::vlan_of;
use vrnic_roce::wire::frame::UDP_PORT;
use vrnic_tcp::connection::State;
use vrnic_tcp::connection::snapshot::{SendNumbers, Snapshot};

use super::Page;
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::qp::remote::Sender;
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp};

/// The longest wait for a QP that a message holds. A QP that is held longer has no record.
const WAIT: Duration = Duration::from_millis(1);

/// Maximum number of queue pairs that one command examines.
const MAX_EXAMINED: usize = 256;

impl<H: Host> Adapter<H> {
    /// Returns up to `limit` connections, of queue pairs from the number `from` on. There may be
    /// fewer or none although more follow, if many queue pairs have none.
    #[must_use]
    pub fn connection_records(&self, from: u32, limit: usize) -> Page<ConnectionRecord> {
        let mut items = Vec::new();
        for (examined, qp) in self.qps_from(from).iter().enumerate() {
            if items.len() == limit || examined == MAX_EXAMINED {
                return Page { items, next: Some(qp.qpn.get()) };
            }
            items.extend(self.connection(qp));
        }
        Page { items, next: None }
    }

    /// Returns the record of the connection of a QP, if it has one.
    fn connection(&self, qp: &Qp<H>) -> Option<ConnectionRecord> {
        let requester = qp.requester.try_lock_for(WAIT)?;
        let record = match &requester.path {
            Path::Tcp(tcp) => self.of_tcp(tcp),
            Path::Packets(sender) => of_packets(sender),
            Path::Memory | Path::Promised(_) => return None,
        };
        Some(ConnectionRecord { qpn: qp.qpn, context: qp.context, ..record })
    }

    fn of_tcp(&self, tcp: &Tcp<H>) -> ConnectionRecord {
        let path = &tcp.link.ends().path;
        let now = tcp.link.tcp().snapshot();
        let carried = match tcp.content {
            Content::Rdma(_) => Carried::Iwarp,
            Content::Bytes(_) => Carried::Bytes,
            Content::Iscsi(_) => Carried::Iscsi,
        };
        let age = self.host().now().since(now.since).as_millis();
        ConnectionRecord {
            carried: carried as u8,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            local_port: path.source.port().into(),
            remote_port: path.destination.port().into(),
            vlan: path.vlan.and_then(vlan_of).unwrap_or(NO_VLAN).into(),
            age: u64::try_from(age).unwrap_or(u64::MAX).into(),
            ..between(path.source.ip(), path.destination.ip(), numbers(&now))
        }
    }
}

/// Returns a record with the numbers of TCP.
fn numbers(now: &Snapshot) -> ConnectionRecord {
    let send = &now.send;
    ConnectionRecord {
        state: state(now.state) as u8,
        retries: u8::try_from(send.retries).unwrap_or(u8::MAX),
        retry_limit: SendNumbers::MAX_RETRIES,
        mss: u16::try_from(send.mss).unwrap_or(u16::MAX).into(),
        rtt: micros(send.round_trip.map(|(smoothed, _)| smoothed)).into(),
        rtt_var: micros(send.round_trip.map(|(_, variation)| variation)).into(),
        rto: micros(Some(send.timeout)).into(),
        keepalive: millis(now.keepalive).into(),
        user_timeout: millis(Some(send.user_timeout)).into(),
        cwnd: least(send.congestion_window).into(),
        ssthresh: least(send.threshold).into(),
        snd_wnd: least(send.window).into(),
        rcv_wnd: least(now.receive_window).into(),
        unacked: least(send.unacknowledged).into(),
        retrans: least(send.counters.resent).into(),
        timeouts: least(send.counters.timeouts).into(),
        segs_out: send.counters.segments.into(),
        bytes_sent: now.sent.into(),
        bytes_acked: now.acknowledged.into(),
        bytes_received: now.received.into(),
        ..ConnectionRecord::default()
    }
}

/// Returns the record of a connection of RoCE packets. What only TCP has is absent.
fn of_packets(sender: &Sender) -> ConnectionRecord {
    let (path, now) = (&sender.way.path, sender.engine.numbers());
    let counters = sender.engine.counters();
    let addresses = path.network.addresses;
    let record = ConnectionRecord {
        carried: Carried::Roce as u8,
        traffic_class: path.network.traffic_class,
        hop_limit: path.network.hop_limit,
        retries: now.retries,
        retry_limit: now.retry_limit,
        local_port: path.source_port.into(),
        remote_port: UDP_PORT.into(),
        vlan: path.ethernet.vlan.and_then(vlan_of).unwrap_or(NO_VLAN).into(),
        mss: u16::try_from(now.mtu).unwrap_or(u16::MAX).into(),
        rtt: micros(now.round_trip).into(),
        rtt_var: NONE.into(),
        rto: micros(now.timeout).into(),
        keepalive: NONE.into(),
        user_timeout: NONE.into(),
        cwnd: now.congestion_window.unwrap_or(NONE).into(),
        ssthresh: NONE.into(),
        snd_wnd: NONE.into(),
        rcv_wnd: NONE.into(),
        unacked: now.outstanding.into(),
        retrans: least(counters.resent).into(),
        timeouts: least(counters.timeouts).into(),
        segs_out: counters.sent.into(),
        ..ConnectionRecord::default()
    };
    between(addresses.source(), addresses.destination(), record)
}

/// Returns the record with these addresses.
fn between(local: IpAddr, remote: IpAddr, record: ConnectionRecord) -> ConnectionRecord {
    let ip = if local.is_ipv6() { 6 } else { 4 };
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    ConnectionRecord { ip, local: bytes(local), remote: bytes(remote), ..record }
}

const fn state(state: State) -> TcpState {
    match state {
        State::Established => TcpState::Established,
        State::FinWait1 => TcpState::FinWait1,
        State::FinWait2 => TcpState::FinWait2,
        State::CloseWait => TcpState::CloseWait,
        State::Closing => TcpState::Closing,
        State::LastAck => TcpState::LastAck,
        State::TimeWait => TcpState::TimeWait,
        State::Closed => TcpState::Closed,
    }
}

/// Returns the amount, or [`NONE`] if it does not fit.
fn least(amount: impl Into<u128>) -> u32 {
    u32::try_from(amount.into()).unwrap_or(NONE)
}

fn micros(time: Option<Duration>) -> u32 {
    time.map_or(NONE, |time| least(time.as_micros()))
}

fn millis(time: Option<Duration>) -> u32 {
    time.map_or(NONE, |time| least(time.as_millis()))
}

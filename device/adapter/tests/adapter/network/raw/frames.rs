//! Frames of these tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use vrnic_packet::ip::{Addresses, Header, Protocol};
use vrnic_packet::{EtherType, Ethernet, MacAddr, Writer};

/// The MAC of a guest.
pub(super) const fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Returns a frame without IP from guest 1 to this MAC, with this number of bytes.
pub(super) fn plain(to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &mac(1), &[0x88, 0xb5]].concat();
    frame.extend((frame.len()..len).map(|at| at as u8));
    frame
}

/// A packet of these tests, from guest 1 to guest 2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) to: [u8; 6],
    pub(super) vlan: Option<u16>,
    pub(super) addresses: [IpAddr; 2],
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) flow_label: u32,
    pub(super) protocol: Protocol,
    pub(super) ports: [u16; 2],
}

/// The IPv4 addresses of guests 1 and 2.
pub(super) const V4: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2))];
/// The IPv6 addresses of guests 1 and 2.
pub(super) const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
];

impl Default for Packet {
    fn default() -> Self {
        Self {
            to: mac(2),
            vlan: None,
            addresses: V4,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            protocol: Protocol::UDP,
            ports: [1000, 2000],
        }
    }
}

impl Packet {
    /// Returns the frame with this data, without checksums of TCP and UDP.
    pub(super) fn frame(&self, data: &[u8]) -> Vec<u8> {
        let Self { to, vlan, addresses: [source, destination], protocol, ports, .. } = *self;
        let addresses = Addresses::new(source, destination).expect("one family");
        let ethernet = Ethernet { destination: MacAddr(to), source: MacAddr(mac(1)), vlan };
        let header = Header {
            addresses,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
        };
        let ports = ports.map(u16::to_be_bytes).concat();
        let upper = match protocol {
            Protocol::TCP => {
                let rest = [0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
                [&ports[..], &rest].concat()
            }
            Protocol::UDP => {
                let len = (8 + data.len() as u16).to_be_bytes();
                [&ports[..], &len, &[0; 2]].concat()
            }
            _ => Vec::new(),
        };
        let mut head = [0; 64];
        let mut to = Writer::new(&mut head);
        ethernet.write(addresses.ether_type(), &mut to).expect("room");
        header.write(protocol, upper.len() + data.len(), 3, &mut to).expect("room");
        let written = to.written();
        [&head[..written], &upper, data].concat()
    }
}

/// An EtherType that the frames of [`plain`] have.
pub(super) const PLAIN: EtherType = EtherType(0x88b5);

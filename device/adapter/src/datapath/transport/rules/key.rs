//! The fields of a frame that flow rules compare.

use vrnic_abi::flow::{Fields, Network, Upper};
use vrnic_packet::ip::{Fault, Protocol};
use vrnic_packet::{Ethernet, Headers, MacAddr, Reader};

use crate::objects::network::frame_key::{FrameKey, words};

/// Reads the fields of a frame. The fields of headers that it does not have are zero.
pub(super) fn key(frame: &[u8]) -> FrameKey {
    let mut fields = Fields::default();
    let mut is_tagged = false;
    if let Ok((header, kind)) = Ethernet::parse(&mut Reader::new(frame)) {
        (fields.dmac, fields.smac) = (header.destination.0, header.source.0);
        fields.ether_type = kind.0.to_be_bytes();
        is_tagged = header.vlan.is_some();
        fields.vlan = header.vlan.unwrap_or_default().to_be_bytes();
    }
    let headers = Headers::of(frame);
    let kinds = headers.and_then(|headers| add_network(frame, &headers, &mut fields));
    let (network, upper) = kinds.unwrap_or((Network::Any, Upper::Any));
    let is_to_group = MacAddr(fields.dmac).is_group();
    let is_fragment = headers.is_some_and(|headers| headers.is_fragment);
    FrameKey { words: words(&fields), network, upper, is_tagged, is_to_group, is_fragment }
}

/// Adds the fields of IP, and of TCP or UDP. Returns the kinds of both headers, or `None` if the
/// frame has no IP header.
fn add_network(frame: &[u8], headers: &Headers, fields: &mut Fields) -> Option<(Network, Upper)> {
    if matches!(headers.fault, Some(Fault::Version | Fault::HeaderLength)) {
        return None;
    }
    let header = headers.network(frame)?;
    fields.protocol = headers.protocol.0;
    (fields.tos, fields.ttl) = (header.traffic_class, header.hop_limit);
    fields.flow_label = header.flow_label.to_be_bytes();
    fields.fragment_flags = headers.fragment_flags(frame)?;
    let network = if headers.is_v6 { Network::Ipv6 } else { Network::Ipv4 };
    put(&mut fields.source, header.addresses.source());
    put(&mut fields.destination, header.addresses.destination());
    let upper = match headers.protocol {
        Protocol::TCP if !headers.is_later_fragment => Upper::Tcp,
        Protocol::UDP if !headers.is_later_fragment => Upper::Udp,
        _ => return Some((network, Upper::Any)),
    };
    let mut ports = Reader::new(headers.payload(frame));
    let (Ok(source), Ok(destination)) = (ports.take(), ports.take()) else {
        return Some((network, Upper::Any));
    };
    (fields.source_port, fields.destination_port) = (source, destination);
    Some((network, upper))
}

/// Stores an address at the beginning of its field.
fn put(field: &mut [u8; 16], address: std::net::IpAddr) {
    match address {
        std::net::IpAddr::V4(address) => {
            for (to, from) in field.iter_mut().zip(address.octets()) {
                *to = from;
            }
        }
        std::net::IpAddr::V6(address) => *field = address.octets(),
    }
}

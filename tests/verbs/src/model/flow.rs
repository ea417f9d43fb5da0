//! Flows: which frames a QP of raw packets receives.

use serde::{Deserialize, Serialize};

use crate::ffi;

/// Kinds of flows (`enum ibv_flow_attr_type`).
pub mod kind {
    use crate::ffi;

    pub const NORMAL: u32 = ffi::IBV_FLOW_ATTR_NORMAL;
    pub const ALL_DEFAULT: u32 = ffi::IBV_FLOW_ATTR_ALL_DEFAULT;
    pub const MC_DEFAULT: u32 = ffi::IBV_FLOW_ATTR_MC_DEFAULT;
    pub const SNIFFER: u32 = ffi::IBV_FLOW_ATTR_SNIFFER;
}

/// Flag of a flow: the frame also goes where it would go without the flow.
pub const DONT_TRAP: u32 = ffi::IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
/// Flag of a flow: it is about frames that are sent.
pub const EGRESS: u32 = ffi::IBV_FLOW_ATTR_FLAGS_EGRESS;

/// Attributes of a flow (`struct ibv_flow_attr`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowAttr {
    pub kind: u32,
    pub priority: u16,
    pub flags: u32,
    /// The port; the device's own if `None`.
    pub port: Option<u8>,
    pub specs: Vec<Spec>,
}

/// A header of a flow, with its fields as they are in a frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// `enum ibv_flow_spec_type`.
    pub kind: u32,
    /// Offset of the values in the struct.
    pub offset: usize,
    pub value: Vec<u8>,
    pub mask: Vec<u8>,
}

/// Fields of Ethernet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ethernet {
    pub destination: [u8; 6],
    pub source: [u8; 6],
    pub ether_type: u16,
    pub vlan: u16,
}

impl Ethernet {
    fn bytes(&self) -> Vec<u8> {
        let (kind, vlan) = (self.ether_type.to_be_bytes(), self.vlan.to_be_bytes());
        [&self.destination[..], &self.source, &kind, &vlan].concat()
    }
}

/// Fields of IPv4.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ipv4 {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    pub flags: u8,
}

impl Ipv4 {
    fn bytes(&self) -> Vec<u8> {
        let rest = [self.protocol, self.tos, self.ttl, self.flags];
        [self.source, self.destination, rest].concat()
    }
}

/// Fields of IPv6.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ipv6 {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub flow_label: u32,
    pub next_header: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

impl Ipv6 {
    fn bytes(&self) -> Vec<u8> {
        let (label, rest) = (
            self.flow_label.to_be_bytes(),
            [self.next_header, self.traffic_class, self.hop_limit, 0],
        );
        [&self.source[..], &self.destination, &label, &rest].concat()
    }
}

/// The ports of TCP or UDP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ports {
    pub destination: u16,
    pub source: u16,
}

impl Ports {
    fn bytes(&self) -> Vec<u8> {
        [self.destination.to_be_bytes(), self.source.to_be_bytes()].concat()
    }
}

/// Bytes of a spec before its values: the type and the size.
const HEADER: usize = 6;
/// The same number of bytes for a spec whose values contain words, which are aligned.
const ALIGNED_HEADER: usize = 8;

impl Spec {
    /// Returns a header of Ethernet.
    pub fn ethernet(value: Ethernet, mask: Ethernet) -> Self {
        let (value, mask) = (value.bytes(), mask.bytes());
        Self { kind: ffi::IBV_FLOW_SPEC_ETH, offset: HEADER, value, mask }
    }

    /// Returns a header of IPv4, with only the addresses.
    pub fn ipv4_addresses(value: Ipv4, mask: Ipv4) -> Self {
        let [value, mask] = [value, mask].map(|fields| fields.bytes()[..8].to_vec());
        Self { kind: ffi::IBV_FLOW_SPEC_IPV4, offset: ALIGNED_HEADER, value, mask }
    }

    /// Returns a header of IPv4.
    pub fn ipv4(value: Ipv4, mask: Ipv4) -> Self {
        let (value, mask) = (value.bytes(), mask.bytes());
        Self { kind: ffi::IBV_FLOW_SPEC_IPV4_EXT, offset: ALIGNED_HEADER, value, mask }
    }

    /// Returns a header of IPv6.
    pub fn ipv6(value: Ipv6, mask: Ipv6) -> Self {
        let (value, mask) = (value.bytes(), mask.bytes());
        Self { kind: ffi::IBV_FLOW_SPEC_IPV6, offset: ALIGNED_HEADER, value, mask }
    }

    /// Returns a header of TCP.
    pub fn tcp(value: Ports, mask: Ports) -> Self {
        Self { kind: ffi::IBV_FLOW_SPEC_TCP, ..Self::udp(value, mask) }
    }

    /// Returns a header of UDP.
    pub fn udp(value: Ports, mask: Ports) -> Self {
        let (value, mask) = (value.bytes(), mask.bytes());
        Self { kind: ffi::IBV_FLOW_SPEC_UDP, offset: HEADER, value, mask }
    }

    /// Returns a header of VXLAN, which the adapter does not have.
    pub fn vxlan() -> Self {
        let (value, mask) = (vec![0; 4], vec![0; 4]);
        Self { kind: ffi::IBV_FLOW_SPEC_VXLAN_TUNNEL, offset: ALIGNED_HEADER, value, mask }
    }

    /// Returns an action, which the adapter does not have: frames get a mark.
    pub fn tag() -> Self {
        let value = vec![0; 4];
        let kind = ffi::IBV_FLOW_SPEC_ACTION_TAG;
        Self { kind, offset: ALIGNED_HEADER, value, mask: Vec::new() }
    }

    /// Returns the spec as libibverbs reads it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.offset];
        bytes.extend(&self.value);
        bytes.extend(&self.mask);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let size = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        bytes[..4].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        bytes
    }
}

/// What a device can do for raw packets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RawCaps {
    /// The device computes and checks checksums.
    pub checksums: bool,
    /// The device has flows.
    pub flows: bool,
    /// Bytes of the longest TCP segment that it sends in several frames.
    pub max_tso: u32,
    /// The types of QPs that have such requests, a bit each.
    pub tso_types: u32,
    /// The types of QPs that spread frames over work queues, a bit each.
    pub rss_types: u32,
    /// Entries of a table of work queues.
    pub rss_entries: u32,
    /// `enum ibv_rx_hash_function_flags`.
    pub rss_functions: u8,
    /// `enum ibv_rx_hash_fields`.
    pub rss_fields: u64,
    /// Work queues.
    pub max_wq: u32,
}

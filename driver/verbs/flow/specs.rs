// SPDX-License-Identifier: GPL-2.0
//! Translates the list of headers that a flow names (`union ib_flow_spec`) into a rule of the
//! adapter. The list is bytes here, so that a test without a kernel can run this. The module above
//! compares the layouts with the kernel's structs.

use abi::flow::{Fields, Network, Rule, Upper};
use zerocopy::FromBytes;
use zerocopy_derive::{FromBytes, Immutable, KnownLayout};

/// `IB_FLOW_SPEC_ETH`.
pub(crate) const ETHERNET: u32 = 0x20;
/// `IB_FLOW_SPEC_IPV4`.
pub(crate) const IPV4: u32 = 0x30;
/// `IB_FLOW_SPEC_IPV6`.
pub(crate) const IPV6: u32 = 0x31;
/// `IB_FLOW_SPEC_TCP`.
pub(crate) const TCP: u32 = 0x40;
/// `IB_FLOW_SPEC_UDP`.
pub(crate) const UDP: u32 = 0x41;

/// `IB_IPV4_DONT_FRAG` and `IB_IPV4_MORE_FRAG`, which are numbered in the opposite order of the
/// header.
const DONT_FRAGMENT: u8 = 1 << 1;
const MORE_FRAGMENTS: u8 = 1 << 2;

const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ETHER_IPV6: [u8; 2] = [0x86, 0xdd];

/// The layout of a spec, which begins with its type (4 bytes) and its size (2 bytes). It has two
/// filters of one type: the values, and the mask directly after them.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Number of bytes of the spec.
    pub(crate) size: usize,
    /// Offset of the values.
    pub(crate) value: usize,
    /// Offset of the mask.
    pub(crate) mask: usize,
}

impl Layout {
    /// Returns the layout of a spec with filters of type `F`.
    const fn of<F>(size: usize, value: usize) -> Self {
        Self { size, value, mask: value + size_of::<F>() }
    }
}

/// `struct ib_flow_spec_eth`.
pub(crate) const ETHERNET_SPEC: Layout = Layout::of::<EthernetFilter>(40, 6);
/// `struct ib_flow_spec_ipv4`.
pub(crate) const IPV4_SPEC: Layout = Layout::of::<Ipv4Filter>(32, 8);
/// `struct ib_flow_spec_ipv6`.
pub(crate) const IPV6_SPEC: Layout = Layout::of::<Ipv6Filter>(84, 6);
/// `struct ib_flow_spec_tcp_udp`.
pub(crate) const UPPER_SPEC: Layout = Layout::of::<UpperFilter>(16, 6);

/// `struct ib_flow_eth_filter`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EthernetFilter {
    dmac: [u8; 6],
    smac: [u8; 6],
    ether_type: [u8; 2],
    vlan: [u8; 2],
}

/// `struct ib_flow_ipv4_filter`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ipv4Filter {
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    tos: u8,
    ttl: u8,
    flags: u8,
}

/// `struct ib_flow_ipv6_filter`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ipv6Filter {
    source: [u8; 16],
    destination: [u8; 16],
    flow_label: [u8; 4],
    next_header: u8,
    traffic_class: u8,
    hop_limit: u8,
}

/// `struct ib_flow_tcp_udp_filter`.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UpperFilter {
    destination: [u8; 2],
    source: [u8; 2],
}

/// The reason for which a list is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The list is cut off, names a layer twice, or contradicts itself.
    Invalid,
    /// The adapter has no rules for such a header.
    Unsupported,
}

/// Adds the `count` headers of a list to a rule that has none.
pub(crate) fn add(rule: &mut Rule, count: u8, mut list: &[u8]) -> Result<(), Refusal> {
    let mut ethernet = None;
    for _ in 0..count {
        let (kind, rest) = list.split_first_chunk::<4>().ok_or(Refusal::Invalid)?;
        let size = rest.first_chunk::<2>().ok_or(Refusal::Invalid)?;
        let size = usize::from(u16::from_ne_bytes(*size));
        let (spec, rest) = list.split_at_checked(size).ok_or(Refusal::Invalid)?;
        match u32::from_ne_bytes(*kind) {
            ETHERNET if ethernet.is_some() => return Err(Refusal::Invalid),
            ETHERNET => ethernet = Some(add_ethernet(rule, spec)?),
            IPV4 => add_ipv4(rule, spec)?,
            IPV6 => add_ipv6(rule, spec)?,
            TCP => add_upper(rule, Upper::Tcp, spec)?,
            UDP => add_upper(rule, Upper::Udp, spec)?,
            _ => return Err(Refusal::Unsupported),
        }
        list = rest;
    }
    if !list.is_empty() {
        return Err(Refusal::Invalid);
    }
    complete(rule)?;
    clear_unmasked(&mut rule.values, &rule.mask);
    Ok(())
}

/// Reads the values and the mask of a spec.
fn filters<F: FromBytes>(spec: &[u8], layout: Layout) -> Result<[F; 2], Refusal> {
    if spec.len() != layout.size {
        return Err(Refusal::Invalid);
    }
    let read = |offset| {
        let (filter, _) = F::read_from_prefix(spec.get(offset..)?).ok()?;
        Some(filter)
    };
    match (read(layout.value), read(layout.mask)) {
        (Some(value), Some(mask)) => Ok([value, mask]),
        _ => Err(Refusal::Invalid),
    }
}

fn add_ethernet(rule: &mut Rule, spec: &[u8]) -> Result<(), Refusal> {
    let filters: [EthernetFilter; 2] = filters(spec, ETHERNET_SPEC)?;
    for (to, from) in [&mut rule.values, &mut rule.mask].into_iter().zip(filters) {
        to.dmac = from.dmac;
        to.smac = from.smac;
        to.ether_type = from.ether_type;
        to.vlan = from.vlan;
    }
    Ok(())
}

fn add_ipv4(rule: &mut Rule, spec: &[u8]) -> Result<(), Refusal> {
    let filters: [Ipv4Filter; 2] = filters(spec, IPV4_SPEC)?;
    if rule.network != Network::Any as u8 {
        return Err(Refusal::Invalid);
    }
    rule.network = Network::Ipv4 as u8;
    for (to, from) in [&mut rule.values, &mut rule.mask].into_iter().zip(filters) {
        if from.flags & !(DONT_FRAGMENT | MORE_FRAGMENTS) != 0 {
            return Err(Refusal::Invalid);
        }
        [to.source, to.destination] = [from.source, from.destination].map(wide);
        to.protocol = from.protocol;
        to.tos = from.tos;
        to.ttl = from.ttl;
        let more = if from.flags & MORE_FRAGMENTS != 0 { 1 } else { 0 };
        to.fragment_flags = from.flags & DONT_FRAGMENT | more;
    }
    Ok(())
}

/// Returns the place of an address of IPv4 in a rule.
fn wide([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn add_ipv6(rule: &mut Rule, spec: &[u8]) -> Result<(), Refusal> {
    let filters: [Ipv6Filter; 2] = filters(spec, IPV6_SPEC)?;
    if rule.network != Network::Any as u8 {
        return Err(Refusal::Invalid);
    }
    rule.network = Network::Ipv6 as u8;
    for (to, from) in [&mut rule.values, &mut rule.mask].into_iter().zip(filters) {
        if u32::from_be_bytes(from.flow_label) >> 20 != 0 {
            return Err(Refusal::Invalid);
        }
        to.source = from.source;
        to.destination = from.destination;
        to.flow_label = from.flow_label;
        to.protocol = from.next_header;
        to.tos = from.traffic_class;
        to.ttl = from.hop_limit;
    }
    Ok(())
}

fn add_upper(rule: &mut Rule, upper: Upper, spec: &[u8]) -> Result<(), Refusal> {
    let filters: [UpperFilter; 2] = filters(spec, UPPER_SPEC)?;
    if rule.upper != Upper::Any as u8 {
        return Err(Refusal::Invalid);
    }
    rule.upper = upper as u8;
    for (to, from) in [&mut rule.values, &mut rule.mask].into_iter().zip(filters) {
        to.source_port = from.source;
        to.destination_port = from.destination;
    }
    Ok(())
}

/// Adds the network header that the EtherType implies, because TCP and UDP need one. Refuses
/// headers that no frame has together.
fn complete(rule: &mut Rule) -> Result<(), Refusal> {
    let exact = |value, mask| if mask == [u8::MAX; 2] { Some(value) } else { None };
    let named = match exact(rule.values.ether_type, rule.mask.ether_type) {
        None => None,
        Some(ETHER_IPV4) => Some(Network::Ipv4),
        Some(ETHER_IPV6) => Some(Network::Ipv6),
        Some(_) => Some(Network::Any),
    };
    match named {
        Some(named) if rule.network == Network::Any as u8 && rule.upper != Upper::Any as u8 => {
            rule.network = named as u8;
        }
        Some(named) if rule.network != Network::Any as u8 && rule.network != named as u8 => {
            return Err(Refusal::Invalid);
        }
        _ => {}
    }
    if rule.upper == Upper::Any as u8 {
        return Ok(());
    }
    let other = rule.mask.protocol == u8::MAX && rule.values.protocol != rule.upper;
    if rule.network == Network::Any as u8 || other { Err(Refusal::Invalid) } else { Ok(()) }
}

/// Clears the bits of the values that are not compared.
fn clear_unmasked(values: &mut Fields, mask: &Fields) {
    use zerocopy::IntoBytes;
    for (value, mask) in values.as_mut_bytes().iter_mut().zip(mask.as_bytes()) {
        *value &= *mask;
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The part of the kernel module that translates the headers of a flow, with lists as the kernel's
//! core hands them over.
//!
//! Shows: raw: flow rules as the kernel module reads them, from bytes of any kind

extern crate vrnic_abi as abi;

use abi::flow::{Fields, Network, Rule, Upper};
use specs::Refusal::{self, Invalid, Unsupported};
use specs::{
    ETHERNET, ETHERNET_SPEC, IPV4, IPV4_SPEC, IPV6, IPV6_SPEC, Layout, TCP, UDP, UPPER_SPEC,
};

#[path = "../../driver/verbs/flow/specs.rs"]
mod specs;

/// Returns a spec with these values and this mask.
fn spec(kind: u32, layout: Layout, value: &[u8], mask: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; layout.size];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..6].copy_from_slice(&u16::try_from(layout.size).expect("short").to_ne_bytes());
    bytes[layout.value..layout.value + value.len()].copy_from_slice(value);
    bytes[layout.mask..layout.mask + mask.len()].copy_from_slice(mask);
    bytes
}

fn ethernet(ether_type: [u8; 2]) -> Vec<u8> {
    let mut value = [0; 16];
    value[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    value[12..14].copy_from_slice(&ether_type);
    let mut mask = [0; 16];
    mask[..6].fill(0xff);
    mask[12..14].fill(if ether_type == [0; 2] { 0 } else { 0xff });
    spec(ETHERNET, ETHERNET_SPEC, &value, &mask)
}

fn ipv4(protocol: u8) -> Vec<u8> {
    let value = [10, 0, 0, 1, 10, 0, 0, 2, protocol, 0, 64, 0b110];
    let mask = [255, 255, 255, 255, 255, 255, 255, 0, 255 * u8::from(protocol != 0), 0, 0, 0b100];
    spec(IPV4, IPV4_SPEC, &value, &mask)
}

fn ipv6() -> Vec<u8> {
    let mut value = [0; 39];
    value[..16].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    value[32..39].copy_from_slice(&[0, 0xa, 0xbc, 0xde, 17, 3, 9]);
    spec(IPV6, IPV6_SPEC, &value, &value)
}

fn upper(kind: u32) -> Vec<u8> {
    spec(kind, UPPER_SPEC, &[0x12, 0x34, 0x56, 0x78], &[0xff, 0xff, 0xff, 0x00])
}

fn translated(specs: &[Vec<u8>]) -> Result<Rule, Refusal> {
    let mut rule = Rule::default();
    specs::add(&mut rule, u8::try_from(specs.len()).expect("few"), &specs.concat())?;
    Ok(rule)
}

#[test]
fn all_fields_of_a_flow_arrive() {
    let rule = translated(&[ethernet([8, 0]), ipv4(6), upper(TCP)]).expect("good headers");
    assert_eq!((rule.network, rule.upper), (Network::Ipv4 as u8, Upper::Tcp as u8));
    let values = Fields {
        dmac: [2, 0, 0, 0, 0, 7],
        ether_type: [8, 0],
        source: [10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        // The last byte is not in the mask.
        destination: [10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        protocol: 6,
        // Only "more fragments" is in the mask.
        fragment_flags: 1,
        destination_port: [0x12, 0x34],
        source_port: [0x56, 0],
        ..Fields::default()
    };
    assert_eq!(rule.values, values);
    assert_eq!(rule.mask.ttl, 0);
    let rule = translated(&[ipv6(), upper(UDP)]).expect("good headers");
    assert_eq!((rule.network, rule.upper), (Network::Ipv6 as u8, Upper::Udp as u8));
    assert_eq!(rule.values.source[15], 1);
    assert_eq!(rule.values.flow_label, [0, 0xa, 0xbc, 0xde]);
    assert_eq!((rule.values.protocol, rule.values.tos, rule.values.ttl), (17, 3, 9));
}

#[test]
fn an_ethertype_implies_a_network_header_for_ports() {
    let network =
        |ether_type| translated(&[ethernet(ether_type), upper(UDP)]).map(|rule| rule.network);
    assert_eq!(network([0x08, 0x00]), Ok(Network::Ipv4 as u8));
    assert_eq!(network([0x86, 0xdd]), Ok(Network::Ipv6 as u8));
    assert_eq!(network([0x08, 0x06]), Err(Invalid), "ARP has no ports");
    assert_eq!(network([0, 0]), Err(Invalid), "no EtherType");
    let alone = translated(&[ethernet([0x08, 0x00])]).expect("good headers");
    assert_eq!(alone.network, Network::Any as u8, "the EtherType says it");
}

#[test]
fn contradictions_are_refused() {
    for (wrong, why) in [
        (vec![ethernet([8, 0]), ethernet([8, 0])], "Ethernet twice"),
        (vec![ethernet([0, 0]), ethernet([0, 0])], "Ethernet twice, without EtherType"),
        (vec![ipv4(0), ipv4(0)], "IPv4 twice"),
        (vec![ipv4(0), ipv6()], "two network headers"),
        (vec![ipv4(0), upper(TCP), upper(UDP)], "TCP and UDP"),
        (vec![ipv4(17), upper(TCP)], "TCP with the protocol of UDP"),
        (vec![ethernet([0x86, 0xdd]), ipv4(0)], "IPv4 with the EtherType of IPv6"),
        (vec![ethernet([0x08, 0x06]), ipv4(0)], "IPv4 with the EtherType of ARP"),
        (vec![upper(UDP)], "ports of nothing"),
    ] {
        assert_eq!(translated(&wrong), Err(Invalid), "{why}");
    }
    let flags = spec(IPV4, IPV4_SPEC, &[0; 12], &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(translated(&[flags]), Err(Invalid), "a flag that IPv4 lacks");
    let mut label = [0; 39];
    label[32] = 1;
    let label = spec(IPV6, IPV6_SPEC, &label, &label);
    assert_eq!(translated(&[label]), Err(Invalid), "a flow label of 21 bits");
}

#[test]
fn other_headers_are_not_supported() {
    for (kind, why) in [
        (0x22, "InfiniBand"),
        (0x34, "ESP"),
        (0x50, "VXLAN"),
        (0x51, "GRE"),
        (0x60, "MPLS"),
        (0x120, "inner Ethernet"),
        (0x1000, "a tag"),
        (0x1001, "a drop"),
    ] {
        let other = spec(kind, UPPER_SPEC, &[], &[]);
        assert_eq!(translated(&[other]), Err(Unsupported), "{why}");
    }
}

/// Shows: hostile: any bytes as lists of flow rules
#[test]
fn lists_of_any_bytes_are_read_within_their_bounds() {
    let good = [ethernet([8, 0]), ipv4(17), upper(UDP)].concat();
    for length in 0..good.len() {
        let result = specs::add(&mut Rule::default(), 3, &good[..length]);
        assert_eq!(result, Err(Invalid), "{length} bytes of the list");
    }
    for count in [0, 1, 2, 4, 255] {
        assert_eq!(specs::add(&mut Rule::default(), count, &good), Err(Invalid), "{count} headers");
    }
    // Each size but the right one is refused, also one that reaches over the end.
    for size in (0..=u16::MAX).filter(|size| usize::from(*size) != ETHERNET_SPEC.size) {
        let mut bad = good.clone();
        bad[4..6].copy_from_slice(&size.to_ne_bytes());
        assert!(specs::add(&mut Rule::default(), 3, &bad).is_err(), "a size of {size}");
    }
    // No value of a byte makes it read elsewhere.
    for at in 0..good.len() {
        for byte in 0..=u8::MAX {
            let mut any = good.clone();
            any[at] = byte;
            let mut rule = Rule::default();
            let _ = specs::add(&mut rule, 3, &any);
        }
    }
}

#[test]
fn a_flow_without_headers_takes_everything() {
    assert_eq!(translated(&[]), Ok(Rule::default()));
}

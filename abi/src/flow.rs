// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Flow rules: which frames a QP of raw packets receives (`ibv_create_flow`).
//!
//! A frame that arrives for the function is compared with its rules, after its RDMA connections.
//! Rules of [`Kind::Sniffer`] get a copy of every frame of the function, in both directions, first.
//! Then the rule of the smallest priority that matches gets the frame; between rules of one
//! priority, the oldest. Rules of [`Kind::Normal`] come before those of [`Kind::McDefault`], which
//! come before those of [`Kind::AllDefault`]. A frame that a rule takes does not reach the network
//! card of the guest, unless the rule has [`Flags::DONT_TRAP`]; then the next rule that matches, or
//! the card, gets it too.

use bitflags::bitflags;
use zerocopy::little_endian::U16;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Largest priority of a rule.
pub const PRIORITY_MAX: u16 = 7;

wire_enum! {
    /// Kinds of rules, numbered as `enum ib_flow_attr_type`.
    pub enum Kind: u8 {
        /// Frames with certain values in their headers.
        Normal = 0,
        /// All frames that no rule of another kind takes.
        AllDefault = 1,
        /// All frames to groups that no normal rule takes.
        McDefault = 2,
        /// Copies of all frames, in both directions.
        Sniffer = 3,
    }
}

wire_enum! {
    /// The network header of a frame.
    pub enum Network: u8 {
        /// Any or none: the fields of IP in [`Fields`] are not compared.
        Any = 0,
        /// IPv4.
        Ipv4 = 4,
        /// IPv6.
        Ipv6 = 6,
    }
}

wire_enum! {
    /// The header after the network header.
    pub enum Upper: u8 {
        /// Any or none: the ports are not compared.
        Any = 0,
        /// TCP.
        Tcp = 6,
        /// UDP.
        Udp = 17,
    }
}

bitflags! {
    /// Bits of [`Rule::flags`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// The frame also goes where it would go without the rule.
        const DONT_TRAP = 1 << 0;
    }
}

/// The fields of a frame's headers that a rule compares, with the bytes as in the frame.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Fields {
    /// Destination MAC.
    pub dmac: [u8; 6],
    /// Source MAC.
    pub smac: [u8; 6],
    /// EtherType of the payload, after the VLAN tag if there is one.
    pub ether_type: [u8; 2],
    /// VLAN tag: priority and VLAN id. A frame without a tag has zeros, and matches only if the
    /// mask of the VLAN id is zero.
    pub vlan: [u8; 2],
    /// Source address; an IPv4 address is in the first 4 bytes.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port of TCP or UDP.
    pub source_port: [u8; 2],
    /// Destination port of TCP or UDP.
    pub destination_port: [u8; 2],
    /// Protocol of IPv4, or next header of IPv6.
    pub protocol: u8,
    /// Type of service of IPv4, or traffic class of IPv6.
    pub tos: u8,
    /// Time to live of IPv4, or hop limit of IPv6.
    pub ttl: u8,
    /// The three flags of IPv4, in the lowest bits; zero for IPv6.
    pub fragment_flags: u8,
    /// Flow label of IPv6, in the lowest 20 bits.
    pub flow_label: [u8; 4],
    /// Zero.
    pub reserved: [u8; 4],
}

/// A rule, as CREATE_FLOW reads it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Rule {
    /// The type of the rule: a [`Kind`].
    pub kind: u8,
    /// Bits of [`Flags`].
    pub flags: u8,
    /// A [`Network`]; [`Network::Any`] unless the kind is [`Kind::Normal`].
    pub network: u8,
    /// An [`Upper`], which needs a network header.
    pub upper: u8,
    /// Priority, at most [`PRIORITY_MAX`]; smaller numbers come first.
    pub priority: U16,
    /// Zero.
    pub reserved: [u8; 2],
    /// The values. A bit that is not in the mask is zero.
    pub values: Fields,
    /// The bits that are compared. All are zero unless the kind is [`Kind::Normal`].
    pub mask: Fields,
}

const _: () = assert!(size_of::<Fields>() == 64 && size_of::<Rule>() == 136);

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The capabilities of the device, its GID table and its port.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::GuestAddr;
use crate::qp::NO_VLAN;

/// Parameters of QUERY_DEVICE and QUERY_STATS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueryParams {
    /// Guest address of the buffer to fill, 8-byte aligned.
    pub addr: GuestAddr,
    /// Length of the buffer. The device writes at most this many bytes. If the device's struct is
    /// shorter than the driver's, the rest of the buffer is set to zero.
    pub len: U32,
}

impl QueryParams {
    /// Returns parameters for a buffer of `len` bytes at guest address `addr`.
    #[must_use]
    pub fn new(addr: impl Into<GuestAddr>, len: u32) -> Self {
        Self { addr: addr.into(), len: U32::new(len) }
    }
}

wire_enum! {
    /// The protocol by which QPs of the function exchange messages.
    #[derive(Default)]
    pub enum Transport: u32 {
        /// RoCE version 2. An RC QP may be given a TCP connection, too.
        #[default]
        Roce = 0,
        /// iWARP, with RC QPs only. OPEN_CONNECTION connects them.
        Iwarp = 1,
    }
}

impl Transport {
    /// Returns its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::Iwarp => "iwarp",
        }
    }

    /// Returns the protocol with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Roce, Self::Iwarp].into_iter().find(|known| known.name() == name)
    }
}

/// The capabilities of the device. Counts are the exact limits of one function.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceCaps {
    /// Version of the daemon: major, minor, patch in 16 bits each, from bit 32 down.
    pub fw_version: U64,
    /// Longest region in bytes.
    pub max_mr_size: U64,
    /// Page sizes of regions, one bit each (bit 12 is 4 KiB).
    pub page_sizes: U64,
    /// User contexts.
    pub max_contexts: U32,
    /// PDs.
    pub max_pd: U32,
    /// CQs.
    pub max_cq: U32,
    /// Entries of a CQ.
    pub max_cqe: U32,
    /// QPs.
    pub max_qp: U32,
    /// Work requests outstanding on a queue.
    pub max_wr: U32,
    /// Scatter/gather entries of a work request.
    pub max_sge: U32,
    /// Bytes of inline data.
    pub max_inline: U32,
    /// Regions.
    pub max_mr: U32,
    /// Completion event queues.
    pub max_eq: U32,
    /// Entries of the GID table.
    pub max_gid: U32,
    /// Outstanding READs and atomics of a QP, in each direction.
    pub max_rd_atomic: U32,
    /// Longest message in bytes.
    pub max_message: U32,
    /// Port speed in Mbit/s, as reported to programs.
    pub port_mbps: U32,
    /// Windows; they and the regions share one table of `max_mr` entries.
    pub max_mw: U32,
    /// Pages of a REG_MR work request.
    pub max_fast_reg_pages: U32,
    /// SRQs, each of up to `max_wr` entries with up to `max_sge` segments.
    pub max_srq: U32,
    /// XRC domains.
    pub max_xrcd: U32,
    /// Multicast groups with members.
    pub max_mcast_groups: U32,
    /// QPs in a multicast group.
    pub max_mcast_qps: U32,
    /// The transport of the adapter: a [`Transport`].
    pub transport: U32,
    /// TCP connections at a time; zero unless the transport is iWARP.
    pub max_connections: U32,
    /// [`DeviceFeatures`].
    pub features: U32,
    /// Entries of all CQs together; `max_cqe` is the limit of each.
    pub max_cq_entries: U32,
    /// Address ranges of direct transfers at a time.
    pub max_ranges: U32,
    /// UARs, including UAR 0.
    pub max_uars: U32,
    /// Flow rules; zero unless the device has [`DeviceFeatures::RAW_PACKET`].
    pub max_flows: U32,
    /// Zero.
    pub reserved: U32,
}

impl DeviceCaps {
    /// Returns whether the device has all of these.
    #[must_use]
    pub const fn has(&self, features: DeviceFeatures) -> bool {
        DeviceFeatures::from_bits_truncate(self.features.get()).contains(features)
    }
}

bitflags! {
    /// Bits of [`DeviceCaps::features`]: what the device has beyond the first version.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DeviceFeatures: u32 {
        /// The work request AWAIT.
        const AWAIT = 1 << 0;
        /// [`super::ArmRange::at_once`].
        const READS_AT_ONCE = 1 << 1;
        /// QPs of raw packets, flow rules, checksums, and segmentation.
        const RAW_PACKET = 1 << 2;
        /// [`super::QpFlags::SPREADS`].
        const SPREADS = 1 << 3;
        /// [`super::CqFlags::HOLDING`].
        const HOLDING_CQ = 1 << 4;
        /// [`super::QpFlags::NO_SQ_KEYS`], [`super::QpFlags::WINDOWS_ONLY`],
        /// [`super::MrFlags::NO_LOCAL_READ`], [`crate::sq::MemFlags::NO_LOCAL_READ`] and
        /// [`crate::sq::MemFlags::SAME_KEY`].
        const KEY_OPTIONS = 1 << 5;
        /// The work requests ATOMIC_WRITE and FLUSH, with RoCE.
        const FLUSH = 1 << 6;
        /// CLOSE_CONNECTION, with iWARP.
        const CLOSE_CONNECTION = 1 << 7;
        /// SET_ISCSI, with iWARP, and END_COMMAND.
        const ISCSI = 1 << 8;
        /// EDIT_FAULTS and LIST_FAULTS, if the operator permits them.
        const FAULTS = 1 << 9;
        /// [`super::MrFlags::PAGED`], MAP_PAGES and UNMAP_PAGES, with RoCE.
        const PAGED = 1 << 10;
        /// The command RESIZE_SRQ.
        const RESIZE_SRQ = 1 << 11;
        /// [`super::CqFlags::IGNORE_OVERRUN`].
        const IGNORE_OVERRUN = 1 << 12;
        /// [`crate::Key::NULL`].
        const NULL_KEY = 1 << 13;
        /// [`super::QpOptions::BLOCK_LOOPBACK`].
        const BLOCK_LOOPBACK = 1 << 14;
        /// Sets of counters, as of CREATE_COUNTERS.
        const COUNTER_SETS = 1 << 15;
        /// [`super::OptionalStats`], SWITCH_COUNTER and QUERY_OPTIONAL.
        const OPTIONAL_COUNTERS = 1 << 16;
        /// The command REVOKE_MR.
        const REVOKES = 1 << 17;
        /// With iWARP: [`super::QpOptions::ACKNOWLEDGED`], and [`super::QpFlags::QUEUE_LENGTH`] of
        /// QPs with messages.
        const ACKNOWLEDGED = 1 << 18;
    }
}

/// Returns the GID of an iWARP port with this MAC: the MAC, followed by zeros.
#[must_use]
pub const fn iwarp_gid(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f] = mac;
    [a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Parameters of SET_GID. An entry names a MAC with which the guest sends. With RoCE, QPs send with
/// the addresses of an entry. With iWARP they have those of their connections.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetGid {
    /// Index in the table.
    pub index: U16,
    /// VLAN id, or [`NO_VLAN`].
    pub vlan: U16,
    /// One to set the entry, zero to clear it.
    pub valid: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// The GID, or for iWARP a MAC followed by zeros.
    pub gid: [u8; 16],
    /// Source MAC.
    pub smac: [u8; 6],
}

impl SetGid {
    /// Returns parameters that set entry `index`.
    #[must_use]
    pub fn set(index: u16, gid: [u8; 16], smac: [u8; 6], vlan: u16) -> Self {
        Self { index: index.into(), vlan: vlan.into(), valid: 1, gid, smac, ..Self::default() }
    }

    /// Returns parameters that set entry `index` to the MAC of an Ethernet device, for iWARP.
    #[must_use]
    pub fn of_mac(index: u16, mac: [u8; 6]) -> Self {
        Self::set(index, iwarp_gid(mac), mac, NO_VLAN)
    }

    /// Returns parameters that clear entry `index`.
    #[must_use]
    pub fn clear(index: u16) -> Self {
        Self { index: index.into(), ..Self::default() }
    }
}

/// Parameters of SET_PORT.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetPort {
    /// Maximum packet payload, as `enum ib_mtu`: 1 = 256 … 5 = 4096 bytes. Zero leaves it
    /// unchanged.
    pub mtu: u8,
    /// One to close the port, which then carries no traffic; zero to open it.
    pub closed: u8,
}

impl SetPort {
    /// Returns parameters with these values.
    #[must_use]
    pub const fn new(mtu: u8, open: bool) -> Self {
        Self { mtu, closed: !open as u8 }
    }
}

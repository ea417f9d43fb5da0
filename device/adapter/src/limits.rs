//! Limits of an adapter. QUERY_DEVICE reports them and the tables enforce them.

pub mod meter;
pub mod resource;

use vrnic_abi::admin::{DeviceCaps, DeviceFeatures, Transport};
use vrnic_abi::direct::RANGES;
use vrnic_abi::uar::{DEVICE_MEMORY_UNIT, UAR_COUNT};
use vrnic_abi::{cq, sq};

use crate::limits::resource::Resource;

/// Contexts, the kernel's included.
pub const MAX_CONTEXTS: u32 = 1024;
/// PDs.
pub const MAX_PD: u32 = 1 << 15;
/// CQs.
pub const MAX_CQ: u32 = 1 << 15;
/// Entries of all CQs together, which is all but one of those that [`MAX_PAGES`] has room for.
pub const MAX_CQE: u32 = u32::MAX;
/// QPs.
pub const MAX_QP: u32 = 1 << 15;
/// SRQs.
pub const MAX_SRQ: u32 = 1 << 15;
/// XRC domains.
pub const MAX_XRCD: u32 = 1 << 15;
/// Completion event queues, one for each vector but the asynchronous one.
pub const MAX_EQ: u32 = vrnic_abi::pci::MSIX_VECTORS as u32 - 1;
/// Maximum packet payload, as `enum ib_mtu`: 4,096 bytes.
pub const MAX_MTU: u8 = 5;
/// Entries of the GID table.
pub const MAX_GID: u32 = 256;
/// TCP connections of an iWARP adapter.
pub const MAX_CONNECTIONS: u32 = if cfg!(loom) { 256 } else { 1 << 14 };
/// Bytes of the daemon's memory for the buffers of all connections of an adapter.
pub const CONNECTION_MEMORY: usize = 256 << 20;
/// Multicast groups with members.
pub const MAX_MCAST_GROUPS: u32 = 1024;
/// QPs in a multicast group.
pub const MAX_MCAST_QPS: u32 = 256;
/// Flow rules.
pub const MAX_FLOWS: u32 = 256;
/// Flow rules that may give a frame to more QPs than one: sniffers, and rules after which the next
/// one gets the frame, too. A frame costs its sender a copy for each.
pub const MAX_COPIES: usize = 16;
/// Outstanding READs and atomics of a QP.
pub const MAX_RD_ATOMIC: u32 = 128;
/// The first QP number: 0 and 1 are reserved for management.
pub const FIRST_QPN: u32 = 2;
/// Page addresses of 8 bytes that an adapter stores for all its regions and rings together: enough
/// for 256 GiB in pages of 4 KiB. Keys and the segments of commands count as such words, too.
pub const MAX_PAGES: u64 = if cfg!(loom) { 1 << 12 } else { 1 << 26 };
/// Commands of a QP that no response has ended: more than any protocol has in flight, and so few
/// that a process needs many QPs to use up the keys of others.
pub const MAX_QP_COMMANDS: usize = 4096;
/// Entries of the table of keys, including the one that is never used.
pub const MAX_MR: u32 = if cfg!(loom) { 64 } else { 1 << 20 };
/// Maximum number of commands of all QPs. The other three quarters of the keys are for regions and
/// windows.
pub const MAX_COMMANDS: u64 = MAX_MR as u64 / 4;
/// Maximum number of pages of a registration by a work request: 2 MiB in pages of 4 KiB.
pub const MAX_FAST_REG_PAGES: u32 = 512;
/// Maximum length of a region in bytes.
pub const MAX_MR_SIZE: u64 = 1 << 40;

/// Number of objects that an adapter can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// User contexts.
    pub contexts: u32,
    /// PDs.
    pub pd: u32,
    /// CQs.
    pub cq: u32,
    /// SRQs.
    pub srq: u32,
    /// QPs, without the general services QP.
    pub qp: u32,
    /// Regions, windows and commands together.
    pub mr: u32,
    /// Length of device memory, in units of [`vrnic_abi::uar::DEVICE_MEMORY_UNIT`].
    pub device_memory: u32,
    /// Entries of all CQs together.
    pub cqe: u32,
    /// Entries of a send queue, a receive queue or an SRQ.
    pub wr: u32,
    /// Windows.
    pub mw: u32,
    /// Address ranges of direct transfers.
    pub ranges: u32,
    /// Multicast groups with members.
    pub mcast: u32,
    /// UARs, including UAR 0.
    pub uar: u32,
    /// Flow rules.
    pub flows: u32,
}

impl Limits {
    /// Nothing of any resource.
    pub const NONE: Self = Self {
        contexts: 0,
        pd: 0,
        cq: 0,
        srq: 0,
        qp: 0,
        mr: 0,
        device_memory: 0,
        cqe: 0,
        wr: 0,
        mw: 0,
        ranges: 0,
        mcast: 0,
        uar: 0,
        flows: 0,
    };

    /// Returns the place of the limit of a resource.
    pub const fn place(&mut self, resource: Resource) -> &mut u32 {
        match resource {
            Resource::Contexts => &mut self.contexts,
            Resource::Pd => &mut self.pd,
            Resource::Cq => &mut self.cq,
            Resource::Cqe => &mut self.cqe,
            Resource::Srq => &mut self.srq,
            Resource::Qp => &mut self.qp,
            Resource::Wr => &mut self.wr,
            Resource::Mr => &mut self.mr,
            Resource::Mw => &mut self.mw,
            Resource::DeviceMemory => &mut self.device_memory,
            Resource::Ranges => &mut self.ranges,
            Resource::Mcast => &mut self.mcast,
            Resource::Uar => &mut self.uar,
            Resource::Flows => &mut self.flows,
        }
    }

    /// Returns the limit of a resource. The limit of device memory is in bytes.
    #[must_use]
    pub const fn of(mut self, resource: Resource) -> u64 {
        // CAST: widens the number.
        let number = *self.place(resource) as u64;
        match resource {
            Resource::DeviceMemory => number * DEVICE_MEMORY_UNIT,
            _ => number,
        }
    }
}

impl Default for Limits {
    /// Returns the maximum of all numbers of objects, and 64 MiB of device memory.
    fn default() -> Self {
        Self {
            contexts: MAX_CONTEXTS - 1,
            pd: MAX_PD,
            cq: MAX_CQ,
            srq: MAX_SRQ,
            qp: MAX_QP,
            mr: MAX_MR - 1,
            device_memory: 32,
            cqe: MAX_CQE,
            wr: 1 << sq::LOG_WQES_MAX,
            mw: MAX_MR - 1,
            ranges: RANGES,
            mcast: MAX_MCAST_GROUPS,
            uar: UAR_COUNT,
            flows: MAX_FLOWS,
        }
    }
}

/// Returns the largest size of a ring that is not above this limit. Sizes are powers of two.
const fn ring_size(limit: u32) -> u32 {
    match limit.checked_ilog2() {
        Some(log) => 1 << log,
        None => 0,
    }
}

/// Returns the reply to QUERY_DEVICE of an adapter with these limits and this transport.
#[must_use]
pub fn caps(limits: &Limits, transport: Transport) -> DeviceCaps {
    let version = |part: &str| part.parse::<u64>().unwrap_or(0);
    let fw_version = version(env!("CARGO_PKG_VERSION_MAJOR")) << 32
        | version(env!("CARGO_PKG_VERSION_MINOR")) << 16
        | version(env!("CARGO_PKG_VERSION_PATCH"));
    let roce = |limit: u32| if transport == Transport::Roce { limit } else { 0 };
    DeviceCaps {
        fw_version: fw_version.into(),
        max_mr_size: MAX_MR_SIZE.into(),
        page_sizes: 0x7fff_f000.into(),
        max_contexts: limits.contexts.into(),
        max_pd: limits.pd.into(),
        max_cq: limits.cq.into(),
        max_cqe: ring_size(limits.cqe).min(1 << cq::LOG_CQES_MAX).into(),
        max_qp: limits.qp.into(),
        max_wr: ring_size(limits.wr).into(),
        max_sge: sq::MAX_SGE.into(),
        max_inline: sq::MAX_INLINE.into(),
        max_mr: limits.mr.into(),
        max_eq: MAX_EQ.into(),
        max_mw: limits.mw.min(limits.mr).into(),
        max_fast_reg_pages: MAX_FAST_REG_PAGES.into(),
        max_srq: limits.srq.into(),
        max_xrcd: roce(MAX_XRCD).into(),
        max_gid: MAX_GID.into(),
        max_rd_atomic: MAX_RD_ATOMIC.into(),
        max_message: sq::MAX_MESSAGE.into(),
        port_mbps: 100_000.into(),
        max_mcast_groups: roce(limits.mcast).into(),
        max_mcast_qps: roce(MAX_MCAST_QPS).into(),
        transport: (transport as u32).into(),
        max_connections: match transport {
            Transport::Roce => 0,
            Transport::Iwarp => MAX_CONNECTIONS,
        }
        .into(),
        max_cq_entries: limits.cqe.into(),
        max_ranges: limits.ranges.into(),
        max_uars: limits.uar.into(),
        max_flows: limits.flows.into(),
        features: DeviceFeatures::all()
            .difference(DeviceFeatures::FAULTS)
            .difference(match transport {
                Transport::Roce => DeviceFeatures::CLOSE_CONNECTION | DeviceFeatures::ACKNOWLEDGED,
                Transport::Iwarp => DeviceFeatures::FLUSH | DeviceFeatures::PAGED,
            })
            .bits()
            .into(),
        ..DeviceCaps::default()
    }
}

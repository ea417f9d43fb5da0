// SPDX-License-Identifier: GPL-2.0
//! The device and its port: limits, GIDs, counters.

use abi::admin::{QueryParams, STAT_NAMES, SetGid, Stats, command};
use kernel::{
    dma::Coherent,
    fmt,
    io::{Io, io_project},
    prelude::*,
    str::CStr,
};

use super::{Ctx, Verbs};
use crate::rdma::{
    Device,
    attr::{DeviceAttr, PortAttr, PortImmutable, Protocol},
    device::DeviceChange,
    gid::{Gid, GidAttr},
    stats::StatDesc,
};

/// `enum ib_mtu`: 1,024 bytes, for a port that has no Ethernet device.
const MTU_1024: u32 = 3;
/// `enum ib_mtu`: 4,096 bytes.
const MTU_4096: u32 = 5;
/// The VLAN id by which the adapter knows that there is none.
pub(super) const NO_VLAN: u16 = 0xffff;

/// Completions are stamped in nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;

/// Number of counters.
pub(super) const STATS: usize = STAT_NAMES.len();
/// Room for a counter's name and its terminator.
const NAME_LEN: usize = 32;

/// The counters' names as C strings.
static NAMES: [[u8; NAME_LEN]; STATS] = {
    let mut names = [[0; NAME_LEN]; STATS];
    let mut i = 0;
    while i < STATS {
        let name = STAT_NAMES[i].as_bytes();
        assert!(name.len() < NAME_LEN, "a counter's name is too long");
        let mut j = 0;
        while j < name.len() {
            names[i][j] = name[j];
            j += 1;
        }
        i += 1;
    }
    names
};

/// The counters, for the core.
pub(super) static STAT_DESCS: [StatDesc; STATS] = {
    let mut descs = [const { StatDesc::new(c"") }; STATS];
    let mut i = 0;
    while i < STATS {
        let Ok(name) = CStr::from_bytes_until_nul(&NAMES[i]) else {
            panic!("a counter's name has no terminator")
        };
        descs[i] = StatDesc::new(name);
        i += 1;
    }
    descs
};

pub(super) fn query(ctx: &Ctx<'_>) -> DeviceAttr {
    let caps = ctx.adapter.caps();
    let roce = ctx.adapter.protocol() == Protocol::Roce;
    DeviceAttr {
        fw_ver: caps.fw_version.get(),
        vendor_id: abi::pci::VENDOR_ID.into(),
        vendor_part_id: crate::module_parameters::part_id.value(),
        hw_ver: abi::ABI_VERSION,
        max_mr_size: caps.max_mr_size.get(),
        page_size_cap: caps.page_sizes.get(),
        max_qp: caps.max_qp.get(),
        max_qp_wr: caps.max_wr.get(),
        max_sge: caps.max_sge.get(),
        // A READ of iWARP names one place to put the data into.
        max_sge_rd: if roce { caps.max_sge.get() } else { 1 },
        max_cq: caps.max_cq.get(),
        max_cqe: caps.max_cqe.get(),
        max_cq_moderation: (u16::MAX, u16::MAX),
        max_srq: caps.max_srq.get(),
        max_xrcd: caps.max_xrcd.get(),
        max_mr: caps.max_mr.get(),
        max_mw: caps.max_mw.get(),
        max_fast_reg_pages: caps.max_fast_reg_pages.get(),
        max_pd: caps.max_pd.get(),
        max_rd_atomic: caps.max_rd_atomic.get(),
        atomics: true,
        // Address handles take memory only.
        max_ah: if roce { i32::MAX as u32 } else { 0 },
        max_pkeys: roce.into(),
        max_mcast_groups: caps.max_mcast_groups.get(),
        max_mcast_qps: caps.max_mcast_qps.get(),
        max_dm_size: ctx.max_device_memory(),
        timestamp_mask: u64::MAX,
        core_clock_khz: CLOCK_KHZ,
        more: DeviceAttr::CURRENT_STATE
            | DeviceAttr::PORT_ACTIVE_EVENT
            | DeviceAttr::SYSTEM_GUID
            | if roce { DeviceAttr::RNR_NAK } else { 0 },
    }
}

/// Allows all changes but those of the GUID of the system image, which is the adapter's.
pub(super) fn modify(change: &DeviceChange) -> Result {
    if change.sys_image_guid.is_some() { Err(EOPNOTSUPP) } else { Ok(()) }
}

pub(super) fn query_port(ctx: &Ctx<'_>, device: &Device<Verbs>, port: u32) -> PortAttr {
    let caps = ctx.adapter.caps();
    let roce = ctx.adapter.protocol() == Protocol::Roce;
    let netdev = device.netdev(port);
    PortAttr {
        active: !ctx.adapter.is_dead() && netdev.as_ref().is_some_and(|netdev| netdev.is_active()),
        max_mtu: MTU_4096,
        active_mtu: netdev.as_ref().and_then(|netdev| netdev.path_mtu()).unwrap_or(MTU_1024),
        phys_mtu: netdev.as_ref().map_or(0, |netdev| netdev.mtu()),
        gid_table_len: gid_table_len(ctx),
        ip_gids: roce,
        pkey_table_len: roce.into(),
        max_message: caps.max_message.get(),
        max_vl_num: 1,
        mbps: caps.port_mbps.get(),
    }
}

pub(super) fn port_immutable(ctx: &Ctx<'_>) -> PortImmutable {
    let gid_table_len = gid_table_len(ctx);
    match ctx.adapter.protocol() {
        Protocol::Roce => PortImmutable {
            core_cap_flags: PortImmutable::ROCE_V2,
            gid_table_len,
            pkey_table_len: 1,
            max_mad_size: PortImmutable::MAD_SIZE,
        },
        Protocol::Iwarp => PortImmutable {
            core_cap_flags: PortImmutable::IWARP,
            gid_table_len,
            pkey_table_len: 0,
            max_mad_size: 0,
        },
    }
}

/// Returns the number of entries of the GID table. iWARP has one, of which the adapter knows
/// nothing.
fn gid_table_len(ctx: &Ctx<'_>) -> u32 {
    match ctx.adapter.protocol() {
        Protocol::Roce => ctx.adapter.caps().max_gid.get(),
        Protocol::Iwarp => 1,
    }
}

/// Returns the one GID of an iWARP port: its MAC, followed by zeros.
pub(super) fn query_gid(ctx: &Ctx<'_>, index: u32) -> Result<Gid> {
    if index != 0 {
        return Err(EINVAL);
    }
    let [a, b, c, d, e, f] = ctx.adapter.mac();
    Ok([a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// Returns an entry of the table of partition keys, of which RoCE has one: full member of the
/// default partition.
pub(super) fn query_pkey(index: u16) -> Result<u16> {
    if index == 0 { Ok(u16::MAX) } else { Err(EINVAL) }
}

pub(super) fn fw_version(ctx: &Ctx<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
    let version = ctx.adapter.caps().fw_version.get();
    let part = |shift: u32| (version >> shift) & 0xffff;
    out.write_fmt(fmt!("{}.{}.{}", part(32), part(16), part(0)))
}

pub(super) fn read_stats(ctx: &Ctx<'_>, values: &mut [u64]) -> Result {
    let buffer = Coherent::<u64>::zeroed_slice(ctx.dma(), STATS, GFP_KERNEL)?;
    let length = u32::try_from(size_of::<Stats>())?;
    ctx.execute::<command::QueryStats>(&QueryParams::new(buffer.dma_address(), length))?;
    for (i, value) in values.iter_mut().enumerate() {
        *value = u64::from_le(io_project!(buffer, [try: i]).read_val());
    }
    Ok(())
}

pub(super) fn add_gid(ctx: &Ctx<'_>, gid: &GidAttr) -> Result {
    if !gid.is_roce_v2() {
        return Err(EOPNOTSUPP);
    }
    let source = gid.l2_source()?;
    let vlan = source.vlan.unwrap_or(NO_VLAN);
    let params = SetGid::set(gid.index(), gid.gid(), source.mac, vlan);
    // The core may call this under the RTNL.
    ctx.adapter.execute_briefly::<command::SetGid>(&params)
}

pub(super) fn del_gid(ctx: &Ctx<'_>, gid: &GidAttr) -> Result {
    match ctx.adapter.execute_briefly::<command::SetGid>(&SetGid::clear(gid.index())) {
        Err(error) if !ctx.adapter.is_dead() => Err(error),
        _ => Ok(()),
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The device and its port: limits and GIDs.

use abi::{
    admin::{DeviceFeatures, SetGid, command, iwarp_gid},
    qp::NO_VLAN,
    rss::LOG_ENTRIES_MAX,
};
use kernel::{fmt, prelude::*, str::CStr};

use crate::verbs::{Ctx, Verbs, memory::paged, port::counters, port::pma};
use crate::{
    pairing::PORT,
    rdma::{
        Device, Operations,
        device::DeviceChange,
        port::attr::{DeviceAttr, LinkLayer, PagingCaps, PortAttr, PortImmutable, Protocol},
        port::gid::{Gid, GidAttr},
        port::mad::{Mad, MadResult},
        port::stats::StatDesc,
    },
};

/// `enum ib_mtu`: 1,024 bytes, for a port that has no Ethernet device.
const MTU_1024: u32 = 3;
/// `enum ib_mtu`: 4,096 bytes.
const MTU_4096: u32 = 5;

/// Completions are stamped in nanoseconds.
const CLOCK_KHZ: u64 = 1_000_000;

#[vtable]
impl Operations for Verbs {
    const DRIVER_ID: u32 = abi::RDMA_DRIVER_ID;
    const NAMES: &'static CStr = c"vrnic%d";
    const UVERBS_ABI_VERSION: u32 = abi::UVERBS_ABI_VERSION;
    const PORTS: u32 = PORT;
    const STATS: &'static [StatDesc] = &counters::STAT_DESCS;

    fn query_device(ctx: &Ctx<'_>) -> Result<DeviceAttr> {
        let caps = ctx.adapter.caps();
        let roce = ctx.adapter.protocol() == Protocol::Roce;
        Ok(DeviceAttr {
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
            raw_packets: caps.has(DeviceFeatures::RAW_PACKET),
            max_wq_table: if ctx.has_work_queues() { 1 << LOG_ENTRIES_MAX } else { 0 },
            max_dm_size: ctx.adapter.quotas().max_device_memory(),
            timestamp_mask: u64::MAX,
            core_clock_khz: CLOCK_KHZ,
            paging: paging(ctx),
            more: DeviceAttr::CURRENT_STATE
                | DeviceAttr::PORT_ACTIVE_EVENT
                | DeviceAttr::SYSTEM_GUID
                | if roce { DeviceAttr::RNR_NAK } else { 0 }
                | if caps.has(DeviceFeatures::RESIZE_SRQ) { DeviceAttr::RESIZE_SRQ } else { 0 }
                | if caps.has(DeviceFeatures::FLUSH) { DeviceAttr::FLUSH } else { 0 },
        })
    }

    /// Allows all changes except a change of the system image GUID, which the adapter defines.
    fn modify_device(_ctx: &Ctx<'_>, change: &DeviceChange) -> Result {
        if change.sys_image_guid.is_some() { Err(EOPNOTSUPP) } else { Ok(()) }
    }

    fn query_port(ctx: &Ctx<'_>, device: &Device<Self>, port: u32) -> Result<PortAttr> {
        let caps = ctx.adapter.caps();
        let roce = ctx.adapter.protocol() == Protocol::Roce;
        let netdev = device.netdev(port);
        Ok(PortAttr {
            active: !ctx.adapter.is_dead()
                && ctx.adapter.has_link()
                && netdev.as_ref().is_some_and(|netdev| netdev.is_active()),
            max_mtu: MTU_4096,
            active_mtu: netdev.as_ref().and_then(|netdev| netdev.path_mtu()).unwrap_or(MTU_1024),
            phys_mtu: netdev.as_ref().map_or(0, |netdev| netdev.mtu()),
            gid_table_len: gid_table_len(ctx),
            ip_gids: roce,
            pkey_table_len: roce.into(),
            max_message: caps.max_message.get(),
            max_vl_num: 1,
            mbps: caps.port_mbps.get(),
        })
    }

    fn get_port_immutable(ctx: &Ctx<'_>, _port: u32) -> Result<PortImmutable> {
        let gid_table_len = gid_table_len(ctx);
        let raw = match ctx.adapter.caps().has(DeviceFeatures::RAW_PACKET) {
            true => PortImmutable::RAW_PACKET,
            false => 0,
        };
        Ok(match ctx.adapter.protocol() {
            Protocol::Roce => PortImmutable {
                core_cap_flags: PortImmutable::ROCE_V2 | raw,
                gid_table_len,
                pkey_table_len: 1,
                max_mad_size: PortImmutable::MAD_SIZE,
            },
            Protocol::Iwarp => PortImmutable {
                core_cap_flags: PortImmutable::IWARP | raw,
                gid_table_len,
                pkey_table_len: 0,
                max_mad_size: 0,
            },
        })
    }

    fn get_link_layer(_port: u32) -> LinkLayer {
        LinkLayer::Ethernet
    }

    /// Returns an entry of the table of partition keys, of which RoCE has one: full member of the
    /// default partition.
    fn query_pkey(_ctx: &Ctx<'_>, _port: u32, index: u16) -> Result<u16> {
        if index == 0 { Ok(u16::MAX) } else { Err(EINVAL) }
    }

    /// Returns the one GID of an iWARP port: the MAC of its Ethernet device, followed by zeros.
    fn query_gid(ctx: &Ctx<'_>, _port: u32, index: u32) -> Result<Gid> {
        if index != 0 {
            return Err(EINVAL);
        }
        Ok(iwarp_gid(ctx.mac))
    }

    fn add_gid(ctx: &Ctx<'_>, gid: &GidAttr) -> Result {
        if !gid.is_roce_v2() {
            return Err(EOPNOTSUPP);
        }
        let source = gid.l2_source()?;
        let vlan = source.vlan.unwrap_or(NO_VLAN);
        let params = SetGid::set(gid.index(), gid.gid(), source.mac, vlan);
        // The core may call this under the RTNL.
        ctx.adapter.execute_briefly::<command::SetGid>(&params)
    }

    fn del_gid(ctx: &Ctx<'_>, gid: &GidAttr) -> Result {
        match ctx.adapter.execute_briefly::<command::SetGid>(&SetGid::clear(gid.index())) {
            Err(error) if !ctx.adapter.is_dead() => Err(error),
            _ => Ok(()),
        }
    }

    /// Does nothing, because the pairing reports these events. It reports that a port is open only
    /// when the adapter knows this.
    fn report_port_event(_ctx: &Ctx<'_>, _event: usize) {}

    fn get_dev_fw_str(ctx: &Ctx<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        let version = ctx.adapter.caps().fw_version.get();
        let part = |shift: u32| (version >> shift) & 0xffff;
        out.write_fmt(fmt!("{}.{}.{}", part(32), part(16), part(0)))
    }

    fn get_hw_stats(ctx: &Ctx<'_>, _port: u32, values: &mut [u64]) -> Result {
        counters::read(ctx, values)
    }

    fn modify_hw_stat(ctx: &Ctx<'_>, _port: u32, index: usize, on: bool) -> Result {
        counters::switch(ctx, index, on)
    }

    fn process_mad(ctx: &Ctx<'_>, port: u32, mad: &Mad<'_>, answer: &mut [u8]) -> MadResult {
        pma::process(ctx, port, mad, answer)
    }
}

/// Returns the number of entries of the GID table that the core has. An RDMA device of iWARP has
/// one. The driver itself tells the adapter of the MACs of all of them.
fn gid_table_len(ctx: &Ctx<'_>) -> u32 {
    match ctx.adapter.protocol() {
        Protocol::Roce => ctx.adapter.caps().max_gid.get(),
        Protocol::Iwarp => 1,
    }
}

/// Returns the operations for which regions may be registered on demand. A datagram does not wait
/// for the memory of its receive.
fn paging(ctx: &Ctx<'_>) -> Option<PagingCaps> {
    const BASIC: u32 = PagingCaps::SEND | PagingCaps::RECV | PagingCaps::WRITE;
    const ANSWERED: u32 = PagingCaps::READ | PagingCaps::ATOMIC | PagingCaps::FLUSH;
    paged::is_offered(ctx).then_some(PagingCaps {
        rc: BASIC | ANSWERED | PagingCaps::SRQ_RECV,
        uc: BASIC | PagingCaps::SRQ_RECV,
        ud: PagingCaps::SEND,
        xrc: PagingCaps::SEND | PagingCaps::WRITE | ANSWERED | PagingCaps::SRQ_RECV,
    })
}

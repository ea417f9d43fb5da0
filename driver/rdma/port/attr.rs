// SPDX-License-Identifier: GPL-2.0
//! Attributes of a device and of its ports.

use crate::bindings;

/// The protocol that a device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// RoCE version 2.
    Roce,
    /// iWARP.
    Iwarp,
}

/// C: `enum ib_device_cap_flags`.
pub(crate) type DeviceCaps = bindings::ib_device_cap_flags;

/// Limits of a device; what is not named here is reported as absent.
///
/// C: `struct ib_device_attr`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceAttr {
    /// Version of the firmware: major, minor, patch in 16 bits each.
    pub(crate) fw_ver: u64,
    /// PCI vendor id.
    pub(crate) vendor_id: u32,
    /// PCI device id, or the identification that tools should see.
    pub(crate) vendor_part_id: u32,
    /// Hardware revision.
    pub(crate) hw_ver: u32,
    /// Longest region in bytes.
    pub(crate) max_mr_size: u64,
    /// Page sizes of regions, a bit each.
    pub(crate) page_size_cap: u64,
    /// Queue pairs.
    pub(crate) max_qp: u32,
    /// Work requests outstanding on a queue.
    pub(crate) max_qp_wr: u32,
    /// Scatter/gather entries of a work request.
    pub(crate) max_sge: u32,
    /// Entries of the buffer that a READ fills.
    pub(crate) max_sge_rd: u32,
    /// Completion queues.
    pub(crate) max_cq: u32,
    /// Entries of a completion queue.
    pub(crate) max_cqe: u32,
    /// Completions that an event can wait for, and microseconds.
    pub(crate) max_cq_moderation: (u16, u16),
    /// Shared receive queues, with work requests as a queue pair's.
    pub(crate) max_srq: u32,
    /// Memory regions.
    pub(crate) max_mr: u32,
    /// Memory windows, of types 1 and 2B; none: the device has no windows.
    pub(crate) max_mw: u32,
    /// Pages of a fast registration; none: the device has none, nor invalidation.
    pub(crate) max_fast_reg_pages: u32,
    /// Protection domains.
    pub(crate) max_pd: u32,
    /// READs and atomics outstanding on a queue pair, either way.
    pub(crate) max_rd_atomic: u32,
    /// True if the device's atomics are atomic against each other; else it has none.
    pub(crate) atomics: bool,
    /// XRC domains; none: the device has no XRC.
    pub(crate) max_xrcd: u32,
    /// Address handles.
    pub(crate) max_ah: u32,
    /// Partition keys.
    pub(crate) max_pkeys: u16,
    /// Multicast groups.
    pub(crate) max_mcast_groups: u32,
    /// Queue pairs in a multicast group.
    pub(crate) max_mcast_qps: u32,
    /// True if the device has queue pairs of raw packets, computes and checks the checksums of
    /// their frames, and has flows.
    pub(crate) raw_packets: bool,
    /// Entries of a table of work queues, over which queue pairs of raw packets spread frames;
    /// none: the device has no work queues.
    pub(crate) max_wq_table: u32,
    /// Bytes of device memory that an allocation can have.
    pub(crate) max_dm_size: u64,
    /// Valid bits of completion timestamps.
    pub(crate) timestamp_mask: u64,
    /// Rate of the clock that makes them.
    pub(crate) core_clock_khz: u64,
    /// On-demand paging, if the device has it.
    pub(crate) paging: Option<PagingCaps>,
    /// More that the device can do: a combination of the constants below.
    pub(crate) more: DeviceCaps,
}

/// The operations of each transport for which regions may be registered on demand
/// (`enum ib_odp_transport_cap_bits`).
///
/// C: `struct ib_odp_caps`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PagingCaps {
    pub(crate) rc: u32,
    pub(crate) uc: u32,
    /// Datagrams.
    pub(crate) ud: u32,
    pub(crate) xrc: u32,
}

impl PagingCaps {
    pub(crate) const SEND: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND;
    /// Receives of a queue pair's own.
    pub(crate) const RECV: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV;
    /// WRITEs.
    pub(crate) const WRITE: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE;
    pub(crate) const READ: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ;
    pub(crate) const ATOMIC: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC;
    /// Receives of a shared queue.
    pub(crate) const SRQ_RECV: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV;
    /// FLUSH and ATOMIC WRITE.
    pub(crate) const FLUSH: u32 = bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_FLUSH
        | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC_WRITE;
}

impl DeviceAttr {
    /// A change of a queue pair may name the present state.
    pub(crate) const CURRENT_STATE: DeviceCaps =
        bindings::ib_device_cap_flags_IB_DEVICE_CURR_QP_STATE_MOD;
    /// A port that becomes active raises an event.
    pub(crate) const PORT_ACTIVE_EVENT: DeviceCaps =
        bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT;
    /// The GUID of the system image is the device's own.
    pub(crate) const SYSTEM_GUID: DeviceCaps =
        bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID;
    /// A message that finds no receive is refused for a while (RNR NAK).
    pub(crate) const RNR_NAK: DeviceCaps = bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN;

    /// Programs may change the size of a shared receive queue.
    pub(crate) const RESIZE_SRQ: DeviceCaps = bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE;

    /// Programs may use ATOMIC WRITE and FLUSH, but FLUSH not for persistent memory.
    pub(crate) const FLUSH: DeviceCaps = bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE
        | bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL;

    /// Fills the core's struct, which starts zeroed.
    pub(in crate::rdma) fn write_to(&self, out: &mut bindings::ib_device_attr, guid: u64) {
        out.fw_ver = self.fw_ver;
        out.sys_image_guid = guid;
        out.max_mr_size = self.max_mr_size;
        out.page_size_cap = self.page_size_cap;
        out.vendor_id = self.vendor_id;
        out.vendor_part_id = self.vendor_part_id;
        out.hw_ver = self.hw_ver;
        out.max_qp = self.max_qp;
        out.max_qp_wr = self.max_qp_wr;
        out.max_send_sge = self.max_sge;
        out.max_recv_sge = self.max_sge;
        out.max_sge_rd = self.max_sge_rd;
        out.max_cq = self.max_cq;
        out.max_cqe = self.max_cqe;
        out.max_srq = self.max_srq;
        out.max_srq_wr = self.max_qp_wr;
        out.max_srq_sge = self.max_sge;
        out.max_mr = self.max_mr;
        out.max_mw = self.max_mw;
        let mut flags = self.more;
        if self.max_mw != 0 {
            flags |= bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW
                | bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B;
        }
        if self.max_fast_reg_pages != 0 {
            flags |= bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS;
        }
        if self.max_xrcd != 0 {
            flags |= bindings::ib_device_cap_flags_IB_DEVICE_XRC;
        }
        if self.raw_packets {
            flags |= bindings::ib_device_cap_flags_IB_DEVICE_RAW_IP_CSUM
                | bindings::ib_device_cap_flags_IB_DEVICE_MANAGED_FLOW_STEERING;
            out.raw_packet_caps = bindings::ib_raw_packet_caps_IB_RAW_PACKET_CAP_IP_CSUM;
        }
        if self.max_wq_table != 0 {
            out.max_wq_type_rq = self.max_qp;
            out.rss_caps = bindings::ib_rss_caps {
                supported_qpts: 1 << bindings::ib_qp_type_IB_QPT_RAW_PACKET,
                max_rwq_indirection_tables: self.max_qp,
                max_rwq_indirection_table_size: self.max_wq_table,
            };
        }
        // CAST: a bit mask.
        out.device_cap_flags = flags as u64;
        out.max_fast_reg_page_list_len = self.max_fast_reg_pages;
        out.max_pd = self.max_pd;
        let (count, period) = self.max_cq_moderation;
        out.cq_caps.max_cq_moderation_count = count;
        out.cq_caps.max_cq_moderation_period = period;
        out.max_mcast_grp = self.max_mcast_groups;
        out.max_mcast_qp_attach = self.max_mcast_qps;
        out.max_total_mcast_qp_attach =
            self.max_mcast_groups.saturating_mul(self.max_mcast_qps).min(i32::MAX as u32);
        out.max_ah = self.max_ah;
        out.max_qp_rd_atom = self.max_rd_atomic;
        out.max_qp_init_rd_atom = self.max_rd_atomic;
        out.max_res_rd_atom = self.max_rd_atomic.saturating_mul(self.max_qp);
        out.max_dm_size = self.max_dm_size;
        out.timestamp_mask = self.timestamp_mask;
        out.hca_core_clock = self.core_clock_khz;
        out.max_pkeys = self.max_pkeys;
        if let Some(PagingCaps { rc, uc, ud, xrc }) = self.paging {
            let all = bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT
                | bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT;
            out.kernel_cap_flags |= u64::from(bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING);
            out.odp_caps.general_caps = all.into();
            out.odp_caps.per_transport_caps.rc_odp_caps = rc;
            out.odp_caps.per_transport_caps.uc_odp_caps = uc;
            out.odp_caps.per_transport_caps.ud_odp_caps = ud;
            out.odp_caps.per_transport_caps.xrc_odp_caps = xrc;
        }
        out.atomic_cap = if self.atomics {
            bindings::ib_atomic_cap_IB_ATOMIC_HCA
        } else {
            bindings::ib_atomic_cap_IB_ATOMIC_NONE
        };
    }
}

/// Link layers.
///
/// C: `enum rdma_link_layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(dead_code, reason = "part of the abstraction")]
pub(crate) enum LinkLayer {
    /// InfiniBand.
    InfiniBand = bindings::rdma_link_layer_IB_LINK_LAYER_INFINIBAND,
    /// Ethernet.
    Ethernet = bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET,
}

/// The properties of a port that never change.
///
/// C: `struct ib_port_immutable`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortImmutable {
    /// Protocol and agents (`RDMA_CORE_CAP_*`).
    pub(crate) core_cap_flags: u32,
    /// Entries of the GID table.
    pub(crate) gid_table_len: u32,
    /// Entries of the table of partition keys.
    pub(crate) pkey_table_len: u32,
    /// Bytes of a management datagram, or none.
    pub(crate) max_mad_size: u32,
}

impl PortImmutable {
    /// RoCE v2 with management datagrams, and with them the connection manager
    /// (`RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP`).
    pub(crate) const ROCE_V2: u32 = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
        | bindings::RDMA_CORE_CAP_IB_MAD
        | bindings::RDMA_CORE_CAP_IB_CM
        | bindings::RDMA_CORE_CAP_AF_IB
        | bindings::RDMA_CORE_CAP_ETH_AH;
    /// iWARP, with its connection manager (`RDMA_CORE_PORT_IWARP`).
    pub(crate) const IWARP: u32 =
        bindings::RDMA_CORE_CAP_PROT_IWARP | bindings::RDMA_CORE_CAP_IW_CM;
    /// Queue pairs of raw packets (`RDMA_CORE_PORT_RAW_PACKET`), in addition to a protocol.
    pub(crate) const RAW_PACKET: u32 = bindings::RDMA_CORE_CAP_PROT_RAW_PACKET;
    /// Bytes of a management datagram of InfiniBand (`IB_MGMT_MAD_SIZE`).
    pub(crate) const MAD_SIZE: u32 = bindings::IB_MGMT_MAD_SIZE;

    /// Fills the core's struct.
    pub(in crate::rdma) fn write_to(&self, out: &mut bindings::ib_port_immutable) {
        out.core_cap_flags = self.core_cap_flags;
        out.gid_tbl_len = i32::try_from(self.gid_table_len).unwrap_or(i32::MAX);
        out.pkey_tbl_len = i32::try_from(self.pkey_table_len).unwrap_or(i32::MAX);
        out.max_mad_size = self.max_mad_size;
    }
}

/// State of a port.
///
/// C: `struct ib_port_attr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortAttr {
    /// True if the port can carry traffic.
    pub(crate) active: bool,
    /// Largest path MTU that the device can do (`enum ib_mtu`).
    pub(crate) max_mtu: u32,
    /// Largest path MTU at present (`enum ib_mtu`).
    pub(crate) active_mtu: u32,
    /// MTU of the network in bytes.
    pub(crate) phys_mtu: u32,
    /// Entries of the GID table.
    pub(crate) gid_table_len: u32,
    /// True if GIDs are IP addresses.
    pub(crate) ip_gids: bool,
    /// Entries of the table of partition keys.
    pub(crate) pkey_table_len: u16,
    /// Longest message in bytes.
    pub(crate) max_message: u32,
    /// Number of virtual lanes.
    pub(crate) max_vl_num: u8,
    /// Data rate in Mbit/s.
    pub(crate) mbps: u32,
}

/// Data rates in Mbit/s by width and speed, slowest first, as `ib_port_attr` names them.
const RATES: [(u32, u32, u32); 6] = [
    (10_000, bindings::ib_port_width_IB_WIDTH_1X, bindings::ib_port_speed_IB_SPEED_FDR10),
    (25_000, bindings::ib_port_width_IB_WIDTH_1X, bindings::ib_port_speed_IB_SPEED_EDR),
    (50_000, bindings::ib_port_width_IB_WIDTH_1X, bindings::ib_port_speed_IB_SPEED_HDR),
    (100_000, bindings::ib_port_width_IB_WIDTH_4X, bindings::ib_port_speed_IB_SPEED_EDR),
    (200_000, bindings::ib_port_width_IB_WIDTH_4X, bindings::ib_port_speed_IB_SPEED_HDR),
    (400_000, bindings::ib_port_width_IB_WIDTH_4X, bindings::ib_port_speed_IB_SPEED_NDR),
];

impl PortAttr {
    /// Fills the core's struct, which starts zeroed.
    pub(in crate::rdma) fn write_to(&self, out: &mut bindings::ib_port_attr) {
        let (state, phys_state) = if self.active {
            (
                bindings::ib_port_state_IB_PORT_ACTIVE,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP,
            )
        } else {
            (
                bindings::ib_port_state_IB_PORT_DOWN,
                bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED,
            )
        };
        out.state = state;
        // CAST: small numbers of an enum, here and below.
        out.phys_state = phys_state as u8;
        out.max_mtu = self.max_mtu;
        out.active_mtu = self.active_mtu;
        out.phys_mtu = self.phys_mtu;
        out.gid_tbl_len = i32::try_from(self.gid_table_len).unwrap_or(i32::MAX);
        out.set_ip_gids(self.ip_gids.into());
        out.max_msg_sz = self.max_message;
        out.pkey_tbl_len = self.pkey_table_len;
        out.max_vl_num = self.max_vl_num;
        let (_, width, speed) =
            RATES.iter().rev().find(|rate| rate.0 <= self.mbps).unwrap_or(&RATES[0]);
        out.active_width = *width as u8;
        out.active_speed = *speed as u16;
    }
}

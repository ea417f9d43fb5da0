//! An adapter, as its device file shows it.

use std::sync::Arc;

use vrnic_abi::admin::DeviceCaps;
use vrnic_abi::{ABI_VERSION, pci};

use super::domains::Domains;
use super::routes::Routes;
use super::write::{DeviceResp, DeviceRespEx, GidEntry, PortResp};
use crate::adapter::driver::Driver;
use crate::join::neighbors::Neighbors;
use crate::trap::tree::guid;

/// `enum ib_mtu`: 4,096 bytes.
const MTU_4096: u8 = 5;
/// Flags of `device_cap_flags`: the current state in MODIFY_QP, events of an active port, a system
/// image GUID, RNR NAKs, another size of an SRQ, windows of type 1 and 2B, and XRC.
const CAP_FLAGS: u32 = 1 << 7 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 20 | 1 << 24;
/// The operations for which memory may come on demand (`enum ib_odp_transport_cap_bits`): of
/// connected queue pairs, and sends of datagrams.
const CONNECTED: u32 = (1 << 6) - 1;
/// `struct ib_uverbs_odp_caps`: that there is memory on demand, and the operations of RC, UC, UD.
const ON_DEMAND: [u32; 6] = [1, 0, CONNECTED, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5, 1, 0];
/// `IB_UVERBS_PCF_IP_BASED_GIDS` and `IB_UVERBS_PCF_CM_SUP`.
const PORT_FLAGS: u32 = 1 << 26 | 1 << 16;
/// `IB_PORT_ACTIVE` and `IB_PORT_PHYS_STATE_LINK_UP`.
const PORT_UP: (u8, u8) = (4, 5);
/// `IB_PORT_DOWN` and `IB_PORT_PHYS_STATE_DISABLED`.
const PORT_DOWN: (u8, u8) = (1, 3);
/// `IB_UVERBS_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;
/// Maximum number of bytes of device memory of a file.
pub const DEVICE_MEMORY_MAX: u64 = 16 << 20;
/// The number of the only port.
pub const PORT: u8 = 1;

/// An adapter, as its device file shows it.
#[derive(Debug)]
pub struct Device {
    drivers: Arc<[Driver]>,
    number: usize,
    gids: Vec<[u8; 16]>,
    neighbors: Arc<Neighbors>,
    routes: Arc<Routes>,
    domains: Domains,
    name: String,
    /// The index of the network interface of the GIDs.
    interface: u32,
}

impl Device {
    /// Returns the adapter with this number in the list, which has these GIDs.
    #[must_use]
    pub fn new(
        drivers: &Arc<[Driver]>,
        number: usize,
        gids: Vec<[u8; 16]>,
        neighbors: &Arc<Neighbors>,
        routes: &Arc<Routes>,
    ) -> Self {
        let (drivers, neighbors) = (Arc::clone(drivers), Arc::clone(neighbors));
        let name = format!("vrnic{number}");
        let routes = Arc::clone(routes);
        let domains = Domains::default();
        Self { drivers, number, gids, neighbors, routes, domains, name, interface: 1 }
    }

    /// Returns its driver.
    ///
    /// # Panics
    /// Never: it has been created with a number that is in the list.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.drivers[self.number]
    }

    /// Returns its number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its GIDs.
    #[must_use]
    pub fn gids(&self) -> &[[u8; 16]] {
        &self.gids
    }

    /// Returns the MACs of addresses.
    #[must_use]
    pub fn neighbors(&self) -> &Arc<Neighbors> {
        &self.neighbors
    }

    /// Returns the ways of events.
    #[must_use]
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Returns the XRC domains.
    #[must_use]
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Returns the capabilities of the adapter.
    #[must_use]
    pub fn caps(&self) -> &DeviceCaps {
        self.driver().caps()
    }

    /// Returns the answer to QUERY_DEVICE, in its extended form. Properties that this interface
    /// does not offer to programs are zero.
    #[must_use]
    pub fn query(&self) -> DeviceRespEx {
        let caps = self.caps();
        let guid = guid(self.driver().adapter().mac().0);
        let base = DeviceResp {
            fw_ver: caps.fw_version.get(),
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: caps.max_mr_size.get(),
            page_size_cap: caps.page_sizes.get(),
            vendor_id: pci::VENDOR_ID.into(),
            vendor_part_id: pci::DEVICE_ID.into(),
            hw_ver: ABI_VERSION,
            max_qp: caps.max_qp.get(),
            max_qp_wr: caps.max_wr.get(),
            device_cap_flags: CAP_FLAGS,
            max_sge: caps.max_sge.get(),
            max_sge_rd: caps.max_sge.get(),
            max_cq: caps.max_cq.get(),
            max_cqe: caps.max_cqe.get(),
            max_mr: caps.max_mr.get(),
            max_pd: caps.max_pd.get(),
            max_qp_rd_atom: caps.max_rd_atomic.get(),
            max_res_rd_atom: caps.max_rd_atomic.get().saturating_mul(caps.max_qp.get()),
            max_qp_init_rd_atom: caps.max_rd_atomic.get(),
            // `IB_ATOMIC_HCA`: atomic among the adapters, or `IB_ATOMIC_NONE`.
            atomic_cap: self.driver().profile().atomics.into(),
            max_mw: caps.max_mw.get(),
            max_mcast_grp: caps.max_mcast_groups.get(),
            max_mcast_qp_attach: caps.max_mcast_qps.get(),
            max_total_mcast_qp_attach: caps
                .max_mcast_groups
                .get()
                .saturating_mul(caps.max_mcast_qps.get()),
            max_ah: i32::MAX as u32,
            max_srq: caps.max_srq.get(),
            max_srq_wr: caps.max_wr.get(),
            max_srq_sge: caps.max_sge.get(),
            max_pkeys: 1,
            phys_port_cnt: 1,
            ..DeviceResp::default()
        };
        let device_cap_flags_ex = CAP_FLAGS.into();
        DeviceRespEx {
            base,
            device_cap_flags_ex,
            timestamp_mask: u64::MAX,
            // In kHz: nanoseconds are counted.
            hca_core_clock: 1_000_000,
            // Completions, and microseconds.
            cq_moderation_caps: [u16::MAX.into(); 2],
            max_dm_size: DEVICE_MEMORY_MAX,
            odp_caps: ON_DEMAND,
            xrc_odp_caps: CONNECTED,
            ..DeviceRespEx::default()
        }
    }

    /// Returns the answer to QUERY_PORT.
    #[must_use]
    pub fn port(&self) -> PortResp {
        let caps = self.caps();
        let mtu = self.driver().adapter().mtu().min(MTU_4096);
        let (state, phys_state) = if self.driver().profile().port_up { PORT_UP } else { PORT_DOWN };
        PortResp {
            port_cap_flags: PORT_FLAGS,
            max_msg_sz: caps.max_message.get(),
            gid_tbl_len: caps.max_gid.get(),
            pkey_tbl_len: 1,
            state,
            phys_state,
            // `IB_LINK_LAYER_ETHERNET`.
            link_layer: 2,
            max_mtu: MTU_4096,
            active_mtu: mtu,
            max_vl_num: 1,
            // Four lanes of 25 Gbit/s.
            active_width: 2,
            active_speed: 32,
            active_speed_ex: 32,
            // A global route header is needed (`IB_UVERBS_QPF_GRH_REQUIRED`).
            flags: 1,
            ..PortResp::default()
        }
    }

    /// Returns an entry of the GID table, if it is set.
    #[must_use]
    pub fn entry(&self, index: usize) -> Option<GidEntry> {
        let gid = *self.gids.get(index)?;
        let gid_index = u32::try_from(index).ok()?;
        let netdev_ifindex = self.interface;
        Some(GidEntry { gid, gid_index, port_num: PORT.into(), gid_type: ROCE_V2, netdev_ifindex })
    }
}

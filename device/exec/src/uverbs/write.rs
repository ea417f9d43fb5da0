//! The formats of commands that were system calls write once (rdma/ib_user_verbs.h), and that
//! libibverbs makes by [`super::wire::device::INVOKE_WRITE`]. The first field of requests with an
//! answer, its address, is not used then.

use crate::formats::formats;

/// Bit of the number of a command in its extended form (`IB_USER_VERBS_CMD_FLAG_EXTENDED`).
pub const EXTENDED: u32 = 1 << 31;
/// The capabilities of the device.
pub const QUERY_DEVICE: u32 = 1;
/// A new protection domain.
pub const ALLOC_PD: u32 = 3;
/// A new address handle.
pub const CREATE_AH: u32 = 5;
/// A new memory region.
pub const REG_MR: u32 = 9;
/// Other attributes of a memory region.
pub const REREG_MR: u32 = 11;
/// A new memory window.
pub const ALLOC_MW: u32 = 14;
/// A new channel for completion events.
pub const CREATE_COMP_CHANNEL: u32 = 17;
/// Another size of a CQ.
pub const RESIZE_CQ: u32 = 19;
/// The attributes of a QP.
pub const QUERY_QP: u32 = 25;
/// A change of them.
pub const MODIFY_QP: u32 = 26;
/// A member of a multicast group.
pub const ATTACH_MCAST: u32 = 30;
/// The end of a membership.
pub const DETACH_MCAST: u32 = 31;
/// A change of the size or the limit of an SRQ.
pub const MODIFY_SRQ: u32 = 33;
/// The state of an SRQ.
pub const QUERY_SRQ: u32 = 34;
/// An XRC domain, a new one or one that others have.
pub const OPEN_XRCD: u32 = 37;
/// An XRC target that others have created.
pub const OPEN_QP: u32 = 40;
/// `IB_USER_VERBS_EX_CMD_MODIFY_CQ`, which has the extended form only.
pub const MODIFY_CQ: u32 = 57 | EXTENDED;

formats! {
    /// `struct ib_uverbs_query_device_resp`.
    DeviceResp {
        fw_ver: u64, node_guid: [u8; 8], sys_image_guid: [u8; 8], max_mr_size: u64,
        page_size_cap: u64, vendor_id: u32, vendor_part_id: u32, hw_ver: u32, max_qp: u32,
        max_qp_wr: u32, device_cap_flags: u32, max_sge: u32, max_sge_rd: u32, max_cq: u32,
        max_cqe: u32, max_mr: u32, max_pd: u32, max_qp_rd_atom: u32, max_ee_rd_atom: u32,
        max_res_rd_atom: u32, max_qp_init_rd_atom: u32, max_ee_init_rd_atom: u32, atomic_cap: u32,
        max_ee: u32, max_rdd: u32, max_mw: u32, max_raw_ipv6_qp: u32, max_raw_ethy_qp: u32,
        max_mcast_grp: u32, max_mcast_qp_attach: u32, max_total_mcast_qp_attach: u32, max_ah: u32,
        max_fmr: u32, max_map_per_fmr: u32, max_srq: u32, max_srq_wr: u32, max_srq_sge: u32,
        max_pkeys: u16, local_ca_ack_delay: u8, phys_port_cnt: u8, reserved: [u8; 4],
    } = 176;
    /// `struct ib_uverbs_ex_query_device_resp`.
    DeviceRespEx {
        base: DeviceResp, comp_mask: u32, response_length: u32, odp_caps: [u32; 6],
        timestamp_mask: u64, hca_core_clock: u64, device_cap_flags_ex: u64, rss_caps: [u32; 4],
        max_wq_type_rq: u32, raw_packet_caps: u32, tm_caps: [u32; 6], cq_moderation_caps: [u32; 2],
        max_dm_size: u64, xrc_odp_caps: u32, reserved: u32,
    } = 304;
    /// `struct ib_uverbs_query_port_resp_ex`.
    PortResp {
        port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32, qkey_viol_cntr: u32,
        gid_tbl_len: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16, state: u8, max_mtu: u8,
        active_mtu: u8, lmc: u8, max_vl_num: u8, sm_sl: u8, subnet_timeout: u8, init_type_reply: u8,
        active_width: u8, active_speed: u8, phys_state: u8, link_layer: u8, flags: u8, reserved: u8,
        port_cap_flags2: u16, reserved2: [u8; 2], active_speed_ex: u32,
    } = 48;
    /// `struct ib_uverbs_gid_entry`.
    GidEntry { gid: [u8; 16], gid_index: u32, port_num: u32, gid_type: u32, netdev_ifindex: u32, }
        = 32;
    /// `struct ib_uverbs_reg_mr`.
    RegMr {
        response: u64, start: u64, length: u64, hca_va: u64, pd_handle: u32, access_flags: u32,
    } = 40;
    /// `struct ib_uverbs_reg_mr_resp`.
    RegMrResp { mr_handle: u32, lkey: u32, rkey: u32, } = 12;
    /// `struct ib_uverbs_rereg_mr`.
    ReregMr {
        response: u64, mr_handle: u32, flags: u32, start: u64, length: u64, hca_va: u64,
        pd_handle: u32, access_flags: u32,
    } = 48;
    /// `struct ib_uverbs_alloc_mw`.
    AllocMw { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3], } = 16;
    /// `struct ib_uverbs_resize_cq`.
    ResizeCq { response: u64, cq_handle: u32, cqe: u32, } = 16;
    /// `struct ib_uverbs_ex_modify_cq`.
    ModifyCq {
        cq_handle: u32, attr_mask: u32, cq_count: u16, cq_period: u16, reserved: u32,
    } = 16;
    /// `struct ib_uverbs_attach_mcast` and `struct ib_uverbs_detach_mcast`.
    Mcast { gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16, } = 24;
    /// `struct ib_uverbs_open_xrcd`.
    OpenXrcd { response: u64, fd: i32, oflags: u32, } = 16;
    /// `struct ib_uverbs_open_qp`.
    OpenQp {
        response: u64, user_handle: u64, pd_handle: u32, qpn: u32, qp_type: u8, reserved: [u8; 7],
    } = 32;
    /// `struct ib_uverbs_create_qp_resp`.
    QpOpened { qp_handle: u32, qpn: u32, cap: QpCap, reserved: u32, } = 32;
    /// `struct ib_uverbs_ah_attr`.
    AhAttr {
        dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8,
        reserved: u8, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8,
        port_num: u8, reserved2: u8,
    } = 32;
    /// `struct ib_uverbs_create_ah`.
    CreateAh { response: u64, user_handle: u64, pd_handle: u32, reserved: u32, attr: AhAttr, } = 56;
    /// `struct ib_uverbs_qp_dest`.
    QpDest {
        dgid: [u8; 16], flow_label: u32, dlid: u16, reserved: u16, sgid_index: u8, hop_limit: u8,
        traffic_class: u8, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8,
    } = 32;
    /// `struct ib_uverbs_qp_cap`.
    QpCap {
        max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32,
        max_inline_data: u32,
    } = 20;
    /// `struct ib_uverbs_query_qp`.
    QueryQp { response: u64, qp_handle: u32, attr_mask: u32, } = 16;
    /// `struct ib_uverbs_query_qp_resp`.
    QueryQpResp {
        dest: QpDest, alt_dest: QpDest, cap: QpCap, qkey: u32, rq_psn: u32, sq_psn: u32,
        dest_qp_num: u32, qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16, qp_state: u8,
        cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, sq_draining: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8,
        rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, sq_sig_all: u8, reserved: [u8; 5],
    } = 128;
    /// `struct ib_uverbs_ex_modify_qp`. The last two fields are those of the extended form.
    ModifyQp {
        dest: QpDest, alt_dest: QpDest, qp_handle: u32, attr_mask: u32, qkey: u32, rq_psn: u32,
        sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16,
        qp_state: u8, cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, en_sqd_async_notify: u8,
        max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8,
        retry_cnt: u8, rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, reserved: [u8; 2],
        rate_limit: u32, reserved2: u32,
    } = 120;
    /// `struct ib_uverbs_modify_srq`.
    ModifySrq { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32, } = 16;
    /// `struct ib_uverbs_query_srq`.
    QuerySrq { response: u64, srq_handle: u32, reserved: u32, } = 16;
    /// `struct ib_uverbs_query_srq_resp`.
    QuerySrqResp { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32, } = 16;
}

/// Length of [`ModifyQp`] without the fields of the extended form.
pub const MODIFY_QP_LEN: usize = std::mem::offset_of!(ModifyQp, rate_limit);

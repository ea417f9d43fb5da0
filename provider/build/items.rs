// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the plugin uses of libibverbs' private interface, as patterns of names.

/// The functions that the plugin calls.
pub(crate) const FUNCTIONS: &str = "_verbs_init_and_alloc_context|\
    verbs_uninit_context|verbs_set_ops|verbs_init_cq|ibv_cmd_(get_context|query_device_any|query_port|\
    alloc_pd|dealloc_pd|reg_mr|rereg_mr|reg_dmabuf_mr|dereg_mr|advise_mr|alloc_mw|dealloc_mw|create_ah|destroy_ah|create_cq|create_cq_ex|modify_cq|resize_cq|destroy_cq|create_qp|query_qp|modify_qp|modify_qp_ex|\
    destroy_qp|create_qp_ex|open_qp|create_srq|create_srq_ex|modify_srq|query_srq|destroy_srq|\
    open_xrcd|close_xrcd|alloc_dm|free_dm|reg_dm_mr|query_mr|attach_mcast|detach_mcast|create_flow|destroy_flow|\
    create_wq|modify_wq|destroy_wq|create_rwq_ind_table|destroy_rwq_ind_table|create_qp_ex2)|\
    ibv_(query_device|alloc_pd|dealloc_pd|create_cq|resize_cq|destroy_cq|create_qp|query_qp|modify_qp|destroy_qp)";
/// The types that the plugin uses, in addition to the arguments of those functions.
pub(crate) const TYPES: &str = "verbs_(qp_mask|device|context|context_ops|device_ops|match_ent|sysfs_dev|cq|srq|xrcd|qp|mr|dm)|\
    ibv_(send_wr|recv_wr|wc|sge|qp_attr|qp_init_attr|srq_attr|srq_init_attr)|\
    ibv_(srq_init_attr_(ex|mask)|srq_attr_mask|srq_type|qp_init_attr_(ex|mask)|qp_open_attr|xrcd_init_attr)|\
    ibv_(wr|wc)_opcode|ibv_send_flags|\
    ibv_wc_(status|flags)|ibv_qp_(type|attr_mask|state)|ibv_access_flags|ibv_mw_(bind|type)|\
    ibv_placement_type|ibv_selectivity_level|\
    ibv_(values_ex|values_mask|create_cq_wc_flags|create_cq_attr_flags|cq_init_attr_(ex|mask))|\
    ibv_(qp_create_(send_ops_)?flags|data_buf|parent_domain_init_attr_mask)|\
    ibv_(wq_(type|init_attr_mask|attr_mask|state)|rx_hash_function_flags)|\
    ib_uverbs_(alloc_mw|create_ah|rereg_mr)_resp|vrnicdv_(qp_attr|cq_attr|command|qp_flags|cq_flags|cq_state|tag_form|mem_flags)|\
    vrnicdv_(reservation|reservation_reason|rdma_attr|rdma_flags|connection|connection_status|connection_events)|\
    vrnicdv_(range|range_state|transfer|transfer_flags|await|keys)|\
    vrnicdv_(area|doorbell|ring|qp_layout|cq_layout|queues|words|place|header|opcode|wqe_flags|wqe|sge|recv_wqe|cqe)|\
    ib_uverbs_(ioctl_hdr|attr)|uverbs_(default_objects|methods_device|attrs_query_context_attr_ids)";

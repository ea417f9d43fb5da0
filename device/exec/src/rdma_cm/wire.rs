//! The formats of commands and events (rdma/rdma_user_cm.h).

use crate::formats::formats;
use crate::uverbs::write::AhAttr;

/// Port spaces: datagrams of IPoIB.
pub const PS_IPOIB: u16 = 0x0002;
/// The port space of InfiniBand.
pub const PS_IB: u16 = 0x013f;
/// The port space of connections.
pub const PS_TCP: u16 = 0x0106;
/// The port space of datagrams.
pub const PS_UDP: u16 = 0x0111;
/// Length of a socket address that fits to all formats, and of one for IPv6.
pub const STORAGE_LEN: usize = 128;
/// Length of a socket address of IPv6.
pub const IN6_LEN: usize = 28;

/// The numbers of commands (`RDMA_USER_CM_CMD_*`).
pub mod command {
    /// A new identifier.
    pub const CREATE_ID: u32 = 0;
    /// The end of one.
    pub const DESTROY_ID: u32 = 1;
    /// The own address.
    pub const BIND_IP: u32 = 2;
    /// The adapter on the way to an address.
    pub const RESOLVE_IP: u32 = 3;
    /// The way to an address.
    pub const RESOLVE_ROUTE: u32 = 4;
    /// The addresses and the way.
    pub const QUERY_ROUTE: u32 = 5;
    /// A request for a connection.
    pub const CONNECT: u32 = 6;
    /// Requests of peers.
    pub const LISTEN: u32 = 7;
    /// The answer to a request or a response.
    pub const ACCEPT: u32 = 8;
    /// Another answer.
    pub const REJECT: u32 = 9;
    /// The end of a connection.
    pub const DISCONNECT: u32 = 10;
    /// The attributes of a queue pair.
    pub const INIT_QP_ATTR: u32 = 11;
    /// The next event.
    pub const GET_EVENT: u32 = 12;
    /// An option, which no kernel has.
    pub const GET_OPTION: u32 = 13;
    /// A new value of an option.
    pub const SET_OPTION: u32 = 14;
    /// An event of a queue pair.
    pub const NOTIFY: u32 = 15;
    /// A multicast group.
    pub const JOIN_IP_MCAST: u32 = 16;
    /// The end of a membership.
    pub const LEAVE_MCAST: u32 = 17;
    /// An identifier of another file.
    pub const MIGRATE_ID: u32 = 18;
    /// Addresses, paths or GIDs.
    pub const QUERY: u32 = 19;
    /// The own address, of any family.
    pub const BIND: u32 = 20;
    /// The adapter on the way to an address of any family.
    pub const RESOLVE_ADDR: u32 = 21;
    /// A multicast group of any family.
    pub const JOIN_MCAST: u32 = 22;
    /// A service of InfiniBand.
    pub const RESOLVE_IB_SERVICE: u32 = 23;
    /// An event of the program itself.
    pub const WRITE_CM_EVENT: u32 = 24;
}

/// The numbers of events (`enum rdma_cm_event_type`).
pub mod event {
    /// There is an adapter on the way to the address.
    pub const ADDR_RESOLVED: u32 = 0;
    /// There is none.
    pub const ADDR_ERROR: u32 = 1;
    /// There is a way.
    pub const ROUTE_RESOLVED: u32 = 2;
    /// A peer requests a connection.
    pub const CONNECT_REQUEST: u32 = 4;
    /// A peer accepts one.
    pub const CONNECT_RESPONSE: u32 = 5;
    /// The peer does not answer.
    pub const UNREACHABLE: u32 = 7;
    /// The peer rejects the connection.
    pub const REJECTED: u32 = 8;
    /// There is a connection.
    pub const ESTABLISHED: u32 = 9;
    /// The connection has ended.
    pub const DISCONNECTED: u32 = 10;
    /// There is a multicast group.
    pub const MULTICAST_JOIN: u32 = 12;
    /// No packets of the connection can arrive any more.
    pub const TIMEWAIT_EXIT: u32 = 15;
    /// Events that programs write.
    pub const USER: u32 = 18;
    /// Events that librdmacm writes.
    pub const INTERNAL: u32 = 19;
}

formats! {
    /// `struct rdma_ucm_cmd_hdr`.
    CmdHeader { cmd: u32, in_len: u16, out_len: u16, } = 8;
    /// `struct rdma_ucm_create_id`.
    CreateId { uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5], } = 24;
    /// `struct rdma_ucm_destroy_id`, which also ends memberships.
    DestroyId { response: u64, id: u32, reserved: u32, } = 16;
    /// `struct rdma_ucm_bind_ip`.
    BindIp { response: u64, addr: [u8; 28], id: u32, } = 40;
    /// `struct rdma_ucm_bind`.
    BindAny { id: u32, addr_size: u16, reserved: u16, addr: [u8; 128], } = 136;
    /// `struct rdma_ucm_resolve_ip`.
    ResolveIp { src_addr: [u8; 28], dst_addr: [u8; 28], id: u32, timeout_ms: u32, } = 64;
    /// `struct rdma_ucm_resolve_addr`.
    ResolveAddr {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32, src_addr: [u8; 128],
        dst_addr: [u8; 128],
    } = 272;
    /// `struct rdma_ucm_resolve_route`.
    ResolveRoute { id: u32, timeout_ms: u32, } = 8;
    /// `struct rdma_ucm_query`.
    Query { response: u64, id: u32, option: u32, } = 16;
    /// `struct ib_user_path_rec`.
    PathRecord {
        dgid: [u8; 16], sgid: [u8; 16], dlid: u16, slid: u16, raw_traffic: u32,
        flow_label: [u8; 4], reversible: u32, mtu: u32, pkey: u16, hop_limit: u8, traffic_class: u8,
        numb_path: u8, sl: u8, mtu_selector: u8, rate_selector: u8, rate: u8,
        packet_life_time_selector: u8, packet_life_time: u8, preference: u8,
    } = 64;
    /// `struct rdma_ucm_query_route_resp`.
    RouteResp {
        node_guid: [u8; 8], ib_route: [PathRecord; 2], src_addr: [u8; 28], dst_addr: [u8; 28],
        num_paths: u32, port_num: u8, reserved: [u8; 3], ibdev_index: u32, reserved1: u32,
    } = 208;
    /// `struct rdma_ucm_query_addr_resp`.
    AddrResp {
        node_guid: [u8; 8], port_num: u8, reserved: u8, pkey: u16, src_size: u16, dst_size: u16,
        src_addr: [u8; 128], dst_addr: [u8; 128], ibdev_index: u32, reserved1: u32,
    } = 280;
    /// `struct rdma_ucm_query_path_resp` with one `struct ib_path_rec_data`.
    PathResp { num_paths: u32, reserved: u32, flags: u32, reserved2: u32, path: [u8; 64], } = 80;
    /// `struct rdma_ucm_conn_param`.
    ConnParam {
        qp_num: u32, qkey: u32, private_data: [u8; 256], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8,
        rnr_retry_count: u8, valid: u8,
    } = 272;
    /// `struct rdma_ucm_ud_param`.
    UdParam {
        qp_num: u32, qkey: u32, ah_attr: AhAttr, private_data: [u8; 256], private_data_len: u8,
        reserved: [u8; 7],
    } = 304;
    /// `struct rdma_ucm_ece`.
    EceParam { vendor_id: u32, attr_mod: u32, } = 8;
    /// `struct rdma_ucm_connect`.
    ConnectId { conn_param: ConnParam, id: u32, reserved: u32, ece: EceParam, } = 288;
    /// `struct rdma_ucm_listen`.
    ListenId { id: u32, backlog: u32, } = 8;
    /// `struct rdma_ucm_accept`.
    AcceptId { uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: EceParam, } = 296;
    /// `struct rdma_ucm_reject`.
    RejectId {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; 256],
    } = 264;
    /// `struct rdma_ucm_init_qp_attr`.
    InitQpAttr { response: u64, id: u32, qp_state: u32, } = 16;
    /// `struct ib_uverbs_qp_attr`.
    QpAttrs {
        qp_attr_mask: u32, qp_state: u32, cur_qp_state: u32, path_mtu: u32, path_mig_state: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        ah_attr: AhAttr, alt_ah_attr: AhAttr, cap: [u32; 5], pkey_index: u16, alt_pkey_index: u16,
        en_sqd_async_notify: u8, sq_draining: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8,
        min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: [u8; 5],
    } = 144;
    /// `struct rdma_ucm_notify`.
    NotifyId { id: u32, event: u32, } = 8;
    /// `struct rdma_ucm_join_ip_mcast`.
    JoinIp { response: u64, uid: u64, addr: [u8; 28], id: u32, } = 48;
    /// `struct rdma_ucm_join_mcast`.
    JoinAny {
        response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: [u8; 128],
    } = 152;
    /// `struct rdma_ucm_event_resp`.
    EventResp {
        uid: u64, id: u32, event: u32, status: i32, param: [u8; 304], reserved: u32, ece: EceParam,
    } = 336;
    /// `struct rdma_ucm_set_option`.
    SetOption { optval: u64, id: u32, level: u32, optname: u32, optlen: u32, } = 24;
    /// `struct rdma_ucm_migrate_id`.
    MigrateId { response: u64, id: u32, fd: u32, } = 16;
    /// `struct rdma_ucm_write_cm_event`, without what follows the argument.
    WriteCmEvent { id: u32, reserved: u32, event: u32, status: i32, arg: u64, } = 24;
}

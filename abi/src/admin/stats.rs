// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The counters of an adapter. Where other RDMA drivers of Linux have a counter of the same meaning
//! (`hw_counters` of `bnxt_re`, `efa`, `mlx5_ib`, `rxe`), its name is used.

use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{CountersId, GuestAddr, Qpn};

/// Parameters of BIND_COUNTERS. From then on the set counts the work of the QP, and the counters of
/// the function ([`super::Opcode::QueryStats`]) do not contain it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BindCounters {
    /// The QP.
    pub qpn: Qpn,
    /// The set; zero for none. The set that the QP had before stops counting its work.
    pub counters: CountersId,
}

impl BindCounters {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(qpn: impl Into<Qpn>, counters: impl Into<CountersId>) -> Self {
        Self { qpn: qpn.into(), counters: counters.into() }
    }
}

/// Parameters of QUERY_COUNTERS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct QueryCounters {
    /// Guest address of the buffer to fill, 8-byte aligned.
    pub addr: GuestAddr,
    /// Length of the buffer, as in [`super::QueryParams::len`].
    pub len: U32,
    /// The set; zero for all work of the function, including what sets have counted.
    pub counters: CountersId,
}

impl QueryCounters {
    /// Returns parameters for a buffer of `len` bytes at guest address `addr`.
    #[must_use]
    pub fn new(addr: impl Into<GuestAddr>, len: u32, counters: impl Into<CountersId>) -> Self {
        Self { addr: addr.into(), len: U32::new(len), counters: counters.into() }
    }
}

/// Parameters of SWITCH_COUNTER.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SwitchCounter {
    /// The index of its field in [`OptionalStats`].
    pub index: U32,
    /// One to switch it on, zero to switch it off. If it was off, it then counts from zero.
    pub on: U32,
}

impl SwitchCounter {
    /// Returns parameters with these values.
    #[must_use]
    pub fn new(index: u32, on: bool) -> Self {
        Self { index: U32::new(index), on: U32::new(on.into()) }
    }
}

/// Defines a struct of counters, the numbers and names of its fields, and their meanings from one
/// list.
macro_rules! stats {
    (
        $(#[doc = $about:literal])* $stats:ident, $counters:ident, $names:ident, $meanings:ident;
        $(#[doc = $help:literal] $field:ident $counter:ident,)*
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $stats {
            $(#[doc = $help] pub $field: U64,)*
        }

        #[doc = concat!("A counter: the index of its field in [`", stringify!($stats), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $counters {
            $(#[doc = $help] $counter,)*
        }

        #[doc = concat!("Names of the fields of [`", stringify!($stats), "`], in order.")]
        pub const $names: [&str; size_of::<$stats>() / 8] = [$(stringify!($field),)*];

        #[doc = concat!("The help texts of the fields of [`", stringify!($stats), "`], in order.")]
        pub const $meanings: [&str; size_of::<$stats>() / 8] = [$($help.trim_ascii(),)*];
    };
}

stats! {
    /// Counters of a function since its last reset. The kernel shows them as `hw_counters`, by the
    /// field names.
    Stats, Counter, STAT_NAMES, STAT_HELP;
    /// Packets sent that carried requests or responses
    tx_pkts TxPkts,
    /// Bytes of data in the packets sent
    tx_bytes TxBytes,
    /// Packets received that carried requests or responses
    rx_pkts RxPkts,
    /// Bytes of data in the packets received
    rx_bytes RxBytes,
    /// SEND work requests begun
    tx_send_req TxSendReq,
    /// RDMA WRITE work requests begun
    tx_write_req TxWriteReq,
    /// RDMA READ work requests begun
    tx_read_req TxReadReq,
    /// Atomic work requests begun
    tx_atomic_req TxAtomicReq,
    /// SENDs of peers executed
    rx_send_req RxSendReq,
    /// RDMA WRITEs of peers executed
    rx_write_requests RxWriteRequests,
    /// RDMA READs of peers executed
    rx_read_requests RxReadRequests,
    /// Atomics of peers executed
    rx_atomic_requests RxAtomicRequests,
    /// Receive work requests taken off their queues
    recv_wrs RecvWrs,
    /// Times that the ACK timer of a requester expired, with or without retries left
    local_ack_timeout_err LocalAckTimeoutErr,
    /// Requests that failed because the peer did not answer
    retry_exceeded_err RetryExceededErr,
    /// RNR NAKs received after which the request was repeated
    rnr_nak_retry_err RnrNakRetryErr,
    /// Requests that failed because the peer was not ready
    retry_rnr_exceeded_err RetryRnrExceededErr,
    /// RNR NAKs sent
    send_rnr_err SendRnrErr,
    /// Messages that found no receive: RNR NAKs sent, and those that unreliable queue pairs dropped
    out_of_buffer OutOfBuffer,
    /// Send completions with an error other than a flush error
    req_cqe_error ReqCqeError,
    /// Send completions with a flush error
    req_cqe_flush_error ReqCqeFlushError,
    /// Receive completions with an error other than a flush error
    resp_cqe_error RespCqeError,
    /// Receive completions with a flush error
    resp_cqe_flush_error RespCqeFlushError,
    /// Requests that a peer refused because of its memory protection
    req_remote_access_errors ReqRemoteAccessErrors,
    /// Requests of peers refused because of memory protection
    resp_remote_access_errors RespRemoteAccessErrors,
    /// Requests that a peer refused as invalid
    req_remote_invalid_request ReqRemoteInvalidRequest,
    /// Requests of peers refused as invalid, because they were not enabled or not aligned
    resp_remote_invalid_request RespRemoteInvalidRequest,
    /// Requests of peers refused because the receive was too short
    resp_local_length_error RespLocalLengthError,
    /// Work requests with a bad local segment
    local_protection_err LocalProtectionErr,
    /// Malformed work requests, with a wrong operation, count or length
    local_qp_op_err LocalQpOpErr,
    /// Refused work requests that concern keys
    mem_mgmt_op_err MemMgmtOpErr,
    /// Messages of unreliable queue pairs that were lost, counted at the sender
    tx_roce_discards TxRoceDiscards,
    /// Packets received that were dropped
    rx_roce_discards RxRoceDiscards,
    /// Packets received whose invariant CRC was wrong
    rx_icrc_encapsulated RxIcrcEncapsulated,
    /// Packets received out of order, after a missing one
    out_of_sequence OutOfSequence,
    /// Requests received that had been executed before
    duplicate_request DuplicateRequest,
    /// NAKs received for a packet that the peer is missing
    packet_seq_err PacketSeqErr,
    /// Answers received that showed that an earlier one was lost
    implied_nak_seq_err ImpliedNakSeqErr,
    /// Packets retransmitted
    roce_adp_retrans RoceAdpRetrans,
    /// Congestion notifications sent
    np_cnp_sent NpCnpSent,
    /// Packets received with a congestion mark
    np_ecn_marked_roce_packets NpEcnMarkedRocePackets,
    /// Congestion notifications received that reduced a window
    rp_cnp_handled RpCnpHandled,
    /// TCP segments retransmitted
    tcp_retrans_segs TcpRetransSegs,
    /// Retransmission time-outs of TCP connections
    tcp_timeouts TcpTimeouts,
    /// Messages received by TCP connections with a wrong CRC
    mpa_crc_errors MpaCrcErrors,
    /// Terminates sent, because a message of the peer was refused
    tx_terminates TxTerminates,
    /// Terminates received, because the peer refused a message
    rx_terminates RxTerminates,
    /// Times that the port went down
    link_downed LinkDowned,
    /// REG_MR work requests begun
    reg_wqes RegWqes,
    /// LOCAL_INV work requests begun
    local_inv_wqes LocalInvWqes,
    /// BIND_MW work requests begun
    bind_wqes BindWqes,
    /// SEND_CMD work requests begun
    command_wqes CommandWqes,
    /// TRANSFER work requests begun
    transfer_wqes TransferWqes,
    /// Keys invalidated by messages of peers
    remote_invalidations RemoteInvalidations,
    /// Completions written
    cqes Cqes,
    /// Completion events raised
    completion_events CompletionEvents,
    /// Interrupts raised
    interrupts Interrupts,
    /// Doorbells rung that belong to no object
    bad_doorbells BadDoorbells,
    /// Completion queues that failed
    cq_overflows CqOverflows,
    /// Times that the guest woke the adapter by the kick page
    kicks Kicks,
    /// Admin commands run
    completed_cmds CompletedCmds,
    /// Admin commands refused
    cmds_err CmdsErr,
    /// Frames for raw packet queue pairs that were lost, for example because there was no receive
    rx_raw_discards RxRawDiscards,
}

const _: () = assert!(size_of::<Stats>() == 63 * 8);

stats! {
    /// Counters of a function that count only while SWITCH_COUNTER has them on, because they cost
    /// time at each work request. `rdma statistic set` names them by the field names.
    OptionalStats, OptionalCounter, OPTIONAL_NAMES, OPTIONAL_HELP;
    /// Bytes of SEND work requests begun
    tx_send_bytes TxSendBytes,
    /// Bytes of RDMA WRITE work requests begun
    tx_write_bytes TxWriteBytes,
    /// Bytes that RDMA READ work requests begun ask for
    tx_read_bytes TxReadBytes,
    /// Messages of at most 256 bytes begun
    tx_msgs_256 TxMsgs256,
    /// Messages of more than 256 bytes and at most 4 KiB begun
    tx_msgs_4k TxMsgs4k,
    /// Messages of more than 4 KiB and at most 64 KiB begun
    tx_msgs_64k TxMsgs64k,
    /// Messages of more than 64 KiB and at most 1 MiB begun
    tx_msgs_1m TxMsgs1m,
    /// Messages of more than 1 MiB begun
    tx_msgs_large TxMsgsLarge,
}

const _: () = assert!(size_of::<OptionalStats>() == 8 * 8);

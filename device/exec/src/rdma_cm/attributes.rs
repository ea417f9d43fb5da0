//! The attributes of queue pairs (`rdma_init_qp_attr` in drivers/infiniband/core/cma.c, and
//! `ib_cm_init_qp_attr` in cm.c there).

use rustix::io::Errno;
use vrnic_cm::connection::Connection;
use vrnic_cm::parameters::{Path, Transport};
use vrnic_cm::state::State;

use super::ids::{CmId, UDP_QKEY};
use super::request::CmCommand;
use super::service::CmService;
use super::wire::{InitQpAttr, QpAttrs};
use crate::trap::task::FileId;
use crate::uverbs::device::PORT;
use crate::uverbs::write::AhAttr;

/// States of a queue pair (`enum ib_qp_state`).
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const ERR: u32 = 6;
/// Attributes (`enum ib_qp_attr_mask`).
const STATE: u32 = 1 << 0;
const ACCESS_FLAGS: u32 = 1 << 3;
const PKEY_INDEX: u32 = 1 << 4;
const PORT_NUMBER: u32 = 1 << 5;
const QKEY: u32 = 1 << 6;
const ADDRESS: u32 = 1 << 7;
const PATH_MTU: u32 = 1 << 8;
const TIMEOUT: u32 = 1 << 9;
const RETRY_CNT: u32 = 1 << 10;
const RNR_RETRY: u32 = 1 << 11;
const RQ_PSN: u32 = 1 << 12;
const MAX_RD_ATOMIC: u32 = 1 << 13;
const MIN_RNR_TIMER: u32 = 1 << 15;
const SQ_PSN: u32 = 1 << 16;
const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
const DEST_QPN: u32 = 1 << 20;
/// Rights of peers (`enum ib_access_flags`).
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;
/// Length of the answer in bytes.
const LEN: usize = size_of::<QpAttrs>();

/// Returns a path, as programs read it.
pub(super) fn address(path: &Path, gid_index: u8) -> AhAttr {
    AhAttr {
        dgid: path.dest,
        flow_label: path.flow_label,
        sgid_index: gid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.level,
        is_global: 1,
        port_num: PORT,
        ..AhAttr::default()
    }
}

/// Returns the attributes of a queue pair that is not connected.
fn unconnected(id: &CmId) -> QpAttrs {
    let mask = STATE | PKEY_INDEX | PORT_NUMBER;
    let port_num = PORT;
    if id.kind.is_datagram() {
        QpAttrs { qp_attr_mask: mask | QKEY, qkey: UDP_QKEY, port_num, ..QpAttrs::default() }
    } else {
        QpAttrs { qp_attr_mask: mask | ACCESS_FLAGS, port_num, ..QpAttrs::default() }
    }
}

/// Returns the attributes for the state INIT.
fn init(connection: &Connection) -> QpAttrs {
    let reads = connection.responder_resources() != 0;
    let more = if reads { REMOTE_READ | REMOTE_ATOMIC } else { 0 };
    QpAttrs {
        qp_attr_mask: STATE | ACCESS_FLAGS | PKEY_INDEX | PORT_NUMBER,
        qp_access_flags: REMOTE_WRITE | more,
        port_num: PORT,
        ..QpAttrs::default()
    }
}

/// Returns the attributes for the state RTR.
fn ready_to_receive(connection: &Connection, gid_index: u8) -> QpAttrs {
    let reads = if connection.transport() == Transport::Uc {
        0
    } else {
        MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER
    };
    QpAttrs {
        qp_attr_mask: STATE | ADDRESS | PATH_MTU | DEST_QPN | RQ_PSN | reads,
        ah_attr: address(connection.path(), gid_index),
        path_mtu: connection.path().mtu.into(),
        dest_qp_num: connection.peer().qpn,
        max_dest_rd_atomic: connection.responder_resources(),
        ..QpAttrs::default()
    }
}

/// Returns the attributes for the state RTS.
fn ready_to_send(connection: &Connection) -> QpAttrs {
    let reliable = if connection.transport() == Transport::Uc {
        0
    } else {
        RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC | TIMEOUT
    };
    QpAttrs {
        qp_attr_mask: STATE | SQ_PSN | reliable,
        sq_psn: connection.peer().psn,
        retry_cnt: connection.retry_count(),
        rnr_retry: connection.rnr_retry_count(),
        max_rd_atomic: connection.initiator_depth(),
        timeout: connection.ack_timeout(),
        ..QpAttrs::default()
    }
}

/// Returns whether the peer's queue pair is known.
fn knows_peer(state: State) -> bool {
    matches!(
        state,
        State::ReqRcvd
            | State::MraReqSent
            | State::RepRcvd
            | State::MraRepSent
            | State::RepSent
            | State::MraRepRcvd
            | State::Established
    )
}

impl<T> CmService<T> {
    /// Answers with the attributes for a state of a queue pair (`ucma_init_qp_attr`).
    pub(super) fn init_qp_attr(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        command.check_room(LEN)?;
        let InitQpAttr { response, id: number, qp_state } = command.copy()?;
        if qp_state > ERR {
            return Err(Errno::INVAL);
        }
        let (id, manager) = self.on_adapter(file, number)?;
        let gid_index = id.attached.map_or(0, |attached| attached.gid_index);
        let connection = id.connection.and_then(|connection| manager.get(connection));
        let mut attrs = match (connection, qp_state) {
            (Some(connection), _) if !id.kind.is_datagram() => {
                let state = connection.state();
                let requests = matches!(state, State::ReqSent | State::MraReqRcvd);
                match qp_state {
                    INIT if requests || knows_peer(state) => init(connection),
                    RTR if knows_peer(state) => ready_to_receive(connection, gid_index),
                    RTS if knows_peer(state) => ready_to_send(connection),
                    _ => return Err(Errno::INVAL),
                }
            }
            _ => unconnected(id),
        };
        attrs.qp_state = qp_state;
        if qp_state == RTR {
            attrs.rq_psn = id.psn;
        }
        if attrs.qp_attr_mask & TIMEOUT != 0 {
            attrs.timeout = id.ack_timeout.unwrap_or(attrs.timeout);
        }
        command.respond(response, &attrs)
    }
}

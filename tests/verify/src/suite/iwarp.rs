//! The parts of RDMA that iWARP devices do not have. These devices are tested with `--cm`, because
//! their QPs have no other way to connect.
//!
//! Shows: iwarp

const IMMEDIATE: &str = "SENDs of iWARP have no immediate data";
const ALIGNMENT: &str = "iWARP reports an atomic that is not aligned as a remote operation error";
const INFINIBAND: &str =
    "devices of iWARP have no GIDs, keys of partitions or counters of InfiniBand";
const RELIABLE: &str = "iWARP has only QPs of the type RC";
const STATES: &str = "the connection manager changes the states of QPs of iWARP";
const ANNEX: &str = "iWARP has no ATOMIC WRITE and no FLUSH";
const TCP: &str = "TCP has other retries and events";
const RIGHTS: &str = "QPs of iWARP have all rights; only the rights of regions are checked";

/// Parts of names of cases, and the reasons for which these cases do not run.
const LACKS: &[(&str, &str)] = &[
    ("send_imm", IMMEDIATE),
    ("counters/remote_invalid_request", ALIGNMENT),
    ("datagram", RELIABLE),
    ("multicast/", RELIABLE),
    ("xrc/", RELIABLE),
    ("xrc_targets", RELIABLE),
    ("counters/malformed_request", RELIABLE),
    ("counters/lost_unreliable_messages", RELIABLE),
    ("attributes/device", INFINIBAND),
    ("attributes/gids", INFINIBAND),
    ("attributes/pkeys", INFINIBAND),
    ("counters/packets_and_bytes", INFINIBAND),
    ("states/", STATES),
    ("async_events/communication_established", STATES),
    ("async_events/none_in_ordinary_work", STATES),
    ("mistakes/", STATES),
    ("isolation/qp_of_another_connection", STATES),
    ("loopback/qp_to_itself", STATES),
    ("transitions/", STATES),
    ("rnr/", TCP),
    ("retry/", TCP),
    ("counters/receiver_not_ready", TCP),
    ("counters/ack_timeout", TCP),
    ("qp_lacks_right", RIGHTS),
    ("atomics/atomic_write", ANNEX),
    ("flush/", ANNEX),
];

/// Returns the reason for which a case does not run over iWARP, or `None` if it runs.
pub(super) fn lacks(case: &str) -> Option<&'static str> {
    LACKS.iter().find(|(part, _)| case.contains(part)).map(|(_, reason)| *reason)
}

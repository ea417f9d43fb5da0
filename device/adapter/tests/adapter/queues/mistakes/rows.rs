//! The rows of the table.

use vrnic_abi::admin::{SetGid, SetPort, command};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Access, Attr, State, Type};
use vrnic_abi::sq::{Flags, Opcode, Sge};
use vrnic_testdriver::qp::{ALL, PSN, link_local};
use vrnic_testdriver::wr::Wr;

use super::table::{ARRIVES, Expected, INVALID, Mistake, NO_ACCESS, PASSES, SILENT, WRONG_ANSWER};
use crate::bus::Guest;
use crate::path::Ends;

/// No mistake: a SEND of 64 KiB over a reliable connection.
const NONE: Mistake = Mistake {
    what: "nothing",
    kind: Type::Rc,
    own: |_| {},
    peer: |_| {},
    later: |_| {},
    requests: |ends| vec![send(ends, 65_536)],
    one_by_one: false,
    outcome: ARRIVES,
    by_packets: None,
};

fn source(ends: &Ends, length: u32) -> [Sge; 1] {
    [ends.a.sge(0, length)]
}

fn send(ends: &Ends, length: u32) -> Wr {
    Wr::new(Opcode::Send, &source(ends, length))
}

fn remote(ends: &Ends, opcode: Opcode, length: u32) -> Wr {
    Wr::new(opcode, &source(ends, length)).to(ends.b.buffer, ends.b.key)
}

fn read(ends: &Ends, length: u32) -> Wr {
    remote(ends, Opcode::Read, length)
}

fn write(ends: &Ends, length: u32) -> Wr {
    remote(ends, Opcode::Write, length)
}

fn add(ends: &Ends) -> Wr {
    remote(ends, Opcode::FetchAdd, 8).atomic(1, 0)
}

fn mtu_256(attr: &mut Attr) {
    attr.path_mtu = 1;
}

fn mtu_1024(attr: &mut Attr) {
    attr.path_mtu = 3;
}

/// A has a path MTU of 256, B of 1024.
const PEER_MTU_LARGER: Mistake = Mistake { own: mtu_256, peer: mtu_1024, outcome: INVALID, ..NONE };
/// A has a path MTU of 1024, B of 256.
const PEER_MTU_SMALLER: Mistake =
    Mistake { own: mtu_1024, peer: mtu_256, outcome: INVALID, ..NONE };
/// A may have 16 READs outstanding, B has resources for 1.
const PEER_RESOURCES_FEWER: Mistake = Mistake { peer: |attr| attr.max_dest_rd_atomic = 1, ..NONE };

/// Sets the MTU of the port as the driver does when the MTU of the network card changes.
fn lower(guest: &Guest) {
    guest.command::<command::SetPort>(&SetPort::new(1, true)).expect("SET_PORT");
}

/// The rows.
pub(crate) const TABLE: &[Mistake] = &[
    NONE,
    // Path MTU. A message that fits into one packet of either MTU arrives.
    Mistake { what: "path MTU of 256 against 1024, SEND of 64 KiB", ..PEER_MTU_LARGER },
    Mistake { what: "path MTU of 1024 against 256, SEND of 64 KiB", ..PEER_MTU_SMALLER },
    Mistake {
        what: "path MTU of 256 against 1024, WRITE of 257 bytes",
        requests: |ends| vec![write(ends, 257)],
        ..PEER_MTU_LARGER
    },
    Mistake {
        what: "path MTU of 1024 against 256, WRITE of 257 bytes",
        requests: |ends| vec![write(ends, 257)],
        ..PEER_MTU_SMALLER
    },
    Mistake {
        what: "path MTU of 256 against 1024, SEND of 256 bytes",
        requests: |ends| vec![send(ends, 256)],
        outcome: ARRIVES,
        ..PEER_MTU_LARGER
    },
    Mistake {
        what: "path MTU of 1024 against 256, SEND of 256 bytes",
        requests: |ends| vec![send(ends, 256)],
        outcome: ARRIVES,
        ..PEER_MTU_SMALLER
    },
    Mistake {
        what: "path MTU of 256 against 1024, READ of 64 KiB",
        requests: |ends| vec![read(ends, 65_536)],
        outcome: WRONG_ANSWER,
        ..PEER_MTU_LARGER
    },
    Mistake {
        what: "path MTU of 1024 against 256, READ of 300 bytes",
        requests: |ends| vec![read(ends, 300)],
        outcome: WRONG_ANSWER,
        ..PEER_MTU_SMALLER
    },
    Mistake {
        what: "path MTU of 1024 against 256, READ of 256 bytes, atomic",
        requests: |ends| vec![read(ends, 256), add(ends)],
        outcome: Expected { sent: &[Status::Success; 2], ..PASSES },
        ..PEER_MTU_SMALLER
    },
    Mistake {
        what: "path MTU of 256 against 1024, READ of 64 KiB by a bad key",
        requests: |ends| vec![read(ends, 65_536).to(ends.b.buffer, ends.b.key ^ 1)],
        outcome: NO_ACCESS,
        ..PEER_MTU_LARGER
    },
    Mistake {
        what: "path MTU of 256 against 1024, SEND of 64 KiB from memory without a key",
        requests: |ends| {
            vec![Wr::new(Opcode::Send, &[Sge { lkey: 0.into(), ..ends.a.sge(0, 65_536) }])]
        },
        outcome: Expected { sent: &[Status::LocProtErr], own: State::Err, ..PASSES },
        ..PEER_MTU_LARGER
    },
    Mistake {
        what: "path MTU of 256 against 1024, SEND of 64 KiB by UC",
        kind: Type::Uc,
        outcome: PASSES,
        ..PEER_MTU_LARGER
    },
    Mistake {
        what: "path MTU of 256 against 1024, SEND of 256 bytes by UC",
        kind: Type::Uc,
        requests: |ends| vec![send(ends, 256)],
        outcome: ARRIVES,
        ..PEER_MTU_LARGER
    },
    // Number of outstanding READs and atomics.
    Mistake {
        what: "3 READs at once to a peer with resources for 1",
        requests: |ends| vec![read(ends, 100), read(ends, 100), read(ends, 100)],
        outcome: Expected {
            sent: &[Status::Success, Status::RemInvReqErr, Status::WrFlushErr],
            ..INVALID
        },
        ..PEER_RESOURCES_FEWER
    },
    Mistake {
        what: "a READ, a WRITE and an atomic at once to a peer with resources for 1",
        requests: |ends| vec![read(ends, 100), write(ends, 8), add(ends)],
        outcome: Expected {
            sent: &[Status::Success, Status::Success, Status::RemInvReqErr],
            ..INVALID
        },
        ..PEER_RESOURCES_FEWER
    },
    Mistake {
        what: "3 READs one after the other to a peer with resources for 1",
        requests: |ends| vec![read(ends, 100), read(ends, 100), read(ends, 100)],
        one_by_one: true,
        outcome: Expected { sent: &[Status::Success; 3], ..PASSES },
        ..PEER_RESOURCES_FEWER
    },
    Mistake {
        what: "3 fenced READs at once to a peer with resources for 1",
        requests: |ends| vec![read(ends, 100).flags(Flags::SIGNALED | Flags::FENCE); 3],
        outcome: Expected { sent: &[Status::Success; 3], ..PASSES },
        ..PEER_RESOURCES_FEWER
    },
    Mistake {
        what: "3 READs at once to a peer with resources for 1, by a requester that keeps to it",
        own: |attr| attr.max_rd_atomic = 1,
        requests: |ends| vec![read(ends, 100), read(ends, 100), read(ends, 100)],
        outcome: Expected { sent: &[Status::Success; 3], ..PASSES },
        ..PEER_RESOURCES_FEWER
    },
    Mistake {
        what: "a READ to a peer without resources",
        peer: |attr| attr.max_dest_rd_atomic = 0,
        requests: |ends| vec![read(ends, 100)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "a READ of a requester that may have none outstanding",
        own: |attr| attr.max_rd_atomic = 0,
        requests: |ends| vec![read(ends, 100)],
        outcome: Expected { sent: &[Status::LocQpOpErr], own: State::Err, ..PASSES },
        ..NONE
    },
    // PSNs.
    Mistake {
        what: "a first PSN after the one that the peer expects",
        own: |attr| attr.sq_psn = (PSN + 1).into(),
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "a first PSN before the one that the peer expects",
        own: |attr| attr.sq_psn = (PSN - 1).into(),
        requests: |ends| vec![send(ends, 8)],
        outcome: SILENT,
        // The packet counts as a duplicate: it is acknowledged, and the message is lost (IBTA
        // volume 1, 9.7.5.1.2). With memory copies the mistake is reported instead.
        by_packets: Some(PASSES),
        ..NONE
    },
    Mistake {
        what: "a first PSN after the one that the peer expects, by UC",
        kind: Type::Uc,
        own: |attr| attr.sq_psn = (PSN + 1).into(),
        ..NONE
    },
    // Addresses and QP numbers.
    Mistake {
        what: "the GID of another port as destination",
        own: |attr| attr.av.dgid = link_local([2, 0, 0, 0, 0, 9]),
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "a peer that expects the GID of another port",
        peer: |attr| attr.av.dgid = link_local([2, 0, 0, 0, 0, 9]),
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "a QP number that does not exist",
        own: |attr| attr.dest_qpn = 0xabcde.into(),
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "a peer that is connected to another QP of the same port",
        peer: |attr| attr.dest_qpn = 0xabcde.into(),
        outcome: SILENT,
        // Packets do not say which QP has sent them, so the message arrives. The acknowledgement
        // goes to the other QP.
        by_packets: Some(Expected { received: &[Status::Success], ..SILENT }),
        ..NONE
    },
    Mistake {
        what: "hop limit 0",
        // The packets stay in their subnet (IBTA volume 1, 8.3.6), and leave with a hop limit of 1,
        // because no host sends a packet with a limit of 0 (RFC 1122, 3.2.1.7).
        own: |attr| attr.av.hop_limit = 0,
        peer: |attr| attr.av.hop_limit = 0,
        ..NONE
    },
    Mistake {
        what: "a source GID that is removed while the QP uses it",
        // The kernel keeps the GID of a device until the last QP with it ends, so a QP of real
        // hardware would work, too (drivers/infiniband/core/cache.c).
        later: |ends| {
            for guest in [&ends.a.guest, &ends.b.guest] {
                guest.command::<command::SetGid>(&SetGid::clear(0)).expect("SET_GID");
            }
        },
        ..NONE
    },
    // The MTU of a port is lowered under a connection: packets that are too long for it are lost.
    Mistake {
        what: "lowered MTU of the own port, SEND of 64 KiB",
        later: |ends| lower(&ends.a.guest),
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "lowered MTU of the peer's port, WRITE of 257 bytes",
        later: |ends| lower(&ends.b.guest),
        requests: |ends| vec![write(ends, 257)],
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "lowered MTU of the peer's port, READ of 257 bytes",
        later: |ends| lower(&ends.b.guest),
        requests: |ends| vec![read(ends, 257)],
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "lowered MTU of the own port, READ of 257 bytes",
        later: |ends| lower(&ends.a.guest),
        requests: |ends| vec![read(ends, 257)],
        outcome: SILENT,
        ..NONE
    },
    Mistake {
        what: "lowered MTU of both ports, SEND and READ of 256 bytes",
        later: |ends| [&ends.a.guest, &ends.b.guest].into_iter().for_each(lower),
        requests: |ends| vec![send(ends, 256), read(ends, 256)],
        outcome: Expected { sent: &[Status::Success; 2], ..ARRIVES },
        ..NONE
    },
    Mistake {
        what: "lowered MTU of the own port, SEND of 64 KiB by UC",
        kind: Type::Uc,
        later: |ends| lower(&ends.a.guest),
        outcome: PASSES,
        ..NONE
    },
    // States.
    Mistake {
        what: "a peer in the state Reset",
        later: |ends| ends.b.set_state(State::Reset),
        outcome: Expected { peer: State::Reset, ..SILENT },
        ..NONE
    },
    Mistake {
        what: "a peer in the state Error",
        later: |ends| ends.b.set_state(State::Err),
        outcome: Expected { received: &[Status::WrFlushErr], peer: State::Err, ..SILENT },
        ..NONE
    },
    // Endshts, keys, alignment.
    Mistake {
        what: "a WRITE to a QP that does not allow it",
        peer: |attr| attr.access = (ALL & !Access::REMOTE_WRITE.bits()).into(),
        requests: |ends| vec![write(ends, 8)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "an empty WRITE to a QP that does not allow it",
        peer: |attr| attr.access = (ALL & !Access::REMOTE_WRITE.bits()).into(),
        requests: |ends| vec![write(ends, 0)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "a READ from a QP that does not allow it",
        peer: |attr| attr.access = (ALL & !Access::REMOTE_READ.bits()).into(),
        requests: |ends| vec![read(ends, 8)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "an atomic on a QP that does not allow it",
        peer: |attr| attr.access = (ALL & !Access::REMOTE_ATOMIC.bits()).into(),
        requests: |ends| vec![add(ends)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "an atomic on a word that is not aligned",
        requests: |ends| vec![add(ends).to(ends.b.buffer + 4, ends.b.key)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "an atomic on a word that is not aligned, by a bad key",
        requests: |ends| vec![add(ends).to(ends.b.buffer + 4, ends.b.key ^ 1)],
        outcome: INVALID,
        ..NONE
    },
    Mistake {
        what: "a WRITE by a bad key",
        requests: |ends| vec![write(ends, 8).to(ends.b.buffer, ends.b.key ^ 1)],
        outcome: NO_ACCESS,
        ..NONE
    },
    Mistake {
        what: "empty messages by bad keys",
        requests: |ends| {
            let nowhere = [Sge { lkey: 99.into(), ..ends.a.sge(0, 0) }];
            let read = Wr::new(Opcode::Read, &nowhere).to(7, 99);
            vec![Wr::new(Opcode::Write, &nowhere).to(7, 99), read]
        },
        outcome: Expected { sent: &[Status::Success; 2], ..PASSES },
        ..NONE
    },
    // Receives.
    Mistake {
        what: "a SEND that is longer than the receive",
        requests: |ends| vec![send(ends, 100_001)],
        outcome: Expected { received: &[Status::LocLenErr], event: None, ..INVALID },
        ..NONE
    },
    Mistake {
        what: "two SENDs to one receive",
        requests: |ends| vec![send(ends, 8), send(ends, 8)],
        outcome: Expected {
            sent: &[Status::Success, Status::RnrRetryExcErr],
            own: State::Err,
            ..ARRIVES
        },
        ..NONE
    },
];

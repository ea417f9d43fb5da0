//! Attributes that must be the same at both ends of a connection, or match, but do not. The
//! adapter's own tests have a table with more of them.
//!
//! Shows: queues

use anyhow::{Context, Result};
use vrnic_verbs::model::{Op, QpAttr, State, Status, mask};

use crate::suite::Case;
use crate::suite::fixture::{Env, Options, Side};

/// Length of most messages.
const LENGTH: u64 = 4096;

/// Attributes of the two ends, and the outcome of a message from a to b.
struct Mistake {
    name: &'static str,
    /// Changes the attributes of a and of b.
    own: fn(&mut QpAttr),
    peer: fn(&mut QpAttr),
    op: Op,
    length: u64,
    status: Status,
    /// State of b after the message.
    state: State,
}

const NONE: Mistake = Mistake {
    name: "none",
    own: |_| {},
    peer: |_| {},
    op: Op::Send,
    length: LENGTH,
    status: Status::Success,
    state: State::Rts,
};

/// The peer refuses the request as invalid.
const INVALID: Mistake = Mistake { status: Status::RemInvReqErr, state: State::Err, ..NONE };

/// The peer does not answer.
const SILENT: Mistake = Mistake { status: Status::RetryExcErr, ..NONE };

fn mtu_256(attr: &mut QpAttr) {
    attr.path_mtu = 1;
}

fn mtu_1024(attr: &mut QpAttr) {
    attr.path_mtu = 3;
}

const TABLE: [Mistake; 8] = [
    Mistake { name: "path_mtu_below_the_peer", own: mtu_256, peer: mtu_1024, ..INVALID },
    Mistake { name: "path_mtu_above_the_peer", own: mtu_1024, peer: mtu_256, ..INVALID },
    Mistake {
        name: "path_mtu_that_is_not_reached",
        own: mtu_1024,
        peer: mtu_256,
        length: 256,
        ..NONE
    },
    Mistake {
        name: "read_with_another_path_mtu",
        own: mtu_256,
        peer: mtu_1024,
        op: Op::Read,
        status: Status::LocLenErr,
        ..NONE
    },
    Mistake {
        name: "read_without_resources",
        peer: |attr| attr.max_dest_rd_atomic = 0,
        op: Op::Read,
        ..INVALID
    },
    Mistake { name: "psn_ahead", own: |attr| attr.sq_psn += 1, ..SILENT },
    Mistake { name: "peer_of_another_qp", peer: |attr| attr.dest_qpn ^= 0x5555, ..SILENT },
    Mistake {
        name: "write_without_right",
        peer: |attr| attr.access = 0,
        op: Op::Write,
        length: 8,
        ..INVALID
    },
];

pub(in crate::suite) fn cases() -> Vec<Case> {
    let case = |mistake| {
        let Mistake { name, .. } = mistake;
        Case::new(format!("mistakes/{name}"), move |env| has_outcome(env, &mistake))
    };
    TABLE.into_iter().map(case).collect()
}

/// Moves a side to RTS with attributes that `change` has changed.
fn connect(side: &Side, peer: &Side, change: fn(&mut QpAttr)) -> Result<()> {
    let mut attr = side.attr_towards(&peer.end, peer.qpn);
    change(&mut attr);
    let steps =
        [(State::Init, mask::TO_INIT), (State::Rtr, mask::TO_RTR), (State::Rts, mask::TO_RTS)];
    for (state, mask) in steps {
        side.modify(state, &attr, mask).with_context(|| format!("{} to {state:?}", side.name()))?;
    }
    Ok(())
}

fn has_outcome(env: &Env, mistake: &Mistake) -> Result<()> {
    let options = Options::impatient();
    let (a, b) = (Side::new(&env.a, &options)?, Side::new(&env.b, &options)?);
    connect(&a, &b, mistake.own)?;
    connect(&b, &a, mistake.peer)?;
    let (near, far) = (a.region(mistake.length, 1)?, b.region(mistake.length, 2)?);
    if mistake.op.takes_receive() {
        b.post_recv(71, &[far.sge()])?;
    }
    let request = Side::request(mistake.op, 70, &[near.sge()]).at(far.addr, far.rkey);
    a.run(request, mistake.status)?;
    let own = if mistake.status == Status::Success { State::Rts } else { State::Err };
    a.expect_state(own)?;
    b.becomes(mistake.state)
}

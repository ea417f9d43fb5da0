//! The legal transitions of a QP, and their attributes (IBTA volume 1, 11.2.4.2; where it leaves a
//! choice, as in the kernel's `qp_state_table`).

use vrnic_abi::qp::{AttrMask, State, Type};

/// A legal transition.
struct Rule {
    from: State,
    to: State,
    required: AttrMask,
    optional: AttrMask,
}

const NONE: AttrMask = AttrMask::empty();
const NO_RULES: &[Rule] = &[];

const fn rule(from: State, to: State, required: AttrMask, optional: AttrMask) -> Rule {
    Rule { from, to, required, optional }
}

const INIT: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::PORT).union(AttrMask::ACCESS_FLAGS);
const PATH: AttrMask = AttrMask::ALT_PATH.union(AttrMask::PATH_MIG_STATE);
const RTS_OPTIONAL: AttrMask =
    PATH.union(AttrMask::CUR_STATE).union(AttrMask::ACCESS_FLAGS).union(AttrMask::MIN_RNR_TIMER);
/// The changes that may name a rate limit. The specification has none, and the kernel's table only
/// for QPs of raw packets; these changes are theirs.
const LIMITABLE: [Change; 2] =
    [Change { from: State::Rtr, to: State::Rts }, Change { from: State::Rts, to: State::Rts }];

/// Attributes of the half of a reliable connection that sends requests, except its timeout.
const REQUESTER: AttrMask =
    AttrMask::RETRY_CNT.union(AttrMask::RNR_RETRY).union(AttrMask::MAX_QP_RD_ATOMIC);
/// Attributes of the half that responds.
const RESPONDER: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER);
/// Attributes of reliable connections that unreliable ones do not have.
const RELIABLE: AttrMask = REQUESTER.union(RESPONDER).union(AttrMask::TIMEOUT);

/// Transitions of connected QPs. A type that lacks attributes has the same ones without these.
const CONNECTED: &[Rule] = &[
    rule(State::Reset, State::Init, INIT, NONE),
    rule(State::Init, State::Init, NONE, INIT),
    rule(
        State::Init,
        State::Rtr,
        AttrMask::AV
            .union(AttrMask::PATH_MTU)
            .union(AttrMask::DEST_QPN)
            .union(AttrMask::RQ_PSN)
            .union(RESPONDER),
        AttrMask::ALT_PATH.union(AttrMask::ACCESS_FLAGS).union(AttrMask::PKEY_INDEX),
    ),
    rule(
        State::Rtr,
        State::Rts,
        AttrMask::SQ_PSN.union(AttrMask::TIMEOUT).union(REQUESTER),
        RTS_OPTIONAL,
    ),
    rule(State::Rts, State::Rts, NONE, RTS_OPTIONAL),
    rule(State::Rts, State::Sqd, NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
    rule(State::Sqd, State::Rts, NONE, RTS_OPTIONAL),
    rule(State::Sqd, State::Sqd, NONE, INIT.union(AttrMask::AV).union(PATH).union(RELIABLE)),
    // The state after a refused request that concerns a key has failed only the send queue.
    rule(State::Sqe, State::Rts, NONE, NONE),
];

/// Transitions of unreliable connections that differ from the ones in [`CONNECTED`].
const UC: &[Rule] = &[
    rule(
        State::Sqd,
        State::Sqd,
        NONE,
        PATH.union(AttrMask::AV).union(AttrMask::ACCESS_FLAGS).union(AttrMask::PKEY_INDEX),
    ),
    rule(State::Sqe, State::Rts, NONE, AttrMask::CUR_STATE.union(AttrMask::ACCESS_FLAGS)),
];

const KEYS: AttrMask = AttrMask::PKEY_INDEX.union(AttrMask::QKEY);
const OWN_KEY: AttrMask = AttrMask::CUR_STATE.union(AttrMask::QKEY);

/// Transitions of datagram QPs, except the first one of each type.
const DATAGRAM: &[Rule] = &[
    rule(State::Init, State::Rtr, NONE, KEYS),
    rule(State::Rtr, State::Rts, AttrMask::SQ_PSN, OWN_KEY),
    rule(State::Rts, State::Rts, NONE, OWN_KEY),
    rule(State::Rts, State::Sqd, NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
    rule(State::Sqd, State::Rts, NONE, OWN_KEY),
    rule(State::Sqd, State::Sqd, NONE, KEYS),
    rule(State::Sqe, State::Rts, NONE, OWN_KEY),
];
const UD_INIT: AttrMask = KEYS.union(AttrMask::PORT);
const UD: &[Rule] = &[
    rule(State::Reset, State::Init, UD_INIT, NONE),
    rule(State::Init, State::Init, NONE, UD_INIT),
];
const GSI: &[Rule] =
    &[rule(State::Reset, State::Init, KEYS, NONE), rule(State::Init, State::Init, NONE, KEYS)];

/// Transitions of QPs of raw packets.
const RAW: &[Rule] = &[
    rule(State::Reset, State::Init, AttrMask::PORT, NONE),
    rule(State::Init, State::Init, NONE, NONE),
    rule(State::Init, State::Rtr, NONE, NONE),
    rule(State::Rtr, State::Rts, NONE, NONE),
    rule(State::Rts, State::Rts, NONE, NONE),
    rule(State::Rts, State::Sqd, NONE, NONE),
    rule(State::Sqd, State::Rts, NONE, NONE),
    rule(State::Sqd, State::Sqd, NONE, NONE),
    rule(State::Sqe, State::Rts, NONE, NONE),
];

/// Transitions of TOE QPs, which OPEN_CONNECTION takes from INIT to RTS. SQD closes the local
/// direction of the connection.
const TOE: &[Rule] = &[
    rule(State::Reset, State::Init, NONE, INIT),
    rule(State::Init, State::Init, NONE, INIT),
    rule(State::Rts, State::Rts, NONE, NONE),
    rule(State::Rts, State::Sqd, NONE, AttrMask::EN_SQD_ASYNC_NOTIFY),
    // The state after a refused command of iSCSI.
    rule(State::Sqe, State::Rts, NONE, NONE),
];

/// A change of a QP's state, or none if both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state before it.
    pub from: State,
    /// The state after it.
    pub to: State,
}

/// Returns whether a QP of this type may make this transition with these attributes.
#[must_use]
pub fn allowed(kind: Type, Change { from, to }: Change, mask: AttrMask) -> bool {
    let mut mask = mask.difference(AttrMask::STATE);
    if kind.info().sends && LIMITABLE.contains(&Change { from, to }) {
        mask.remove(AttrMask::RATE_LIMIT);
    }
    if matches!(to, State::Reset | State::Err) {
        // A QP can be moved to Err in every state except Reset, without attributes.
        let fails_in_reset = from == State::Reset && to == State::Err;
        return !fails_in_reset && mask.is_empty();
    }
    let (own, common, lacks) = match kind {
        Type::Rc => (NO_RULES, CONNECTED, NONE),
        Type::XrcIni => (NO_RULES, CONNECTED, RESPONDER),
        Type::XrcTgt => (NO_RULES, CONNECTED, REQUESTER),
        Type::Uc => (UC, CONNECTED, RELIABLE),
        Type::Ud => (UD, DATAGRAM, NONE),
        Type::Gsi => (GSI, DATAGRAM, NONE),
        Type::RawPacket => (RAW, NO_RULES, NONE),
        Type::Toe => (TOE, NO_RULES, NONE),
    };
    let rule = own.iter().chain(common).find(|rule| rule.from == from && rule.to == to);
    rule.is_some_and(|rule| {
        let required = rule.required.difference(lacks);
        let possible = rule.required.union(rule.optional).difference(lacks);
        mask.contains(required) && possible.contains(mask)
    })
}

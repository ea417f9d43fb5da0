//! Compares MODIFY_QP with the table of the verbs specification in `transitions.txt`: each type,
//! each pair of states, each attribute added or missing.
//!
//! Shows: queues

use vrnic_abi::admin::{QpFlags, Status};
use vrnic_abi::qp::{Attr, AttrMask, Service, State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::objects::qp::transitions::{self, Change};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::{Setup, attributes};
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::world::World;

const TABLE: &str = include_str!("../../../../../tests/verify/transitions.txt");

const STATES: [(&str, State); 7] = [
    ("Reset", State::Reset),
    ("Init", State::Init),
    ("Rtr", State::Rtr),
    ("Rts", State::Rts),
    ("Sqd", State::Sqd),
    ("Sqe", State::Sqe),
    ("Err", State::Err),
];

/// A row of the table, for one type.
struct Rule {
    kind: Type,
    from: State,
    to: State,
    required: AttrMask,
    optional: AttrMask,
}

/// Returns the value with this name.
fn named<T: Copy>(names: &[(&str, T)], name: &str) -> T {
    names.iter().find(|entry| entry.0 == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Returns the types of the verbs specification, with their names.
fn all_types() -> Vec<(&'static str, Type)> {
    let types = (0..=u8::MAX).filter_map(Type::from_raw);
    let types = types.filter(|kind| kind.info().service != Service::Bytes);
    types.map(|kind| (kind.info().name.to_str().expect("a name"), kind)).collect()
}

fn types(list: &str) -> Vec<Type> {
    let all = all_types();
    match list {
        "ALL" => all.into_iter().map(|(_, kind)| kind).collect(),
        list => list.split(',').map(|name| named(&all, name)).collect(),
    }
}

fn attributes_named(list: &str) -> AttrMask {
    list.split_whitespace()
        .map(|name| AttrMask::from_name(name).unwrap_or_else(|| panic!("no attribute {name}")))
        .collect()
}

/// Returns the table of the specification, with the rate limit, which it does not have.
fn table() -> Vec<Rule> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let (left, optional) = line.split_once(';').expect("a semicolon");
            let mut words = left.split_whitespace();
            let mut word = || words.next().expect("types and two states");
            let types = types(word());
            let (from, to) = (named(&STATES, word()), named(&STATES, word()));
            let required = attributes_named(&words.collect::<Vec<_>>().join(" "));
            let optional = attributes_named(optional);
            types.into_iter().map(move |kind| {
                let limited = kind != Type::XrcTgt
                    && matches!((from, to), (State::Rtr | State::Rts, State::Rts));
                let limit = if limited { AttrMask::RATE_LIMIT } else { AttrMask::empty() };
                Rule { kind, from, to, required, optional: optional | limit }
            })
        })
        .collect()
}

/// Returns the table's row for a transition.
fn rule(table: &[Rule], kind: Type, from: State, to: State) -> Option<&Rule> {
    let mut fitting =
        table.iter().filter(|rule| (rule.kind, rule.from, rule.to) == (kind, from, to));
    let rule = fitting.next();
    assert!(fitting.next().is_none(), "two rules for {kind:?} from {from:?} to {to:?}");
    rule
}

/// Moves the QP to `state`, starting from Reset.
fn bring(world: &World, guest: &Guest, endpoint: &mut Endpoint, kind: Type, state: State) {
    let table = table();
    endpoint.set_state(State::Reset);
    let path: &[State] = match state {
        State::Reset => &[],
        State::Init => &[State::Init],
        State::Rtr => &[State::Init, State::Rtr],
        State::Rts | State::Sqe => &[State::Init, State::Rtr, State::Rts],
        State::Sqd => &[State::Init, State::Rtr, State::Rts, State::Sqd],
        State::Err => &[State::Init, State::Err],
    };
    let mut from = State::Reset;
    for to in path {
        let required = rule(&table, kind, from, *to).expect("a legal path").required;
        let mut attr = attributes(guest.mac(), endpoint.qpn);
        attr.state = *to as u8;
        guest.modify_qp(endpoint.qpn, required | AttrMask::STATE, &attr).expect("MODIFY_QP");
        from = *to;
    }
    if state == State::Sqe {
        // This makes only the send queue fail: a refused request about a key, or a request that the
        // type does not have.
        let opcode = if kind == Type::Rc { Opcode::LocalInv } else { Opcode::Read };
        endpoint.post_send(&Wr::new(opcode, &[]));
        world.settle(&[guest]);
        assert!(endpoint.send_cq.poll().is_some());
    }
    assert_eq!(endpoint.state(), state);
}

/// Returns the expected result of MODIFY_QP.
fn verdict(rule: Option<&Rule>, given: AttrMask) -> Result<(), Refused> {
    let legal = rule.is_some_and(|rule| {
        given.contains(rule.required) && (rule.required | rule.optional).contains(given)
    });
    if !legal {
        return Err(Refused(Status::BadState, 0));
    }
    // The adapter does not have alternate paths.
    if given.contains(AttrMask::ALT_PATH) { Err(Refused(Status::Unsupported, 0)) } else { Ok(()) }
}

/// Checks each transition of a type, with the required mask, with each mask that differs from it in
/// one attribute, and with all allowed attributes.
fn check_type(kind: Type) {
    let table = table();
    let world = World::default();
    let guest = world.guest(1);
    let setup = Setup { kernel: true, kind, flags: QpFlags::REACTIVE, ..Setup::default() };
    let mut endpoint = Endpoint::new(&guest, setup);
    for (from, to) in STATES.iter().flat_map(|a| STATES.iter().map(|b| (a.1, b.1))) {
        let rule = rule(&table, kind, from, to);
        let base = rule.map_or(AttrMask::empty(), |rule| rule.required);
        let mut masks = vec![base];
        masks.extend(AttrMask::all().iter().map(|bit| base ^ bit));
        masks.extend(rule.map(|rule| rule.required | rule.optional));
        bring(&world, &guest, &mut endpoint, kind, from);
        for given in masks.into_iter().filter(|mask| !mask.contains(AttrMask::STATE)) {
            let mut attr = attributes(guest.mac(), endpoint.qpn);
            (attr.state, attr.cur_state) = (to as u8, from as u8);
            let wanted = verdict(rule, given);
            let got = guest.modify_qp(endpoint.qpn, given | AttrMask::STATE, &attr);
            assert_eq!(got, wanted, "{kind:?} from {from:?} to {to:?} with {given:?}");
            let now = if wanted.is_ok() { to } else { from };
            assert_eq!(endpoint.state(), now);
            if now != from || wanted.is_ok() {
                bring(&world, &guest, &mut endpoint, kind, from);
            }
        }
    }
}

#[test]
fn reliable_connections() {
    check_type(Type::Rc);
}

#[test]
fn unreliable_connections() {
    check_type(Type::Uc);
}

#[test]
fn datagrams() {
    check_type(Type::Ud);
}

#[test]
fn raw_packets() {
    check_type(Type::RawPacket);
}

#[test]
fn general_services() {
    check_type(Type::Gsi);
}

/// The rules of all types, including the types that this test's endpoint cannot create.
#[test]
fn rules_of_all_types() {
    let table = table();
    for (_, kind) in all_types() {
        for (from, to) in STATES.iter().flat_map(|a| STATES.iter().map(|b| (a.1, b.1))) {
            let rule = rule(&table, kind, from, to);
            let base = rule.map_or(AttrMask::empty(), |rule| rule.required);
            for given in AttrMask::all().iter().map(|bit| base ^ bit).chain([base]) {
                let legal = rule.is_some_and(|rule| {
                    let given = given.difference(AttrMask::STATE);
                    given.contains(rule.required) && (rule.required | rule.optional).contains(given)
                });
                let got = transitions::allowed(kind, Change { from, to }, given);
                assert_eq!(got, legal, "{kind:?} from {from:?} to {to:?} with {given:?}");
            }
        }
    }
}

#[test]
fn there_is_no_path_to_migrate_to() {
    let world = World::default();
    let guest = world.guest(1);
    let mut endpoint = Endpoint::new(&guest, Setup { kernel: true, ..Setup::default() });
    bring(&world, &guest, &mut endpoint, Type::Rc, State::Rts);
    for (path_mig_state, wanted) in [
        (0, Ok(())),
        (1, Err(Refused(Status::Unsupported, 0))),
        (2, Err(Refused(Status::Unsupported, 0))),
    ] {
        let attr = Attr { path_mig_state, ..Attr::default() };
        assert_eq!(guest.modify_qp(endpoint.qpn, AttrMask::PATH_MIG_STATE, &attr), wanted);
    }
}

/// If the mask does not contain the state, the rules of the transition from the state to itself
/// apply.
#[test]
fn attributes_without_a_state() {
    let table = table();
    for kind in [Type::Rc, Type::Uc, Type::Ud, Type::Gsi] {
        let world = World::default();
        let guest = world.guest(1);
        let setup = Setup { kernel: true, kind, flags: QpFlags::REACTIVE, ..Setup::default() };
        let mut endpoint = Endpoint::new(&guest, setup);
        for (_, state) in STATES {
            bring(&world, &guest, &mut endpoint, kind, state);
            for bit in AttrMask::all().iter().filter(|bit| *bit != AttrMask::STATE) {
                let mut attr: Attr = attributes(guest.mac(), endpoint.qpn);
                attr.cur_state = state as u8;
                let wanted = verdict(rule(&table, kind, state, state), bit);
                let got = guest.modify_qp(endpoint.qpn, bit, &attr);
                assert_eq!(got, wanted, "{kind:?} in {state:?} with {bit:?}");
                assert_eq!(endpoint.state(), state);
            }
        }
    }
}

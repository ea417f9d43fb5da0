//! CREATE_FLOW and DESTROY_FLOW.
//!
//! Shows: raw: flow rules that are created, refused and destroyed

use std::mem::offset_of;

use vrnic_abi::admin::{CreateFlow, Opcode as Admin, Status, command};
use vrnic_abi::flow::{Fields, Flags, Kind, Network, PRIORITY_MAX, Rule, Upper};
use vrnic_abi::qp::Type;
use vrnic_adapter::assigned::Shrink;
use vrnic_adapter::limits::resource::Resource;
use vrnic_adapter::limits::{Limits, MAX_COPIES, MAX_FLOWS};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;

use super::endpoint;
use crate::bus::Endpoint;
use crate::world::World;

fn refused(status: Status, detail: usize) -> Result<u32, Refused> {
    Err(Refused(status, detail as u32))
}

#[test]
fn rules_are_checked() {
    let world = World::default();
    let qp = endpoint(&world.guest(2));
    let good = rule(Kind::Normal);
    let mut byte = good;
    byte.reserved[1] = 1;
    let mut value = good;
    value.values.reserved[3] = 1;
    let mut mask = good;
    mask.mask.reserved[0] = 1;
    let outside = Fields { ttl: 3, ..Fields::default() };
    let inside = Fields { ttl: 2, ..Fields::default() };
    let values = offset_of!(Rule, values);
    let of_mask = offset_of!(Rule, mask);
    for (bad, at) in [
        (Rule { kind: 4, ..good }, offset_of!(Rule, kind)),
        (Rule { flags: 2, ..good }, offset_of!(Rule, flags)),
        (Rule { network: 5, ..good }, offset_of!(Rule, network)),
        (Rule { network: 4, upper: 1, ..good }, offset_of!(Rule, upper)),
        (Rule { upper: Upper::Udp as u8, ..good }, offset_of!(Rule, upper)),
        (Rule { priority: (PRIORITY_MAX + 1).into(), ..good }, offset_of!(Rule, priority)),
        (byte, offset_of!(Rule, reserved) + 1),
        (value, values + offset_of!(Fields, reserved) + 3),
        (mask, of_mask + offset_of!(Fields, reserved)),
        (
            Rule { values: outside, mask: inside, network: 4, ..good },
            values + offset_of!(Fields, ttl),
        ),
        (Rule { network: 4, ..rule(Kind::Sniffer) }, offset_of!(Rule, network)),
        (Rule { mask: inside, ..rule(Kind::AllDefault) }, of_mask + offset_of!(Fields, ttl)),
        (Rule { mask: inside, ..rule(Kind::McDefault) }, of_mask + offset_of!(Fields, ttl)),
    ] {
        assert_eq!(qp.add_flow(&bad), refused(Status::BadParam, at), "{bad:?}");
    }
    assert!(!qp.guest.adapter.has_flows());
    let network = Network::Ipv6 as u8;
    for good in [
        good,
        Rule { network, upper: 6, priority: PRIORITY_MAX.into(), ..good },
        Rule { flags: Flags::DONT_TRAP.bits(), ..rule(Kind::AllDefault) },
    ] {
        qp.add_flow(&good).expect("CREATE_FLOW");
    }
}

#[test]
fn parameters_are_checked() {
    let world = World::default();
    let guest = world.guest(2);
    let qp = endpoint(&guest);
    let ud = Endpoint::new(&guest, Setup { kind: Type::Ud, ..Setup::default() });
    let addr = guest.ram().alloc(4096);
    let create = |qpn: u32, addr: u64| {
        guest.command::<command::CreateFlow>(&CreateFlow::new(qpn, addr)).map(|id| id.get())
    };
    let at = |offset| refused(Status::BadParam, offset);
    assert_eq!(create(qp.qpn, addr + 4), at(offset_of!(CreateFlow, addr)));
    assert_eq!(create(ud.qpn, addr), at(offset_of!(CreateFlow, qpn)));
    assert_eq!(create(9999, addr), refused(Status::NotFound, 0));
    assert_eq!(create(qp.qpn, 1 << 60), refused(Status::BadAddress, 0));
    let reserved = CreateFlow { reserved: 1.into(), ..CreateFlow::new(qp.qpn, addr) };
    let got = guest.command::<command::CreateFlow>(&reserved).map(|id| id.get());
    assert_eq!(got, at(offset_of!(CreateFlow, reserved)));
    assert_eq!(guest.destroy_flow(1).map(|()| 0), refused(Status::NotFound, 0));
}

/// Numbers of rules are used again. A QP with rules cannot be destroyed.
#[test]
fn a_qp_is_destroyed_after_its_rules() {
    let world = World::default();
    let guest = world.guest(2);
    let qp = endpoint(&guest);
    let ids: Vec<u32> = (0..2).map(|_| qp.add_flow(&rule(Kind::Normal)).expect("a rule")).collect();
    assert_ne!(ids[0], ids[1]);
    let destroy = || guest.on_object(Admin::DestroyQp, qp.qpn);
    assert_eq!(destroy(), refused(Status::Busy, 0));
    guest.destroy_flow(ids[0]).expect("DESTROY_FLOW");
    assert_eq!(guest.destroy_flow(ids[0]), Err(Refused(Status::NotFound, 0)));
    assert_eq!(destroy(), refused(Status::Busy, 0));
    guest.destroy_flow(ids[1]).expect("DESTROY_FLOW");
    destroy().expect("DESTROY_QP");
}

#[test]
fn the_number_of_rules_is_limited() {
    let world = World::default();
    let guest = world.guest(2);
    let qp = endpoint(&guest);
    assert_eq!(guest.caps().max_flows.get(), MAX_FLOWS);
    let copies: Vec<u32> =
        (0..MAX_COPIES).map(|_| qp.add_flow(&rule(Kind::Sniffer)).expect("room")).collect();
    assert_eq!(qp.add_flow(&rule(Kind::Sniffer)), refused(Status::NoResource, 0));
    let passes = Rule { flags: Flags::DONT_TRAP.bits(), ..rule(Kind::Normal) };
    assert_eq!(qp.add_flow(&passes), refused(Status::NoResource, 0));
    for _ in MAX_COPIES..MAX_FLOWS as usize {
        qp.add_flow(&rule(Kind::Normal)).expect("room");
    }
    assert_eq!(qp.add_flow(&rule(Kind::Normal)), refused(Status::NoResource, 0));
    assert_eq!(guest.adapter.actual(Resource::Flows), Some(MAX_FLOWS.into()));
    guest.destroy_flow(copies[3]).expect("DESTROY_FLOW");
    qp.add_flow(&passes).expect("room");
    // The reset of the adapter removes them.
    guest.adapter.reset();
    assert!(!guest.adapter.has_flows());
}

#[test]
fn a_function_has_its_own_maximum_of_rules() {
    let world = World::default();
    let limits = Limits { flows: 1, ..Limits::default() };
    let guest = world.guest_with(2, 1, limits);
    let qp = endpoint(&guest);
    let id = qp.add_flow(&rule(Kind::AllDefault)).expect("room for one");
    assert_eq!(qp.add_flow(&rule(Kind::Normal)), refused(Status::NoResource, 0));
    guest.adapter.set_limits(&Limits { flows: 0, ..limits }, Shrink::Drain).expect("none");
    guest.destroy_flow(id).expect("DESTROY_FLOW");
    assert_eq!(qp.add_flow(&rule(Kind::Normal)), refused(Status::NoResource, 0));
}

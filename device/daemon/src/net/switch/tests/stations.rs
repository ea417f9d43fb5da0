//! Tests of the stations that the switch knows: each VLAN has its own, and one that an adapter has
//! named stays known.
//!
//! Shows: network

use vrnic_adapter::vlans::{VlanId, Vlans};
use vrnic_control_api::source::SourceCheck;

use super::*;
use crate::net::table::AGEING;

const BROADCAST: MacAddr = MacAddr([0xff; 6]);

/// Adds a function with a network card, and returns the way of its frames into the switch.
fn add(switch: &mut Switch, name: &str, mac: MacAddr, vlan: Option<u16>) -> Arriving {
    let (arriving, line) = listed();
    let access = |id| Vlans::Access(VlanId::try_from(id).expect("a VLAN"));
    let vlans = vlan.map_or(Vlans::All, access);
    let sink = FakeSink::new(Offered::Other).behind_port();
    let setup = function(name, mac, &Taker::default());
    switch.add(PortSetup { line: Some(line), vlans, sink, ..setup }).expect("a port");
    arriving
}

/// The guests of two tenants use one address, such as that of a VRRP group.
#[test]
fn an_address_in_two_vlans_is_that_of_two_stations() {
    let (mut switch, handle) = switch();
    let other = MacAddr([2, 0, 0, 0, 0, 4]);
    let a = add(&mut switch, "a", A, Some(5));
    let b = add(&mut switch, "b", B, Some(7));
    let c = add(&mut switch, "c", other, Some(7));
    arrive(&mut switch, &a, vec![frame(BROADCAST, STATION, 0)]);
    arrive(&mut switch, &b, vec![frame(other, STATION, 0)]);
    arrive(&mut switch, &a, vec![frame(BROADCAST, STATION, 0)]);
    arrive(&mut switch, &c, vec![frame(STATION, other, 0)]);
    for (name, frames) in [("a", 0), ("b", 1), ("c", 1)] {
        let ports = handle.ports();
        let port = ports.iter().find(|port| port.name == name).expect("a port");
        let forged = port.dropped.get("forged").copied();
        assert_eq!((port.sent_frames, forged), (frames, Some(0)), "{name}");
    }
    let at = |vlan| VlanMac { mac: STATION, vlan: Some(vlan) };
    assert!(switch.table.is_at(at(5), 0) && switch.table.is_at(at(7), 1));
}

/// No frame comes by the port of an adapter whose messages are copied.
#[test]
fn a_station_that_an_adapter_has_named_stays_known() {
    let (mut switch, _handle) = switch();
    let mut add = |name, mac, source, claimed| {
        let (arriving, line) = listed();
        let sink = FakeSink { claimed, ..FakeSink::new(Offered::Other) }.behind_port();
        let setup = function(name, mac, &Taker::default());
        switch.add(PortSetup { line: Some(line), source, sink, ..setup }).expect("a port");
        arriving
    };
    let unnamed = MacAddr([2, 0, 0, 0, 0, 4]);
    let a = add("a", A, SourceCheck::Strict, Some(STATION));
    let b = add("b", B, SourceCheck::Nested, None);
    arrive(&mut switch, &a, vec![frame(B, STATION, 0)]);
    arrive(&mut switch, &b, vec![frame(A, unnamed, 0)]);
    let start = Instant::now();
    for rounds in 1..4 {
        assert!(!switch.age(start + rounds * 2 * AGEING), "all is done");
        let is_known =
            [(STATION, 0), (unnamed, 1)].map(|(mac, port)| switch.table.is_at(untagged(mac), port));
        assert_eq!(is_known, [true, false]);
    }
}

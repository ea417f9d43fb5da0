//! The MACs of adapters in the network outside: in VLANs, and while messages are copied.
//!
//! Shows: network

use super::*;

/// Each VLAN has stations of its own, such as the routers of a VRRP group.
///
/// Shows: network: one address in two VLANs
#[test]
fn an_address_belongs_to_one_adapter_in_each_vlan() {
    let world = World::default();
    let [ga, gb] = [1, 2].map(|number| world.guest(number));
    let set = |guest: &Guest, index, vlan| {
        let entry = SetGid::set(index, link_local(M1), M1, vlan);
        guest.command::<command::SetGid>(&entry).expect("SET_GID");
    };
    let has = |guest: &Guest| {
        [5, 7].map(|vlan| {
            let at = VlanMac { mac: MacAddr(M1), vlan: Some(vlan) };
            guest.adapter.has_address(at)
        })
    };
    set(&ga, SECOND, 5);
    set(&gb, SECOND, 7);
    assert_eq!([has(&ga), has(&gb)], [[true, false], [false, true]]);
    assert!([&ga, &gb].iter().all(|guest| guest.adapter.claims(MacAddr(M1))));
    assert!(!ga.adapter.has_address(untagged(M1)));
    // The second claim to it in one VLAN waits for the end of the first one.
    set(&gb, SECOND + 1, 5);
    assert_eq!([has(&ga), has(&gb)], [[true, false], [false, true]]);
    unname(&ga);
    assert_eq!([has(&ga), has(&gb)], [[false, false], [true, true]]);
    assert!(!ga.adapter.claims(MacAddr(M1)));
}

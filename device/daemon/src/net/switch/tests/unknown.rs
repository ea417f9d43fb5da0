//! Tests of frames to addresses that the switch does not know.
//!
//! Shows: network

use vrnic_control_api::source::SourceCheck;

use super::*;
use crate::net::table::UPLINK_CAPACITY;

/// Returns the number of frames that each port has sent, by name.
fn sent(handle: &SwitchHandle) -> BTreeMap<String, u64> {
    handle.ports().into_iter().map(|port| (port.name, port.sent_frames)).collect()
}

/// There are more stations behind the uplink than the switch keeps.
#[test]
fn a_guest_s_frames_to_a_crowded_uplink_are_not_for_other_guests() {
    let (mut switch, handle) = switch();
    let station = |n: usize| {
        let [a, b, c, d] = u32::try_from(n).expect("small").to_be_bytes();
        MacAddr([2, 1, a, b, c, d])
    };
    let (from_a, line) = listed();
    let a = PortSetup { line: Some(line), ..function("a", A, &Taker::default()) };
    switch.add(a).expect("a port");
    let b = PortSetup { line: Some(listed().1), ..function("b", B, &Taker::default()) };
    switch.add(b).expect("a port");
    let (from_up, line) = listed();
    let up = PortSetup { kind: Kind::Packet, line: Some(line), ..uplink() };
    switch.add(up).expect("a port");
    let all = (0..=UPLINK_CAPACITY).map(|n| frame(A, station(n), 0)).collect();
    arrive(&mut switch, &from_up, all);
    // The first one has been forgotten.
    for (number, n) in (1..).zip([UPLINK_CAPACITY, 0]) {
        arrive(&mut switch, &from_a, vec![frame(station(n), A, 0)]);
        assert_eq!((sent(&handle)["up"], sent(&handle)["b"]), (number, 0), "station {n}");
    }
}

#[test]
fn a_frame_to_an_unknown_address_goes_where_the_address_may_be() {
    let (mut switch, handle) = switch();
    let (from_up, line) = listed();
    let up = PortSetup { kind: Kind::Packet, line: Some(line), ..uplink() };
    switch.add(up).expect("a port");
    for (n, (name, source, claimed)) in (0..).zip([
        ("own", SourceCheck::Own, Some(STATION)),
        ("strict", SourceCheck::Strict, None),
        ("named", SourceCheck::Strict, Some(STATION)),
        ("nested", SourceCheck::Nested, None),
    ]) {
        let sink = FakeSink { claimed, ..FakeSink::new(Offered::Other) }.behind_port();
        let mac = MacAddr([2, 0, 0, 0, 1, n]);
        let setup = function(name, mac, &Taker::default());
        let setup = PortSetup { line: Some(listed().1), source, sink, ..setup };
        switch.add(setup).expect("a port");
    }
    for (to, counts) in [(STATION, [0, 0, 1, 1]), (MacAddr([0xff; 6]), [1, 1, 2, 2])] {
        arrive(&mut switch, &from_up, vec![frame(to, A, 0)]);
        let sent = sent(&handle);
        assert_eq!(["own", "strict", "named", "nested"].map(|name| sent[name]), counts, "{to}");
    }
}

//! Ports with lanes.
//!
//! Shows: network

use vrnic_control_api::port_view::LaneView;
use vrnic_packet::ServiceFields;

use super::*;

/// Returns a frame of IPv4 with a traffic class and a number.
fn packet(to: MacAddr, from: MacAddr, traffic_class: u8, number: usize) -> ethernet::Frame {
    let mut bytes = frame(to, from, number);
    bytes.splice(12..12, [8, 0, 0x45, traffic_class]);
    bytes.resize(1000, 0);
    ethernet::Frame::new(bytes)
}

const ROCE: u8 = 26 << 2 | 2;
const NOTIFICATION: u8 = 48 << 2;

fn set(switch: &mut Switch, settings: &str) {
    let settings: LanesConfig = settings.parse().expect("settings");
    switch.set_lanes(settings.port().to_owned(), Some(settings));
}

/// Returns what a class of a port has counted.
fn lane(handle: &SwitchHandle, port: &str, class: u8) -> LaneView {
    let ports = handle.ports();
    let port = ports.into_iter().find(|view| view.name == port).expect("a port");
    port.lanes.into_iter().find(|lane| lane.class == class).unwrap_or_default()
}

#[test]
fn frames_to_an_adapter_leave_at_its_rate_and_the_highest_class_first() {
    let (mut switch, handle) = switch();
    let taker = Taker::default();
    // The lanes may be there before the port is.
    set(&mut switch, "port=b,rate=8M,ecn=3:1k-2k-100");
    switch.add(function("a", A, &Taker::default())).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    let start = Instant::now();
    let mut frames: Vec<_> = (0..100).map(|nth| packet(B, A, ROCE, nth)).collect();
    frames.push(packet(B, A, NOTIFICATION, 100));
    handle.outbox().send(A, &mut frames);
    while taker.count() < 101 {
        switch.serve_wires(TIME);
    }
    // A byte takes a microsecond, except for those of the first burst of 16 KiB.
    assert!(start.elapsed() > Duration::from_millis(80), "{:?}", start.elapsed());
    let frames = taker.frames.lock();
    let class_of = |frame: &ethernet::Frame| frame.bytes()[15] >> 2;
    let place = frames.iter().position(|frame| class_of(frame) == 48);
    assert!(place.is_some_and(|place| place < 50), "it was sent last: {place:?}");
    let marked = frames.iter().filter(|frame| frame.bytes()[15] & 3 == 3).count() as u64;
    assert!((50..=98).contains(&marked), "{marked}: not the first ones, which find no queue");
    let lane = lane(&handle, "b", 3);
    assert_eq!((lane.frames, lane.marks, lane.drops, lane.depth), (100, marked, 0, 0));
}

#[test]
fn lanes_that_are_removed_leave_no_frame_behind() {
    let (mut switch, handle) = switch();
    let taker = Taker::default();
    switch.add(function("a", A, &Taker::default())).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    set(&mut switch, "port=b,rate=1k");
    handle.outbox().send(A, &mut (0..50).map(|nth| packet(B, A, ROCE, nth)).collect());
    while switch.serve_wires(TIME).sent {}
    assert!(taker.count() < 20, "they wait: {}", taker.count());
    switch.set_lanes("b".to_owned(), None);
    assert_eq!(taker.count(), 50);
    handle.outbox().send(A, &mut vec![packet(B, A, ROCE, 50)]);
    switch.serve_wires(TIME);
    assert_eq!(taker.count(), 51);
    assert!(handle.ports().iter().all(|port| port.lanes.is_empty()));
}

#[test]
fn a_class_of_an_adapter_is_paused_while_too_much_of_it_waits_for_another_one() {
    let (mut switch, handle) = switch();
    let taker = Taker::default();
    switch.add(function("a", A, &Taker::default())).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    // A pause at 10 Mbit/s lasts 3.4 s.
    set(&mut switch, "port=a,rate=10M,pfc=3:20k-10k");
    set(&mut switch, "port=b,rate=8M");
    let fields = |class| ServiceFields { traffic_class: Some(class), tag: None };
    let room = |class| handle.outbox().room(A, fields(class));
    assert!(room(ROCE) > 0);
    handle.outbox().send(A, &mut (0..50).map(|nth| packet(B, A, ROCE, nth)).collect());
    switch.serve_wires(TIME);
    switch.serve_wires(TIME);
    assert_eq!(room(ROCE), 0, "34 of 50 frames wait");
    assert!(handle.outbox().pauses(A, fields(ROCE)));
    assert!(room(0) > 0 && room(NOTIFICATION) > 0, "other classes go on");
    assert!(!handle.outbox().pauses(A, fields(0)));
    while taker.count() < 50 {
        switch.serve_wires(TIME);
    }
    switch.serve_wires(TIME);
    assert!(room(ROCE) > 0);
    let lane = lane(&handle, "a", 3);
    assert!(lane.pfc_sent >= 2, "{lane:?}");
}

/// Returns a PFC frame that pauses class 3 as long as possible.
fn pause() -> Vec<u8> {
    let mut times = vrnic_lanes::PerClass::default();
    times[vrnic_lanes::Class::ROCE] = Some(u16::MAX);
    vrnic_lanes::PauseFrame { source: STATION, times }.bytes().to_vec()
}

#[test]
fn pauses_of_an_uplink_are_obeyed_and_those_of_a_guest_are_not() {
    for (kind, obeyed) in [(Kind::Packet, 1), (Kind::Guest, 0)] {
        let (mut switch, handle) = switch();
        let (arriving, line) = listed();
        let setup = PortSetup { kind, line: Some(line), ..uplink() };
        switch.add(setup).expect("a port");
        let taker = Taker::default();
        switch.add(function("b", B, &taker)).expect("a port");
        set(&mut switch, "port=up,rate=1G");
        arrive(&mut switch, &arriving, vec![pause(), frame(B, STATION, 1)]);
        assert_eq!(taker.count(), 1, "a PFC frame is not forwarded");
        assert_eq!(lane(&handle, "up", 3).pfc_received, obeyed);
        let ports = handle.ports();
        let dropped = ports.iter().find_map(|port| port.dropped.get("pause")).copied();
        assert_eq!(dropped, Some(1 - obeyed));
    }
}

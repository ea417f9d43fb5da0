//! Tests of the turns of a worker that runs the switch.
//!
//! Shows: network
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`fairness`] | lines that always have frames, next to others |
//! | [`laned`] | ports with lanes |
//! | [`stations`] | the stations that the switch knows |
//! | [`unknown`] | frames to addresses that are not in the table |

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use vrnic_adapter::ethernet::{Offered, Uplink};
use vrnic_control_api::port_view::Kind;
use vrnic_control_api::storm::StormLimit;
use vrnic_packet::{MacAddr, VlanMac};

use super::*;
use crate::net::frame::Frame;
use crate::net::handle::SwitchHandle;
use crate::net::line::{Line, Log};
use crate::net::port::fake_sink::FakeSink;
use crate::net::port::setup::PortSetup;
use crate::net::queue::SendQueue;
use crate::net::turn::{FRAMES, TIME};

mod fairness;
mod laned;
mod stations;
mod unknown;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// A station behind an uplink.
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);

/// An adapter that takes all frames, each in a certain time.
#[derive(Clone, Default)]
struct Taker {
    frames: Arc<Mutex<Vec<ethernet::Frame>>>,
    pause: Duration,
}

impl Taker {
    fn count(&self) -> usize {
        self.frames.lock().len()
    }

    fn offer(&self, frame: ethernet::Frame) -> Offered {
        let start = Instant::now();
        while start.elapsed() < self.pause {
            std::hint::spin_loop();
        }
        self.frames.lock().push(frame);
        Offered::Taken
    }

    /// Returns the adapter itself, to put behind a port.
    fn sink(&self) -> FakeSink {
        let this = self.clone();
        FakeSink::new(move |frame| this.offer(frame))
    }
}

/// Adds the frames that arrive to a list, for one turn.
type Arrive = dyn FnMut(&mut Vec<Frame>, &mut Turn) + Send;

/// A line whose descriptor is always readable, and whose frames the test makes.
struct Scripted {
    wire: OwnedFd,
    arrive: Box<Arrive>,
}

impl Scripted {
    fn line(arrive: impl FnMut(&mut Vec<Frame>, &mut Turn) + Send + 'static) -> Box<Self> {
        let (wire, peer) = std::io::pipe().expect("a pipe");
        drop(peer);
        Box::new(Self { wire: wire.into(), arrive: Box::new(arrive) })
    }
}

impl Line for Scripted {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wire.as_fd())
    }

    fn is_up(&self) -> bool {
        true
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, _log: &Log<'_>) -> Change {
        (self.arrive)(frames, turn);
        Change::None
    }

    fn flush(&mut self, queue: &mut SendQueue, _turn: &mut Turn, _log: &Log<'_>) -> io::Result<()> {
        queue.clear();
        Ok(())
    }

    fn close(&mut self) {}
}

/// The frames that arrive next on a line.
type Arriving = Arc<Mutex<Vec<Frame>>>;

/// Returns a line on which the frames of a list arrive.
fn listed() -> (Arriving, Box<Scripted>) {
    let arriving = Arriving::default();
    let waiting = Arc::clone(&arriving);
    (arriving, Scripted::line(move |frames, _| frames.append(&mut waiting.lock())))
}

/// Lets frames arrive on the line of a port, and waits until they are forwarded.
fn arrive(switch: &mut Switch, at: &Arriving, frames: Vec<Vec<u8>>) {
    at.lock().extend(frames.into_iter().map(|frame| Frame::new(frame).expect("a frame")));
    // Workers serve network cards with pauses.
    while !at.lock().is_empty() || switch.ports.values().any(Port::has_rest) {
        switch.serve_wires(TIME);
    }
}

const fn untagged(mac: MacAddr) -> VlanMac {
    VlanMac { mac, vlan: None }
}

fn frame(to: MacAddr, from: MacAddr, number: usize) -> Vec<u8> {
    [&to.0[..], &from.0, &number.to_be_bytes(), &[0; 40]].concat()
}

/// Returns a switch, and access to its outbox.
fn switch() -> (Switch, SwitchHandle) {
    let (handle, shared) = SwitchHandle::new().expect("a switch");
    // A worker is awake.
    shared.attendance.begin();
    (Switch::new(shared, Box::new(|_| ())).expect("a switch"), handle)
}

fn function(name: &str, mac: MacAddr, taker: &Taker) -> PortSetup {
    let sink = taker.sink().behind_port();
    PortSetup { mac: Some(mac), sink, ..PortSetup::new(name, Kind::Function) }
}

/// Returns a line on which frames to each of these addresses arrive in turn, as many as the switch
/// reads.
fn flood(to: &[MacAddr], from: MacAddr) -> Box<Scripted> {
    let arriving: Vec<Frame> =
        to.iter().map(|to| Frame::new(frame(*to, from, 0)).expect("a frame")).collect();
    Scripted::line(move |frames, turn| {
        while !turn.is_over() {
            frames.extend(arriving.iter().cloned());
            turn.spend(arriving.len(), 60);
        }
    })
}

/// Sends numbered frames from one adapter to another until the outbox has no room.
fn fill(handle: &SwitchHandle, from: MacAddr, to: MacAddr) -> usize {
    let all = 0..40_000;
    let mut frames = all.map(|n| ethernet::Frame::new(frame(to, from, n))).collect();
    handle.outbox().send(from, &mut frames);
    let dropped = |port: vrnic_control_api::PortView| port.dropped.get("outbox").copied();
    let lost: u64 = handle.ports().into_iter().filter_map(dropped).sum();
    assert!(lost > 0, "the outbox is not full");
    40_000 - usize::try_from(lost).expect("small")
}

#[test]
fn a_full_outbox_is_forwarded_in_short_turns_and_in_order() {
    let (mut switch, handle) = switch();
    let taker = Taker::default();
    switch.add(function("a", A, &Taker::default())).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    let count = fill(&handle, A, B);
    let mut before = 0;
    while before < count {
        let served = switch.serve_wires(TIME);
        let after = taker.count();
        assert!(served.sent, "frames wait, and the switch does not see them");
        assert!((1..=FRAMES).contains(&(after - before)), "{} frames in a turn", after - before);
        before = after;
    }
    assert!(!switch.serve_wires(TIME).any);
    for (number, taken) in taker.frames.lock().iter().enumerate() {
        assert_eq!(taken.bytes(), frame(B, A, number), "frame {number}");
    }
}

/// The adapter sends the frames of its TCP connections itself, and a program must not.
#[test]
fn frames_of_programs_for_connections_of_their_adapter_are_dropped() {
    let (mut switch, handle) = switch();
    let taker = Taker::default();
    let sink = FakeSink { takes_over: true, ..Taker::default().sink() }.behind_port();
    switch.add(PortSetup { sink, ..function("a", A, &taker) }).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    let by_adapter = ethernet::Frame::new(frame(B, A, 0));
    let mut composed = by_adapter.clone();
    composed.set_composed();
    handle.outbox().send(A, &mut vec![composed, by_adapter]);
    switch.serve_wires(TIME);
    assert_eq!(taker.count(), 1, "the frame of the adapter");
    let ports = handle.ports();
    let a = ports.iter().find(|port| port.name == "a").expect("a port");
    assert_eq!(a.dropped.get("taken_over"), Some(&1));
}

/// A station that never answers, such as the peer of an unreliable connection, is unknown to the
/// switch.
#[test]
fn messages_of_adapters_to_unknown_stations_are_no_storm() {
    let (mut switch, handle) = switch();
    let setup = function("a", A, &Taker::default());
    switch.add(PortSetup { storm: StormLimit(1), ..setup }).expect("a port");
    fill(&handle, A, STATION);
    while switch.serve_wires(TIME).any {}
    let dropped = |port: &vrnic_control_api::PortView| port.dropped.get("storm").copied();
    assert_eq!(handle.ports().iter().filter_map(dropped).sum::<u64>(), 0);
}

#[test]
fn frames_that_take_long_end_a_turn_early() {
    let (mut switch, handle) = switch();
    let taker = Taker { pause: TIME / 2, ..Taker::default() };
    switch.add(function("a", A, &Taker::default())).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    fill(&handle, A, B);
    switch.serve_wires(TIME);
    assert!((1..=8).contains(&taker.count()), "{} frames in a turn", taker.count());
}

#[test]
fn what_a_line_has_delivered_is_forwarded_before_more_is_read() {
    let (mut switch, handle) = switch();
    let taker = Taker { pause: Duration::from_micros(1), ..Taker::default() };
    switch.add(function("b", B, &taker)).expect("a port");
    let line = flood(&[B], STATION);
    switch.add(PortSetup { kind: Kind::Packet, line: Some(line), ..uplink() }).expect("a port");
    let mut turns = 0;
    while taker.count() < 10 * FRAMES {
        let before = taker.count();
        assert!(switch.serve_wires(TIME).any);
        turns += 1;
        assert!(taker.count() - before <= FRAMES);
        let arrived = handle.ports().iter().map(|port| port.received_frames).max();
        let waiting = arrived.expect("a port") - taker.count() as u64;
        assert!(waiting <= FRAMES as u64, "{waiting} frames wait");
    }
    assert!(turns > 10);
}

fn uplink() -> PortSetup {
    PortSetup::new("up", Kind::Function)
}

#[test]
fn network_cards_get_a_quarter_of_a_worker_s_time() {
    let (mut switch, _handle) = switch();
    let pause = Duration::from_micros(2);
    let taker = Taker { pause, ..Taker::default() };
    switch.add(function("b", B, &taker)).expect("a port");
    let line = flood(&[B], A);
    let netdev = PortSetup { line: Some(line), ..function("a", A, &Taker::default()) };
    switch.add(netdev).expect("a port");
    let start = Instant::now();
    while taker.count() < 300 {
        switch.serve_wires(TIME);
    }
    let (count, elapsed) = (u32::try_from(taker.count()).expect("small"), start.elapsed());
    assert!(pause * count < elapsed * 3 / 10, "{count} frames in {elapsed:?}");
}

/// Returns an adapter that has no room most of the time.
fn slow(start: Instant) -> FakeSink {
    let taker = Taker::default();
    let full = taker.clone();
    let has_room = move || {
        let room = start.elapsed().as_millis() % 300 < 1;
        if room {
            taker.frames.lock().clear();
        }
        room
    };
    let offer = move |frame| if full.count() < 3000 { full.offer(frame) } else { Offered::Full };
    FakeSink { has_room: Box::new(has_room), ..FakeSink::new(offer) }
}

#[test]
fn a_slow_adapter_loses_its_own_frames_and_no_others() {
    let (mut switch, handle) = switch();
    let (taker, start) = (Taker::default(), Instant::now());
    let sink = slow(start).behind_port();
    switch.add(PortSetup { sink, ..function("a", A, &taker) }).expect("a port");
    switch.add(function("b", B, &taker)).expect("a port");
    let line = flood(&[&[B][..], &[A; 20]].concat(), STATION);
    switch.add(PortSetup { kind: Kind::Packet, line: Some(line), ..uplink() }).expect("a port");
    let (mut now, mut held) = (start, Duration::ZERO);
    while now < start + Duration::from_millis(1500) {
        switch.serve_wires(TIME);
        let before = std::mem::replace(&mut now, Instant::now());
        if switch.is_held() {
            // A longer turn is time in which this thread did not run.
            held += (now - before).min(Duration::from_millis(1));
        }
    }
    assert!(taker.count() > 100 && held < Duration::from_millis(150), "nothing came for {held:?}");
    let ports = handle.ports();
    let slow = ports.iter().find(|port| port.name == "a").expect("a port");
    assert!(slow.dropped.get("adapter_full") > Some(&0), "the lost frames are not counted");
}

#[test]
fn frames_that_were_read_before_a_pause_are_forwarded_after_it() {
    let (mut switch, _handle) = switch();
    let (taker, room) = (Taker::default(), Arc::new(AtomicBool::new(true)));
    let gate = Arc::clone(&room);
    let has_room = Box::new(move || gate.load(Ordering::Relaxed));
    let sink = FakeSink { has_room, ..taker.sink() }.behind_port();
    switch.add(PortSetup { sink, ..function("b", B, &taker) }).expect("a port");
    let frames = (0..2 * FRAMES).map(|n| Frame::new(frame(B, STATION, n)).expect("a frame"));
    let mut burst: Vec<_> = frames.collect();
    let line = Scripted::line(move |frames, _| frames.append(&mut burst));
    switch.add(PortSetup { kind: Kind::Packet, line: Some(line), ..uplink() }).expect("a port");
    switch.serve_wires(TIME);
    assert!((1..=FRAMES).contains(&taker.count()), "{} frames in a turn", taker.count());
    room.store(false, Ordering::Relaxed);
    let before = taker.count();
    for _ in 0..10 {
        switch.serve_wires(TIME);
    }
    assert_eq!(taker.count(), before, "frames are forwarded during a pause");
    assert!(!switch.wait(), "the thread would wait for events");
    room.store(true, Ordering::Relaxed);
    for _ in 0..1000 {
        switch.serve_wires(TIME);
    }
    assert_eq!(taker.count(), 2 * FRAMES);
}

/// The first function goes to another guest while the second one uses its address.
#[test]
fn an_address_is_not_lent_to_another_guest() {
    let (mut switch, handle) = switch();
    let sent = Arc::new(Mutex::new(Vec::<Frame>::new()));
    let vmms = [7, 7].map(|process| Arc::new(AtomicI32::new(process)));
    for ((name, mac), vmm) in [("a", A), ("b", B)].into_iter().zip(&vmms) {
        let waiting = Arc::clone(&sent);
        let line = Scripted::line(move |frames, _| {
            if name == "b" {
                frames.append(&mut waiting.lock());
            }
        });
        let sink = FakeSink { vmm: Arc::clone(vmm), ..Taker::default().sink() }.behind_port();
        let setup = PortSetup { line: Some(line), sink, ..function(name, mac, &Taker::default()) };
        switch.add(setup).expect("a port");
    }
    let forged = || {
        let ports = handle.ports();
        let b = ports.iter().find(|port| port.name == "b").expect("a port");
        b.dropped.get("forged").copied().unwrap_or_default()
    };
    let send = |switch: &mut Switch| {
        sent.lock().push(Frame::new(frame(STATION, A, 0)).expect("a frame"));
        // Workers serve network cards with pauses.
        while !sent.lock().is_empty() {
            switch.serve_wires(TIME);
        }
        switch.serve(&[]);
    };
    send(&mut switch);
    assert_eq!((forged(), switch.table.is_at(untagged(A), 1)), (0, true));
    vmms[0].store(8, Ordering::Relaxed);
    switch.serve(&[]);
    assert!(switch.table.is_at(untagged(A), 0), "its owner has it back");
    send(&mut switch);
    assert_eq!((forged(), switch.table.is_at(untagged(A), 0)), (1, true));
}

//! Tests that counters of a port count each segment of a joined frame, and that an adapter gets
//! only frames that are for it.
//!
//! Shows: network

use std::sync::atomic::{AtomicUsize, Ordering};

use vrnic_adapter::ethernet::{self, Joint};
use vrnic_control_api::port_view::Kind;
use vrnic_control_api::source::SourceCheck;

use super::fake_sink::FakeSink;
use super::*;
use crate::net::line::Line;

/// A line that joins nothing.
struct Plain;

impl Line for Plain {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_up(&self) -> bool {
        true
    }

    fn receive(&mut self, _frames: &mut Vec<Frame>, _turn: &mut Turn, _log: &Log<'_>) -> Change {
        Change::None
    }

    fn flush(
        &mut self,
        _queue: &mut SendQueue,
        _turn: &mut Turn,
        _log: &Log<'_>,
    ) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self) {}
}

/// Returns a frame of three segments that cannot be cut, because its headers are invalid.
fn joined() -> Frame {
    let joint = Joint { headers: 54, segment: 300 };
    let frame = ethernet::Frame::joined(vec![2; 54 + 700], joint);
    frame.try_into().expect("a frame")
}

/// Returns a port that has this adapter.
fn port(kind: Kind, mac: Option<MacAddr>, sink: FakeSink) -> Port {
    let setup = PortSetup {
        mac,
        line: Some(Box::new(Plain)),
        sink: sink.behind_port(),
        ..PortSetup::new("p", kind)
    };
    Port::new(setup, Arc::default())
}

#[test]
fn each_segment_of_a_frame_that_is_dropped_is_counted() {
    let sink = FakeSink { takes_over: true, ..FakeSink::new(Offered::Other) };
    let mut port = port(Kind::Trunk, None, sink);
    assert!(port.has_taken_over(&joined()));
    port.forged(&joined());
    assert!(!port.send(joined(), None, None), "there is no link yet");
    port.follow_link();
    assert!(!port.send(joined(), None, None), "it cannot be cut");
    let dropped = port.status().view().dropped;
    for reason in ["taken_over", "forged", "no_link", "offload"] {
        assert_eq!(dropped.get(reason), Some(&3), "{reason}");
    }
}

/// A second MAC of [`greedy`].
const CLAIMED: MacAddr = MacAddr([2, 0, 0, 0, 0, 11]);

/// Returns an adapter that takes all frames.
fn greedy() -> FakeSink {
    FakeSink { claimed: Some(CLAIMED), ..FakeSink::new(|_| Offered::Taken) }
}

#[test]
fn frames_for_other_addresses_go_to_the_network_card() {
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const NESTED: [u8; 6] = [2, 0, 0, 0, 0, 10];
    let mut port = port(Kind::Function, Some(MacAddr(MAC)), greedy());
    port.follow_link();
    let frame = |to: [u8; 6]| Frame::new([&to[..], &[2; 60]].concat()).expect("a frame");
    for (to, goes_to_card) in [(MAC, false), (CLAIMED.0, false), (NESTED, true), ([0xff; 6], true)]
    {
        assert_eq!(port.send(frame(to), None, None), goes_to_card, "{to:?}");
    }
}

/// A sniffer sees what the network card gets, so it sees nothing where there is no card.
#[test]
fn frames_for_other_addresses_are_copied_only_if_there_is_a_network_card() {
    let sniffed = Arc::new(AtomicUsize::new(0));
    let frame = || Frame::new([&[2, 0, 0, 0, 0, 10][..], &[2; 60]].concat()).expect("a frame");
    for (has_line, has_link, copies) in [(false, true, 0), (true, false, 0), (true, true, 1)] {
        let sink = FakeSink { sniffed: Arc::clone(&sniffed), ..greedy() };
        let mut port = port(Kind::Function, Some(MacAddr([2, 0, 0, 0, 0, 9])), sink);
        if !has_line {
            port.setup.line = None;
            port.up = true;
        } else if has_link {
            port.follow_link();
        }
        assert_eq!(port.send(frame(), None, None), has_line && has_link);
        assert_eq!(sniffed.swap(0, Ordering::Relaxed), copies, "{has_line}, {has_link}");
    }
}

/// Shows: network: source addresses: what own, strict and nested allow
#[test]
fn the_check_of_a_port_says_with_which_sources_its_guest_sends() {
    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
    const LISTED: MacAddr = MacAddr([2, 0, 0, 0, 0, 12]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 13]);
    let all = [OWN, LISTED, CLAIMED, OTHER];
    for (source, by_line, by_adapter) in [
        (SourceCheck::Own, [true, true, false, false], [true, true, false, false]),
        (SourceCheck::Strict, [true, true, true, false], [true; 4]),
        (SourceCheck::Nested, [true; 4], [true; 4]),
    ] {
        let mut port = port(Kind::Function, Some(OWN), greedy());
        (port.setup.source, port.setup.addresses) = (source, vec![LISTED]);
        assert_eq!(all.map(|mac| port.may_send(mac, true)), by_line, "{source}");
        assert_eq!(all.map(|mac| port.may_send(mac, false)), by_adapter, "{source}");
    }
}

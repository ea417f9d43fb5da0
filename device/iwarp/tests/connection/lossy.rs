//! Two streams over the TCP engine and a link that loses, duplicates, delays and corrupts frames.
//!
//! Shows: iwarp

use proptest::prelude::*;
use vrnic_iwarp::rdmap::work::{Outcome, Work};
use vrnic_iwarp::stream::close::State;
use vrnic_iwarp::stream::{Config, Event, Want};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::SendKind;
use vrnic_simlink::Faults;

use crate::host::ALL;
use crate::net::{Net, When};

/// Posts a WRITE, a SEND and a READ of 4,000 octets, `rounds` times, at both ends.
fn exchange(net: &mut Net, rounds: usize) -> Vec<(usize, usize, Vec<u8>)> {
    let mut expected = Vec::new();
    for round in 0..rounds {
        for own in 0..2 {
            let base = 0x1000 * (3 * round);
            let at = |to: usize| Tagged { stag: ALL, to: to as u64 };
            let peer = 1 - own;
            let part = |net: &Net, end: usize, from: usize| {
                net.hosts[end].end.ram.octets[from..from + 4000].to_vec()
            };
            let (write, send) = (base % 0x1_0000, (base + 0x1000) % 0x1_0000);
            expected.push((peer, 0x2_0000 + write, part(net, own, write)));
            expected.push((peer, 0x1_0000 + send, part(net, own, send)));
            let read = 0x1000 * round;
            expected.push((own, 0x3_8000 + read, part(net, peer, 0x3_0000 + read)));
            net.hosts[peer].end.receive(0x1_0000 + send, 4000);
            let end = &mut net.hosts[own].end;
            let first = end.post(Work::Write(at(0x2_0000 + write)), write, 4000);
            let second = end.post(Work::Send(SendKind::default()), send, 4000);
            let sink = Tagged { stag: Stag(round as u32), to: 0 };
            end.post(Work::Read { sink, source: at(0x3_0000 + read) }, 0x3_8000 + read, 4000);
            net.hosts[own].reuse(When::Completed(first), write..write + 4000);
            net.hosts[own].reuse(When::Completed(second), send..send + 4000);
        }
    }
    expected
}

/// Runs both ends until all work is complete, checks the results, and closes.
fn run(seed: u64, config: Config, faults: Faults) {
    let mut net = Net::new(seed, config);
    for link in &mut net.links {
        link.faults(faults);
    }
    let expected = exchange(&mut net, 5);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.completions.len() == 15));
    for host in &net.hosts {
        let outcomes: Vec<_> = (0..15).map(|id| (id, Outcome::Success)).collect();
        assert_eq!(host.end.outcomes(), outcomes);
        assert_eq!(host.end.ram.received.len(), 5);
        assert_eq!(host.end.stream.counters().crc_errors, 0, "TCP's checksum finds it first");
    }
    for (end, start, octets) in expected {
        assert_eq!(net.hosts[end].end.ram.octets[start..start + 4000], octets[..], "{end} {start}");
    }
    net.check_reuses();
    net.hosts[0].end.stream.disconnect(Want::Graceful);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.stream.state() == State::Idle));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn over_tcp_the_peer_has_the_old_octets_though_buffers_are_used_again(
        seed in any::<u32>(),
        early in prop_oneof![Just(0), Just(4000_u32)],
        (markers, drop) in (any::<bool>(), 0..80_000_u32),
    ) {
        let mut config = Config { early_completion: early, ..Config::default() };
        config.wishes.markers = markers;
        config.emss = 1460;
        let faults = Faults { drop, duplicate: 20_000, delay: 20_000, ..Faults::default() };
        run(seed.into(), config, faults);
    }
}

#[test]
fn a_refused_message_is_still_outstanding_when_the_terminate_comes() {
    let mut net = Net::new(9, Config::default());
    let wrong = Tagged { stag: Stag(0xbad), to: 0 };
    net.hosts[0].end.post(Work::Write(wrong), 0, 3000);
    net.hosts[0].end.post(Work::Write(Tagged { stag: ALL, to: 0x2_0000 }), 0, 3000);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.stream.state() == State::Error));
    let outcomes = net.hosts[0].end.outcomes();
    assert_eq!(outcomes, [(0, Outcome::RemoteAccess), (1, Outcome::Flushed)]);
}

#[test]
fn the_message_before_a_refused_one_is_no_part_of_the_failure() {
    let mut net = Net::new(9, Config::default());
    net.establish();
    let wrong = Tagged { stag: Stag(0xbad), to: 0 };
    net.hosts[0].end.post(Work::Write(Tagged { stag: ALL, to: 0x2_0000 }), 0, 100);
    net.hosts[0].end.post(Work::Write(wrong), 0, 100);
    net.hosts[0].end.post(Work::Write(Tagged { stag: ALL, to: 0x2_0000 }), 0, 100);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.stream.state() == State::Error));
    let outcomes = net.hosts[0].end.outcomes();
    let (good, bad) = ((0, Outcome::Success), (1, Outcome::RemoteAccess));
    assert_eq!(outcomes, [good, bad, (2, Outcome::Flushed)]);
}

#[test]
fn the_peers_end_is_found_behind_a_send_that_has_waited_in_vain() {
    let mut net = Net::new(9, Config::default());
    net.establish();
    net.hosts[0].end.post(Work::Send(SendKind::default()), 0, 100);
    net.run_until(|net| net.hosts[1].end.stream.waits_for_receive());
    net.hosts[1].end.stream.receive_timed_out();
    let error = |net: &Net| net.hosts.iter().all(|host| host.end.stream.state() == State::Error);
    net.run_until(error);
    for host in &net.hosts {
        assert!(!host.end.events.contains(&Event::AbortiveDisconnect), "{:?}", host.end.events);
    }
}

/// A SEND waits for its receive. In the meantime an invalid WRITE is sent, which TCP acknowledges.
#[test]
fn a_wrong_message_that_was_acknowledged_behind_a_waiting_send_ends_with_a_terminate() {
    let mut net = Net::new(9, Config::default());
    net.establish();
    net.hosts[0].end.post(Work::Send(SendKind::default()), 0, 100);
    net.run_until(|net| net.hosts[1].end.stream.waits_for_receive());
    let wrong = Tagged { stag: Stag(0xbad), to: 0 };
    net.hosts[0].end.post(Work::Write(wrong), 0, 100);
    net.run_until(|net| net.hosts[0].end.completions.len() == 2);
    net.hosts[1].end.receive(0x1_0000, 100);
    net.hosts[1].resume(net.now);
    net.run_until(|net| net.hosts.iter().all(|host| host.end.stream.state() == State::Error));
    assert_eq!(net.hosts[1].end.ram.received.len(), 1);
    let is_terminate = |event: &Event| matches!(event, Event::TerminateReceived(_));
    assert!(net.hosts[0].end.events.iter().any(is_terminate), "{:?}", net.hosts[0].end.events);
}

#[test]
fn a_read_that_waits_for_its_answer_is_not_blamed_for_a_write_behind_it() {
    let mut net = Net::new(9, Config::default());
    net.establish();
    let (source, sink) = (Tagged { stag: ALL, to: 0 }, Tagged { stag: Stag(1), to: 0 });
    net.hosts[0].end.post(Work::Read { sink, source }, 0x1_0000, 4000);
    net.hosts[0].end.post(Work::Write(Tagged { stag: Stag(0xbad), to: 0 }), 0, 100);
    net.run_until(|net| net.hosts[0].end.completions.len() == 2);
    let outcomes = net.hosts[0].end.outcomes();
    assert_eq!(outcomes, [(0, Outcome::Flushed), (1, Outcome::RemoteAccess)]);
}

//! The ends of connections, one test for each scenario.
//!
//! Shows: iwarp

use vrnic_iwarp::rdmap::completion::Rule;
use vrnic_iwarp::rdmap::work::{Outcome, Rejected, Work, WorkRequest};
use vrnic_iwarp::stream::close::{Happening, Order, State};
use vrnic_iwarp::stream::{Config, Event, Rest, Want};
use vrnic_iwarp::tcp::{Source, StreamPos};
use vrnic_iwarp::wire::ddp::Tagged;
use vrnic_iwarp::wire::rdmap::SendKind;
use vrnic_iwarp::wire::terminate::Cause;

use crate::host::{ALL, End, READ_ONLY};
use crate::pipe::Pair;

const WRITE: Work = Work::Write(Tagged { stag: ALL, to: 0x2_0000 });
const WRONG: Work = Work::Write(Tagged { stag: READ_ONLY, to: 0 });

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    PeerFinished,
    OwnTerminate,
    PeersTerminate,
}

/// Sends a part of a long WRITE, and ends the stream.
fn end_within_a_message(seed: u64, markers: bool, reason: Reason) {
    let mut config = Config::default();
    config.wishes.markers = markers;
    config.rule = if seed.is_multiple_of(2) { Rule::Sequence } else { Rule::QueueLength };
    let mut pair = Pair::new(seed, config, config);
    pair.ends[0].post(WRITE, 0, 100);
    pair.run();
    if reason == Reason::PeersTerminate {
        pair.ends[0].post(WRONG, 0, 100);
    }
    let long = pair.ends[0].post(WRITE, 0, 100_000);
    let behind = pair.ends[0].post(WRITE, 0, 100);
    pair.ends[0].stream.fill(&mut pair.ends[0].ram);
    for _ in 0..5 {
        pair.send(0);
    }
    match reason {
        Reason::PeerFinished => pair.ends[0].stream.happened(Happening::PeerFinished),
        Reason::OwnTerminate => {
            pair.ends[1].post(WRONG, 0, 100);
        }
        Reason::PeersTerminate => {}
    }
    while pair.ends[0].stream.state() == State::Rts {
        pair.step();
    }
    let sent = pair.ways[0].shadow.len() as u64;
    let end = pair.ends[0].stream.source(&mut pair.ends[0].ram).end();
    assert!(end.since(StreamPos(sent)) < 1600, "{reason:?}: {sent} of {end}");
    pair.run();
    assert_eq!(pair.ends[0].stream.state(), State::Error);
    let outcomes = pair.ends[0].outcomes();
    let flushed = [(long, Outcome::Flushed), (behind, Outcome::Flushed)];
    assert_eq!(outcomes[outcomes.len() - 2..], flushed, "{reason:?}");
    let is_terminate = |event: &Event| matches!(event, Event::TerminateSent(_));
    let terminates = pair.ends[1].events.iter().filter(|event| is_terminate(event)).count();
    assert_eq!(terminates, usize::from(reason == Reason::PeersTerminate));
}

/// Returns two ends that have exchanged a message in each direction.
fn pair() -> Pair {
    let mut pair = Pair::new(1, Config::default(), Config::default());
    for end in 0..2 {
        pair.ends[end].post(WRITE, 0, 100);
    }
    pair.run();
    for end in &mut pair.ends {
        assert_eq!(end.outcomes(), [(0, Outcome::Success)]);
        assert_eq!(end.events.len(), 1, "established");
        end.events.clear();
        end.completions.clear();
    }
    pair
}

fn states(pair: &Pair) -> [State; 2] {
    [pair.ends[0].stream.state(), pair.ends[1].stream.state()]
}

#[test]
fn local_graceful_close() {
    let mut pair = pair();
    pair.ends[0].stream.disconnect(Want::Graceful);
    assert_eq!(pair.ends[0].stream.state(), State::Closing);
    pair.run();
    assert_eq!(states(&pair), [State::Idle, State::Idle]);
    for end in &pair.ends {
        assert_eq!(end.events, [Event::GracefulDisconnect, Event::Closed]);
        assert_eq!(end.stream.rest(false), Rest::Reached);
    }
}

#[test]
fn graceful_close_waits_for_posted_work() {
    let mut pair = pair();
    pair.ends[0].post(WRITE, 0, 9000);
    pair.ends[0].stream.disconnect(Want::Graceful);
    assert_eq!(pair.ends[0].stream.state(), State::Rts);
    let (id, length, signaled, fence) = (77, 1, true, false);
    let late = WorkRequest { id, work: WRITE, length, signaled, fence };
    assert_eq!(pair.ends[0].stream.push(late), Err(Rejected::Closed));
    pair.run();
    assert_eq!(pair.ends[0].outcomes(), [(1, Outcome::Success)]);
    assert_eq!(states(&pair), [State::Idle, State::Idle]);
}

#[test]
fn remote_graceful_close_with_work_outstanding() {
    let mut pair = pair();
    pair.ends[1].post(Work::Send(SendKind::default()), 0, 50);
    pair.ends[1].stream.happened(Happening::PeerFinished);
    pair.ends[1].collect();
    assert_eq!(pair.ends[1].stream.state(), State::Error);
    assert_eq!(pair.ends[1].events, [Event::GracefulDisconnect]);
    assert_eq!(pair.ends[1].orders, [Order::Finish]);
    assert_eq!(pair.ends[1].outcomes(), [(1, Outcome::Flushed)]);
}

#[test]
fn simultaneous_graceful_close() {
    let mut pair = pair();
    for end in &mut pair.ends {
        end.stream.disconnect(Want::Graceful);
    }
    pair.run();
    assert_eq!(states(&pair), [State::Idle, State::Idle]);
    for end in &pair.ends {
        assert_eq!(end.events, [Event::GracefulDisconnect, Event::Closed]);
    }
}

#[test]
fn data_makes_a_graceful_close_a_bad_one() {
    let mut pair = pair();
    pair.ends[1].post(WRITE, 0, 100);
    pair.ends[1].stream.fill(&mut pair.ends[1].ram);
    pair.send(1);
    pair.ends[0].stream.disconnect(Want::Graceful);
    pair.run();
    assert_eq!(states(&pair), [State::Error, State::Error]);
    assert_eq!(pair.ends[0].events, [Event::BadClose, Event::AbortiveDisconnect]);
    let graceful = pair.ends[1].events.first() == Some(&Event::GracefulDisconnect);
    assert_eq!(pair.ends[1].events[usize::from(graceful)..], [Event::AbortiveDisconnect]);
    assert_eq!(pair.ends[1].outcomes(), [(1, Outcome::Flushed)]);
}

#[test]
fn a_send_that_waits_makes_a_graceful_close_a_bad_one() {
    let mut pair = pair();
    pair.resumes = false;
    pair.ends[1].post(Work::Send(SendKind::default()), 0, 100);
    pair.run();
    assert!(pair.ends[0].stream.waits_for_receive());
    pair.ends[0].stream.disconnect(Want::Graceful);
    pair.run();
    assert_eq!(states(&pair), [State::Error, State::Error]);
    assert_eq!(pair.ends[0].events[..2], [Event::BadClose, Event::AbortiveDisconnect]);
}

#[test]
fn a_work_request_makes_a_graceful_close_a_bad_one() {
    let mut pair = pair();
    pair.ends[0].stream.disconnect(Want::Graceful);
    let request = WorkRequest { id: 9, work: WRITE, length: 1, signaled: true, fence: false };
    assert_eq!(pair.ends[0].stream.push(request), Err(Rejected::Closed));
    pair.ends[0].collect();
    assert_eq!(pair.ends[0].stream.state(), State::Error);
    assert_eq!(pair.ends[0].events, [Event::BadClose, Event::AbortiveDisconnect]);
}

#[test]
fn reset_by_the_peer() {
    let mut pair = pair();
    pair.ends[0].post(WRITE, 0, 100);
    pair.ends[1].stream.disconnect(Want::Abortive);
    pair.run();
    assert_eq!(states(&pair), [State::Error, State::Error]);
    for end in &pair.ends {
        assert_eq!(end.events, [Event::AbortiveDisconnect]);
    }
    assert_eq!(pair.ends[0].outcomes(), [(1, Outcome::Flushed)]);
    assert_eq!(pair.ends[0].stream.rest(false), Rest::Reached);
}

#[test]
fn connection_lost() {
    let mut pair = pair();
    pair.ends[0].post(WRITE, 0, 100);
    pair.ends[0].stream.fill(&mut pair.ends[0].ram);
    pair.lose();
    assert_eq!(states(&pair), [State::Error, State::Error]);
    assert_eq!(pair.ends[0].events, [Event::AbortiveDisconnect]);
    assert_eq!(pair.ends[0].outcomes(), [(1, Outcome::Flushed)]);
}

#[test]
fn local_error_sends_a_terminate_and_closes_gracefully() {
    let mut pair = pair();
    pair.ends[0].post(WRONG, 0, 100);
    pair.ends[0].post(WRITE, 0, 100);
    pair.run();
    assert_eq!(states(&pair), [State::Error, State::Error]);
    let [first, second] = &pair.ends;
    let sent = [Event::TerminateSent(Cause::Rights), Event::GracefulDisconnect];
    assert_eq!(second.events, sent);
    let Event::TerminateReceived(report) = first.events[0] else { panic!("{:?}", first.events) };
    assert_eq!(report.cause(), Cause::Rights);
    assert_eq!(first.events[1..], [Event::GracefulDisconnect]);
    assert_eq!(first.outcomes(), [(1, Outcome::RemoteAccess), (2, Outcome::Flushed)]);
}

#[test]
fn a_terminate_that_is_not_acknowledged_ends_with_a_reset() {
    let mut pair = pair();
    pair.ends[0].post(WRONG, 0, 100);
    while pair.ends[1].stream.state() == State::Rts {
        pair.step();
    }
    pair.ends[1].stream.happened(Happening::TimeOut);
    pair.run();
    assert_eq!(states(&pair), [State::Error, State::Error]);
    assert_eq!(pair.ends[1].events.last(), Some(&Event::AbortiveDisconnect));
    assert_eq!(pair.ends[0].events.last(), Some(&Event::AbortiveDisconnect));
}

#[test]
fn the_peers_end_crosses_the_local_one() {
    // The peer's FIN or RST comes before or after the local request to close.
    for peer in [Happening::PeerFinished, Happening::PeerReset] {
        for before in [true, false] {
            let mut pair = pair();
            let end = &mut pair.ends[0];
            if before {
                end.stream.happened(peer);
                end.stream.disconnect(Want::Graceful);
            } else {
                end.stream.disconnect(Want::Graceful);
                end.stream.happened(peer);
            }
            end.collect();
            let (state, events): (_, &[_]) = match (peer, before) {
                (Happening::PeerFinished, _) => (State::Closing, &[Event::GracefulDisconnect]),
                (_, true) => (State::Error, &[Event::AbortiveDisconnect]),
                (_, false) => (State::Error, &[Event::AbortiveDisconnect, Event::BadClose]),
            };
            assert_eq!((end.stream.state(), &end.events[..]), (state, events), "{peer:?} {before}");
        }
    }
}

#[test]
fn a_peer_that_finishes_within_an_fpdu_breaks_the_connection() {
    let mut pair = pair();
    pair.segment = 60;
    pair.ends[0].post(WRITE, 0, 5000);
    // The lengths of FPDUs are multiples of four. The request has 29 octets.
    while pair.ways[0].taken % 4 == 1 {
        assert!(pair.ends[0].completions.is_empty(), "the cuts are at random");
        pair.step();
    }
    pair.ends[1].stream.happened(Happening::PeerFinished);
    pair.ends[1].collect();
    assert_eq!(pair.ends[1].stream.state(), State::Error);
    assert_eq!(pair.ends[1].events, [Event::GracefulDisconnect, Event::AbortiveDisconnect]);
    assert_eq!(pair.ends[1].orders, [Order::Reset]);
}

#[test]
fn a_flush_that_hangs_is_given_up() {
    let mut pair = pair();
    pair.ends[0].post(WRITE, 0, 100);
    pair.ends[0].stream.fill(&mut pair.ends[0].ram);
    pair.send(0);
    // TCP still reads the memory until the connection is closed.
    pair.ends[0].stream.happened(Happening::PeerFinished);
    pair.ends[0].collect();
    assert_eq!(pair.ends[0].outcomes(), []);
    assert_eq!(pair.ends[0].stream.rest(false), Rest::Pending);
    assert_eq!(pair.ends[0].stream.rest(true), Rest::Aborted);
    pair.ends[0].stream.disconnect(Want::Abortive);
    pair.ends[0].collect();
    pair.ends[0].collect();
    assert_eq!(pair.ends[0].outcomes(), [(1, Outcome::Flushed)]);
    assert_eq!(pair.ends[0].stream.rest(false), Rest::Reached);
}

#[test]
fn the_end_does_not_wait_for_the_rest_of_a_long_message() {
    for seed in 0..60 {
        for reason in [Reason::PeerFinished, Reason::OwnTerminate, Reason::PeersTerminate] {
            end_within_a_message(seed, false, reason);
            end_within_a_message(seed, true, reason);
        }
    }
}

#[test]
fn abortive_request_while_closing() {
    let mut pair = pair();
    pair.ends[0].stream.disconnect(Want::Graceful);
    pair.ends[0].stream.disconnect(Want::Abortive);
    pair.run();
    assert_eq!(pair.ends[0].stream.state(), State::Error);
    assert_eq!(pair.ends[0].events, [Event::AbortiveDisconnect]);
}

#[test]
fn memory_that_is_gone_resets_the_connection() {
    let mut pair = pair();
    let id = pair.ends[0].post(WRITE, 0, 5000);
    pair.ends[0].ram.gone.push(id);
    pair.run();
    assert_eq!(pair.ends[0].stream.state(), State::Error);
    assert_eq!(pair.ends[0].outcomes(), [(id, Outcome::Local)]);
    assert_eq!(pair.ends[0].events, [Event::AbortiveDisconnect]);
}

#[test]
fn work_that_is_acknowledged_is_not_outstanding_though_it_was_not_reported() {
    let mut pair = pair();
    pair.ends[0].post(WRITE, 0, 100);
    let End { stream, ram, .. } = &mut pair.ends[0];
    stream.fill(ram);
    let end = stream.source(ram).end();
    stream.progress(ram, end, end);
    stream.happened(Happening::PeerFinished);
    pair.ends[0].collect();
    assert_eq!(pair.ends[0].stream.state(), State::Closing);
    assert_eq!(pair.ends[0].outcomes(), [(1, Outcome::Success)]);
}

#[test]
fn a_peer_that_has_finished_may_answer_the_end_with_a_reset() {
    let mut pair = pair();
    let end = &mut pair.ends[0];
    end.stream.disconnect(Want::Graceful);
    end.stream.happened(Happening::PeerFinished);
    end.stream.happened(Happening::PeerReset);
    end.collect();
    assert_eq!(end.events, [Event::GracefulDisconnect, Event::Closed]);
    assert_eq!(end.stream.rest(false), Rest::Reached);
}

#[test]
fn each_event_comes_once() {
    let mut pair = pair();
    for _ in 0..3 {
        for happening in [Happening::PeerFinished, Happening::Lost, Happening::Closed] {
            pair.ends[0].stream.happened(happening);
        }
    }
    pair.ends[0].collect();
    let expected = [Event::GracefulDisconnect, Event::AbortiveDisconnect, Event::BadClose];
    assert_eq!(pair.ends[0].events, expected);
}

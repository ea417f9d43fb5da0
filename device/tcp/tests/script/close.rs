//! The end of connections, and segments that may be forged.
//!
//! Shows: tcp

use std::time::Duration;

use vrnic_tcp::connection::{End as Ending, Event, State};
use vrnic_tcp::wire::{Flags, Header};
use vrnic_tcp::{Context, Discard, Params, SeqNum};

use crate::end::{End, MSS, PEER, RTT, ack, context, data, params};

/// Returns the header with more flags.
fn with(header: Header, flags: Flags) -> Header {
    Header { flags: header.flags | flags, ..header }
}

#[test]
fn the_own_end_first() {
    let mut end = End::new();
    end.streams.end = 10;
    end.connection.close();
    let sent = end.sent();
    assert_eq!((sent[1].seq, sent[1].flags), (10, Flags::FIN | Flags::ACK));
    assert_eq!(end.connection.state(), State::FinWait1);
    end.inject(ack(11), 0);
    assert_eq!(end.connection.state(), State::FinWait2);
    end.inject(with(Header { ack: ack(11).ack, ..data(0) }, Flags::FIN), 5);
    assert_eq!(end.connection.state(), State::TimeWait);
    assert_eq!((end.sent()[0].ack, end.streams.taken.len()), (6, 5));
    assert_eq!(end.events(), [Event::PeerClosed, Event::Closed]);
    // The last acknowledgement was lost.
    end.wait(Duration::from_secs(30));
    end.inject(with(Header { ack: ack(11).ack, ..data(0) }, Flags::FIN), 5);
    assert_eq!(end.sent()[0].ack, 6);
    assert_eq!(end.wait_deadline(), Duration::from_secs(60));
    assert_eq!(end.events(), [Event::Ended(Ending::Closed)]);
}

#[test]
fn the_peers_end_first() {
    let mut end = End::new();
    end.inject(with(data(0), Flags::FIN), 0);
    assert_eq!((end.sent()[0].ack, end.connection.state()), (1, State::CloseWait));
    end.write(MSS);
    end.connection.close();
    assert_eq!(end.sent()[0].flags, Flags::FIN | Flags::ACK);
    assert_eq!(end.connection.state(), State::LastAck);
    end.inject(Header { seq: SeqNum(PEER + 1), ..ack(1001) }, 0);
    assert_eq!(end.events(), [Event::PeerClosed, Event::Closed, Event::Ended(Ending::Closed)]);
    assert_eq!(end.connection.acknowledged().0, 1000);
}

/// The peer had closed its direction before the takeover.
#[test]
fn the_peers_end_before_the_takeover() {
    // The number after its end.
    let context = Context { receive_next: SeqNum(PEER + 1), peer_closed: true, ..context() };
    let mut end = End::with(&context, &params());
    assert_eq!((end.connection.state(), end.events()), (State::CloseWait, vec![Event::PeerClosed]));
    assert_eq!(end.connection.numbers()[1], SeqNum(PEER + 1));
    // The last acknowledgement of the kernel was lost.
    end.inject(with(data(0), Flags::FIN), 0);
    assert_eq!(end.sent()[0].ack, 1);
    // Nothing follows the end.
    end.inject(Header { seq: SeqNum(PEER + 1), ..data(0) }, 100);
    assert_eq!(end.streams.taken.len(), 0);
    assert_eq!(end.connection.counters().discards.of(Discard::BehindEnd), 1);
    end.write(MSS);
    end.connection.close();
    let sent = end.sent();
    assert_eq!((sent[0].flags, sent[0].ack), (Flags::FIN | Flags::ACK, 1));
    assert_eq!(end.connection.state(), State::LastAck);
    end.inject(Header { seq: SeqNum(PEER + 1), ..ack(1001) }, 0);
    assert_eq!(end.events(), [Event::Closed, Event::Ended(Ending::Closed)]);
}

#[test]
fn both_ends_at_the_same_time() {
    let mut end = End::new();
    end.connection.close();
    end.sent();
    end.inject(with(data(0), Flags::FIN), 0);
    assert_eq!(end.connection.state(), State::Closing);
    end.inject(Header { seq: SeqNum(PEER + 1), ..ack(1) }, 0);
    assert_eq!(end.connection.state(), State::TimeWait);
}

#[test]
fn a_reset_after_both_ends_is_no_failure() {
    let mut end = End::new();
    end.connection.close();
    end.sent();
    end.inject(with(Header { ack: ack(1).ack, ..data(0) }, Flags::FIN), 0);
    assert_eq!((end.sent()[0].ack, end.connection.state()), (1, State::TimeWait));
    end.inject(with(Header { ack: ack(1).ack, ..data(1) }, Flags::RST), 0);
    assert_eq!(end.events(), [Event::PeerClosed, Event::Closed, Event::Ended(Ending::Closed)]);
}

#[test]
fn a_lost_end_is_sent_again() {
    let mut end = End::new();
    end.connection.close();
    assert_eq!(end.sent()[0].flags, Flags::FIN | Flags::ACK);
    end.wait(Duration::from_millis(500));
    let sent = end.sent();
    assert_eq!((sent[0].seq, sent[0].flags), (0, Flags::FIN | Flags::ACK));
}

#[test]
fn a_peer_that_never_closes_is_reset() {
    let mut end = End::new();
    end.connection.close();
    end.sent();
    end.inject(ack(1), 0);
    assert_eq!(end.wait_deadline(), Duration::from_secs(60));
    assert_eq!(end.sent()[0].flags, Flags::RST | Flags::ACK);
    assert_eq!(end.events(), [Event::Ended(Ending::TimedOut)]);
}

/// The owner may leave the peer's direction open. A keepalive then finds out whether the peer is
/// still there.
#[test]
fn a_peer_may_keep_its_direction_open() {
    let idle = Duration::from_secs(1000);
    let mut end =
        End::with(&context(), &Params { half_open: true, keepalive: Some(idle), ..params() });
    end.connection.close();
    end.sent();
    end.inject(ack(1), 0);
    assert_eq!((end.connection.state(), end.connection.deadline()), (State::FinWait2, None));
    assert!(end.connection.keepalive().is_some());
    end.wait(Duration::from_secs(900));
    end.inject(Header { ack: ack(1).ack, ..data(0) }, MSS);
    end.inject(with(Header { ack: ack(1).ack, ..data(1000) }, Flags::FIN), 0);
    assert_eq!((end.sent()[0].ack, end.streams.taken.len()), (1001, 1000));
    assert_eq!(end.events(), [Event::PeerClosed, Event::Closed]);
    assert_eq!(end.wait_deadline(), Duration::from_secs(60));
    assert_eq!(end.events(), [Event::Ended(Ending::Closed)]);
}

#[test]
fn an_end_that_comes_early_waits_for_the_bytes_before_it() {
    let mut end = End::new();
    end.inject(with(data(1000), Flags::FIN), MSS);
    assert_eq!((end.sent()[0].ack, end.events()), (0, vec![]));
    end.inject(data(0), MSS);
    assert_eq!((end.sent()[0].ack, end.events()), (2001, vec![Event::PeerClosed]));
    // Bytes after the end do not belong to the stream.
    end.inject(data(2000), MSS);
    assert_eq!(end.streams.taken.len(), 2000);
}

/// Shows: tcp
#[test]
fn only_an_exact_reset_ends_a_connection() {
    let mut end = End::new();
    end.inject(with(data(1), Flags::RST), 0);
    assert_eq!((end.sent()[0].ack, end.connection.state()), (0, State::Established));
    end.inject(with(data(70_000), Flags::RST), 0);
    assert_eq!(end.sent(), []);
    end.inject(with(data(0), Flags::RST), 0);
    assert_eq!(end.events(), [Event::Ended(Ending::Reset)]);
    assert_eq!((end.sent(), end.connection.deadline()), (vec![], None));
}

#[test]
fn a_syn_and_wrong_acknowledgements_are_challenged() {
    let mut end = End::new();
    end.inject(with(data(0), Flags::SYN), 0);
    assert_eq!(end.sent()[0].ack, 0);
    end.inject(ack(1), 0);
    assert_eq!(end.sent()[0].ack, 0);
    end.inject(Header { ack: SeqNum(ack(0).ack.0.wrapping_sub(60_001)), ..ack(0) }, 0);
    assert_eq!(end.sent()[0].ack, 0);
    let discards = end.connection.counters().discards;
    assert_eq!((discards.of(Discard::Syn), discards.of(Discard::Acknowledgement)), (1, 2));
}

#[test]
fn challenges_are_limited() {
    let mut end = End::new();
    for _ in 0..1000 {
        end.inject(with(data(5), Flags::RST), 0);
    }
    assert_eq!(end.connection.counters().challenges, 100);
    end.wait(Duration::from_secs(1));
    end.inject(with(data(5), Flags::RST), 0);
    assert_eq!(end.connection.counters().challenges, 101);
}

#[test]
fn an_abort_resets_the_peer() {
    let mut end = End::new();
    end.write(MSS);
    end.wait(RTT);
    end.connection.abort();
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].seq, sent[0].flags), (1, 1000, Flags::RST | Flags::ACK));
    assert_eq!(end.events(), [Event::Ended(Ending::Aborted)]);
}

#[test]
fn a_reset_that_did_not_reach_the_peer_is_sent_again_with_the_number_that_it_expects() {
    let mut end = End::new();
    end.write(2 * MSS);
    end.connection.abort();
    assert_eq!(end.sent()[0].seq, 2000);
    // The peer has received one of the two segments.
    end.inject(Header { ack: ack(1000).ack, ..data(0) }, MSS);
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].seq, sent[0].flags), (1, 1000, Flags::RST | Flags::ACK));
    end.inject(with(Header { ack: ack(1000).ack, ..data(0) }, Flags::RST), 0);
    assert_eq!(end.sent(), []);
    for _ in 0..1000 {
        end.inject(ack(1000), 0);
    }
    assert_eq!((end.sent().len(), end.connection.counters().challenges), (1, 100));
    assert_eq!(end.events(), [Event::Ended(Ending::Aborted)]);
}

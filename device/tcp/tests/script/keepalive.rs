//! Probes of a peer from which nothing has arrived for long, and the answers to its probes.
//!
//! Shows: tcp

use std::time::Duration;

use vrnic_tcp::connection::keepalive::{INTERVAL, PROBES};
use vrnic_tcp::connection::{Event, State};
use vrnic_tcp::wire::Flags;
use vrnic_tcp::{Context, End as Ending, Params};

use crate::end::{End, MSS, RTT, ack, context, data, params, timestamps};

const IDLE: Duration = Duration::from_secs(7200);
/// A probe: an empty segment with the number before the next byte.
const PROBE: [(i64, usize); 1] = [(-1, 0)];

fn idle_end(idle: Duration) -> End {
    End::with(&context(), &Params { keepalive: Some(idle), ..params() })
}

/// Moves the clock to the next probe. Returns the time until it.
fn wait_probe(end: &mut End) -> Duration {
    let time = end.connection.keepalive().expect("a time").since(end.now);
    end.wait(time);
    time
}

#[test]
fn a_peer_that_answers_no_probe_ends_the_connection() {
    for (idle, interval) in [(IDLE, INTERVAL), (RTT * 500, RTT * 500)] {
        let mut end = idle_end(idle);
        assert_eq!((wait_probe(&mut end), end.ranges()), (idle, PROBE.to_vec()));
        for _ in 1..PROBES {
            assert_eq!((wait_probe(&mut end), end.ranges()), (interval, PROBE.to_vec()));
        }
        assert_eq!((end.events(), wait_probe(&mut end)), (vec![], interval));
        let sent = end.sent();
        assert_eq!((sent.len(), sent[0].seq, sent[0].flags), (1, 0, Flags::RST | Flags::ACK));
        assert_eq!(end.events(), [Event::Ended(Ending::TimedOut)]);
        assert_eq!(end.connection.keepalive(), None);
    }
}

#[test]
fn answers_and_other_segments_start_the_idle_time_again() {
    let mut end = idle_end(IDLE);
    for _ in 0..3 {
        assert_eq!((wait_probe(&mut end), end.ranges()), (IDLE, PROBE.to_vec()));
        (1..PROBES).for_each(|_| assert_eq!(wait_probe(&mut end), INTERVAL));
        end.sent();
        end.wait(RTT);
        end.inject(ack(0), 0);
    }
    end.wait(IDLE / 2);
    end.inject(data(0), 100);
    end.wait(RTT);
    assert_eq!(end.ranges(), [(0, 0)], "an acknowledgement");
    assert_eq!((wait_probe(&mut end), end.ranges()), (IDLE - RTT, PROBE.to_vec()));
    assert_eq!((end.events(), end.connection.state()), (vec![], State::Established));
}

#[test]
fn an_answer_before_the_probe_is_sent_makes_it_unnecessary() {
    let mut end = idle_end(IDLE);
    wait_probe(&mut end);
    end.inject(data(0), 100);
    end.wait(RTT);
    assert_eq!(end.ranges(), [(0, 0)], "an acknowledgement alone");
}

#[test]
fn bytes_in_flight_or_behind_a_closed_window_are_not_probed_for() {
    let mut end = idle_end(RTT);
    end.write(MSS);
    assert_eq!(end.connection.keepalive(), None);
    end.wait(RTT * 2);
    assert_eq!(end.ranges(), []);
    end.window = 0;
    end.inject(ack(1000), 0);
    assert_eq!(end.connection.keepalive(), Some(end.now.plus(RTT)));
    end.write(MSS);
    assert_eq!(end.connection.keepalive(), None);
    // Bytes that become ready at the time of a probe are sent instead of it.
    let mut end = idle_end(RTT);
    wait_probe(&mut end);
    assert_eq!(end.write(MSS), [(0, MSS)]);
}

#[test]
fn connections_that_close_or_need_no_probes_send_none() {
    let mut end = idle_end(RTT);
    end.connection.close();
    assert_eq!(end.connection.keepalive(), None);
    let mut stopped = idle_end(RTT);
    stopped.connection.stop_keepalive();
    for mut end in [stopped, idle_end(Duration::ZERO), End::new()] {
        assert_eq!(end.connection.keepalive(), None);
        end.wait(2 * IDLE);
        assert_eq!(end.ranges(), []);
    }
}

#[test]
fn probes_of_the_peer_are_answered() {
    for timestamps in [None, timestamps()] {
        let mut end = End::with(&Context { timestamps, ..context() }, &params());
        end.inject(data(0), MSS);
        end.sent();
        // Some systems send a byte that they have sent before.
        for len in [0, 1] {
            end.wait(RTT);
            end.inject(data(MSS as u32 - 1), len);
            let sent = end.sent();
            assert_eq!((sent.len(), sent[0].seq, sent[0].len), (1, 0, 0));
            assert_eq!((sent[0].ack, sent[0].flags), (MSS as i64, Flags::ACK));
        }
        assert_eq!((end.streams.taken.len(), end.events()), (MSS, vec![]));
    }
}

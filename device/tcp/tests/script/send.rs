//! Loss recovery, windows and time-outs of the sending direction.
//!
//! Shows: tcp

use std::time::Duration;

use vrnic_tcp::connection::{End as Ending, Event};
use vrnic_tcp::wire::Flags;
use vrnic_tcp::{Context, Params};

use crate::end::{End, MSS, OWN, RTT, ack, context, params, sack};

const MS: Duration = Duration::from_millis(1);

#[test]
fn the_first_window_has_ten_segments() {
    let mut end = End::new();
    assert_eq!(end.write(50 * MSS).len(), 10);
    end.wait(RTT);
    end.inject(ack(2 * MSS as u32), 0);
    assert_eq!(end.ranges(), [(10_000, MSS), (11_000, MSS), (12_000, MSS), (13_000, MSS)]);
}

/// A receiver that processes many segments at once sends one acknowledgement for them.
#[test]
fn slow_start_grows_by_all_that_an_acknowledgement_covers() {
    let mut end = End::new();
    end.write(50 * MSS);
    end.wait(RTT);
    end.inject(ack(10 * MSS as u32), 0);
    assert_eq!(end.ranges().len(), 20);
}

/// The peer names the newest block first.
#[test]
fn blocks_of_one_acknowledgement_have_not_overtaken_each_other() {
    let mut end = End::new();
    end.write(10 * MSS);
    end.wait(RTT);
    end.inject(sack(ack(0), &[(6000, 10_000), (1000, 5000)]), 0);
    assert_eq!(end.ranges()[..2], [(0, MSS), (5000, MSS)]);
}

#[test]
fn a_recovery_without_an_answer_sends_the_first_segment_again_before_the_time_out() {
    let mut end = End::new();
    end.write(4 * MSS);
    end.wait(RTT);
    end.inject(sack(ack(0), &[(1000, 4000)]), 0);
    assert_eq!(end.ranges(), [(0, MSS)]);
    assert_eq!((end.wait_deadline(), end.ranges()), (2 * RTT, vec![(0, MSS)]));
    // The first segment is sent again only once until a segment arrives.
    end.wait_deadline();
    assert_eq!(end.connection.counters().send.timeouts, 1);
}

/// Shows: tcp
#[test]
fn three_selective_acknowledgements_mean_a_loss() {
    let mut end = End::new();
    end.write(10 * MSS);
    end.wait(RTT);
    end.inject(sack(ack(0), &[(1000, 2000)]), 0);
    end.inject(sack(ack(0), &[(1000, 3000)]), 0);
    assert_eq!(end.ranges(), []);
    end.inject(sack(ack(0), &[(1000, 4000)]), 0);
    assert_eq!(end.ranges()[0], (0, MSS));
    assert_eq!(end.connection.counters().send.recoveries, 1);
}

#[test]
fn fewer_selective_acknowledgements_mean_a_loss_after_a_quarter_of_the_round_trip() {
    let mut end = End::new();
    end.write(2 * MSS);
    end.wait(RTT);
    end.inject(sack(ack(0), &[(1000, 2000)]), 0);
    assert_eq!((end.wait_deadline(), end.ranges()), (RTT / 4, vec![(0, MSS)]));
}

#[test]
fn a_lost_retransmission_is_found_without_a_time_out() {
    let mut end = End::new();
    end.write(10 * MSS);
    end.wait(RTT);
    end.inject(sack(ack(0), &[(1000, 5000)]), 0);
    assert_eq!(end.ranges()[0], (0, MSS));
    end.streams.end += 10 * MSS as u64;
    end.wait(MS);
    end.inject(sack(ack(0), &[(1000, 9000)]), 0);
    let new = end.ranges();
    assert!(new.iter().any(|(seq, _)| *seq >= 10_000), "{new:?}");
    end.wait(RTT);
    end.inject(sack(ack(0), &[(1000, 11_000)]), 0);
    assert_eq!(end.ranges()[0], (0, MSS));
    assert_eq!(end.connection.counters().send.timeouts, 0);
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let mut end = End::new();
    end.write(3 * MSS);
    assert_eq!((end.wait_deadline(), end.ranges()), (2 * RTT, vec![(2000, MSS)]));
    // The answer to the probe shows what is missing before it.
    end.wait(RTT);
    end.inject(sack(ack(0), &[(2000, 3000)]), 0);
    end.wait(RTT);
    assert_eq!(end.ranges(), [(0, MSS), (1000, MSS)]);
    let send = end.connection.counters().send;
    assert_eq!((send.tail_probes, send.timeouts), (1, 0));
}

#[test]
fn without_sack_three_duplicates_and_partial_acknowledgements_tell_of_losses() {
    let mut end = End::with(&Context { sack: false, ..context() }, &params());
    end.write(8 * MSS);
    end.wait(RTT);
    (0..2).for_each(|_| end.inject(ack(0), 0));
    assert_eq!(end.ranges(), []);
    end.inject(ack(0), 0);
    assert_eq!(end.ranges(), [(0, MSS)]);
    (0..2).for_each(|_| end.inject(ack(0), 0));
    end.wait(RTT);
    end.inject(ack(3000), 0);
    assert_eq!(end.ranges(), [(3000, MSS)]);
    end.inject(ack(8000), 0);
    assert_eq!(end.ranges(), []);
}

#[test]
fn time_outs_double_until_the_connection_is_given_up() {
    let params = Params { user_timeout: Duration::from_secs(600), ..params() };
    let mut end = End::with(&Context { sack: false, ..context() }, &params);
    end.write(2 * MSS);
    for doubled in 0..4 {
        assert_eq!(end.wait_deadline(), 200 * MS * (1 << doubled));
        assert_eq!(end.ranges(), [(0, MSS)]);
    }
    while end.connection.deadline().is_some() {
        end.wait_deadline();
        end.sent();
    }
    assert_eq!(end.events(), [Event::Ended(Ending::TimedOut)]);
    assert!(end.now.0 > 500_000_000_000, "{:?}", end.now);
}

#[test]
fn a_peer_that_answers_probes_may_keep_its_window_closed() {
    let params = Params { user_timeout: Duration::from_secs(100), ..params() };
    let mut end = End::with(&Context { send_window: 0, ..context() }, &params);
    end.window = 0;
    assert_eq!(end.write(MSS), []);
    while end.now.0 < 600_000_000_000 {
        end.wait_deadline();
        assert_eq!(end.ranges(), [(-1, 0)], "at {} s", end.now.0 / 1_000_000_000);
        end.inject(ack(0), 0);
    }
    end.window = 60_000;
    end.inject(ack(0), 0);
    assert_eq!((end.ranges(), end.events()), (vec![(0, MSS)], vec![]));
}

#[test]
fn the_user_timeout_ends_a_connection_whose_peer_answers_no_probe() {
    let params = Params { user_timeout: Duration::from_secs(10), ..params() };
    let mut end = End::with(&Context { send_window: 0, ..context() }, &params);
    assert_eq!(end.write(MSS), []);
    while end.connection.deadline().is_some() {
        end.wait_deadline();
        end.sent();
    }
    assert_eq!(end.now.0, 10_000_000_000);
    assert_eq!(end.events(), [Event::Ended(Ending::TimedOut)]);
}

#[test]
fn a_closed_window_is_probed_with_an_old_number() {
    let mut end = End::with(&Context { send_window: 0, ..context() }, &params());
    assert_eq!(end.write(MSS), []);
    assert_eq!((end.wait_deadline(), end.ranges()), (200 * MS, vec![(-1, 0)]));
    assert_eq!((end.wait_deadline(), end.ranges()), (400 * MS, vec![(-1, 0)]));
    end.inject(ack(0), 0);
    assert_eq!(end.ranges(), [(0, MSS)]);
}

#[test]
fn a_small_window_is_used_after_a_while() {
    let mut end = End::with(&Context { send_window: 100, ..context() }, &params());
    assert_eq!(end.write(MSS), []);
    assert_eq!((end.wait_deadline(), end.ranges()), (200 * MS, vec![(0, 100)]));
}

#[test]
fn a_window_of_a_few_bytes_counts_as_closed() {
    let mut end = End::with(&Context { send_window: 7, ..context() }, &params());
    assert_eq!(end.write(MSS), []);
    assert_eq!((end.wait_deadline(), end.ranges()), (200 * MS, vec![(-1, 0)]));
    end.window = 8;
    end.inject(ack(0), 0);
    end.wait_deadline();
    assert_eq!(end.ranges(), [(0, 8)]);
}

#[test]
fn what_the_peer_has_dropped_after_reporting_it_is_sent_again() {
    let mut end = End::new();
    end.write(4 * MSS);
    end.wait(RTT);
    end.inject(sack(ack(0), &[(1000, 4000)]), 0);
    assert_eq!(end.ranges(), [(0, MSS)]);
    // The peer has dropped bytes that it had reported.
    end.inject(ack(1000), 0);
    end.wait_deadline();
    let mut again = end.ranges();
    end.inject(ack(2000), 0);
    again.extend(end.ranges());
    assert_eq!(again, [(1000, MSS), (2000, MSS), (3000, MSS)]);
}

#[test]
fn blocks_outside_what_is_unacknowledged_have_no_effect() {
    let mut end = End::new();
    end.write(4 * MSS);
    for (start, after) in [(4000, 9000), (3000, 2000), (u32::MAX - OWN, 4000), (500, 700)] {
        end.inject(sack(ack(0), &[(start, after)]), 0);
    }
    assert_eq!(end.ranges(), []);
    assert_eq!(end.connection.counters().send.recoveries, 0);
}

#[test]
fn a_path_that_carries_less_gets_shorter_segments() {
    let mut end = End::new();
    end.write(2 * MSS);
    end.connection.limit_mss(end.now, 600);
    end.wait(RTT);
    end.wait_deadline();
    end.sent();
    end.wait(300 * MS);
    assert_eq!(end.ranges(), [(0, 600), (600, 400)]);
    end.inject(ack(1000), 0);
    assert_eq!(end.ranges(), [(1000, 600), (1600, 400)]);
}

#[test]
fn a_path_gets_full_segments_again_after_ten_minutes() {
    let mut end = End::new();
    end.connection.limit_mss(end.now, 600);
    assert_eq!(end.write(600), [(0, 600)]);
    end.inject(ack(600), 0);
    end.wait(Duration::from_secs(599));
    assert_eq!(end.write(MSS), [(600, 600), (1200, 400)]);
    end.inject(ack(1600), 0);
    end.wait(Duration::from_secs(1));
    assert_eq!(end.write(MSS), [(1600, MSS)]);
}

#[test]
fn segments_are_no_longer_than_the_peer_permits() {
    let mut end = End::with(&Context { mss: 128, ..context() }, &params());
    assert_eq!(end.write(300), [(0, 128), (128, 128), (256, 44)]);
}

#[test]
fn segments_that_become_too_long_are_cut_though_no_more_may_be_sent() {
    let mut end = End::with(&context(), &Params { segments: 2, ..params() });
    assert_eq!(end.write(3 * MSS).len(), 2);
    end.connection.limit_mss(end.now, 600);
    end.wait(RTT);
    end.wait_deadline();
    end.sent();
    end.wait(300 * MS);
    assert_eq!(end.ranges(), [(0, 600), (600, 400)]);
    end.inject(ack(1000), 0);
    assert_eq!(end.ranges(), [(1000, 600), (1600, 400)]);
    end.inject(ack(2000), 0);
    assert_eq!(end.ranges(), [(2000, 600), (2600, 400)]);
}

#[test]
fn bytes_that_cannot_be_rebuilt_end_the_connection() {
    let mut end = End::new();
    end.write(MSS);
    end.streams.gone = true;
    end.wait(300 * MS);
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].flags, sent[0].len), (1, Flags::RST | Flags::ACK, 0));
    assert_eq!(end.events(), [Event::Ended(Ending::Gone)]);
    assert_eq!(end.connection.deadline(), None);
}

#[test]
fn a_tail_that_was_repaired_leaves_half_of_the_window() {
    let mut end = End::new();
    end.write(10 * MSS);
    end.wait(RTT);
    end.inject(ack(8000), 0);
    end.wait_deadline();
    assert_eq!(end.ranges(), [(9000, MSS)]);
    assert_eq!(end.connection.counters().send.tail_probes, 1);
    end.write(MSS);
    end.wait(RTT);
    end.inject(ack(11_000), 0);
    assert!(end.write(50 * MSS).len() >= 5);
}

#[test]
fn what_waited_for_a_retransmission_is_no_measurement() {
    let mut end = End::with(&Context { sack: false, ..context() }, &params());
    end.write(2 * MSS);
    assert_eq!((end.wait_deadline(), end.ranges()), (200 * MS, vec![(0, MSS)]));
    end.wait(RTT);
    end.inject(ack(2000), 0);
    end.write(MSS);
    assert_eq!(end.wait_deadline(), 200 * MS);
}

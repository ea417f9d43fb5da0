//! Windows, acknowledgements and panes of the receiving direction.
//!
//! Shows: tcp

use std::time::Duration;

use vrnic_tcp::wire::Header;
use vrnic_tcp::{Budget, Context, Delivered, Discard, Offered, Params, Then, budget};

use crate::end::{End, MSS, ack, context, data, params, timestamps};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_lone_segment_is_acknowledged_late_and_a_second_one_at_once() {
    let mut end = End::new();
    end.inject(data(0), MSS);
    assert_eq!(end.sent(), []);
    assert_eq!((end.wait_deadline(), end.sent()[0].ack), (MS, 1000));
    end.inject(data(1000), MSS);
    end.inject(data(2000), MSS);
    assert_eq!(end.sent()[0].ack, 3000);
}

#[test]
fn the_sink_asks_for_an_acknowledgement_at_once() {
    let mut end = End::new();
    end.streams.answers.push(Delivered { taken: MSS, then: Then::Acknowledge });
    end.inject(data(0), MSS);
    assert_eq!(end.sent()[0].ack, 1000);
}

#[test]
fn the_sink_hears_of_an_acknowledgement_before_the_bytes_of_its_segment() {
    let mut end = End::new();
    end.write(2 * MSS);
    end.inject(Header { ack: ack(1000).ack, ..data(0) }, MSS);
    end.inject(Header { ack: ack(2000).ack, ..data(1000) }, MSS);
    assert_eq!(end.streams.progress_at_delivery, [(1000, 2000), (2000, 2000)]);
}

#[test]
fn an_acknowledgement_travels_with_data() {
    let mut end = End::new();
    end.inject(data(0), MSS);
    end.inject(data(1000), MSS);
    end.streams.end = 10;
    let sent = end.sent();
    assert_eq!((sent.len(), sent[0].len, sent[0].ack), (1, 10, 2000));
}

#[test]
fn gaps_are_reported_with_the_last_block_first() {
    let mut end = End::new();
    end.inject(data(2000), MSS);
    assert_eq!(end.sent()[0].sack, [(2000, 3000)]);
    end.inject(data(4000), MSS);
    assert_eq!(end.sent()[0].sack, [(4000, 5000), (2000, 3000)]);
    end.inject(data(1000), MSS);
    assert_eq!(end.sent()[0].sack, [(1000, 3000), (4000, 5000)]);
    end.inject(data(0), MSS);
    let sent = end.sent();
    assert_eq!((sent[0].ack, &sent[0].sack[..]), (3000, &[(4000, 5000)][..]));
    end.inject(data(3000), MSS);
    let sent = end.sent();
    assert_eq!((sent[0].ack, sent[0].sack.len(), end.streams.taken.len()), (5000, 0, 5000));
}

/// Such a peer counts the acknowledgements, even if all segments have arrived in one turn.
#[test]
fn without_sack_each_segment_out_of_order_is_acknowledged() {
    let mut end = End::with(&Context { sack: false, ..context() }, &params());
    for at in [0, 2000, 3000, 4000] {
        end.inject(data(at), MSS);
    }
    end.streams.end = 10;
    let sent = end.sent();
    let acks: Vec<(usize, i64)> = sent.iter().map(|sent| (sent.len, sent.ack)).collect();
    assert_eq!(acks, [(0, 1000), (0, 1000), (0, 1000), (0, 1000), (10, 1000)]);
    // After progress, no acknowledgement is repeated.
    for at in [6000, 1000] {
        end.inject(data(at), MSS);
    }
    let acks: Vec<i64> = end.sent().iter().map(|sent| sent.ack).collect();
    assert_eq!(acks, [5000]);
}

#[test]
fn two_gaps_close_in_either_order() {
    for order in [[0, 2000], [2000, 0]] {
        let mut end = End::new();
        for at in [1000, 3000].into_iter().chain(order) {
            end.inject(data(at), MSS);
        }
        assert_eq!((end.sent()[0].ack, end.streams.taken.len()), (4000, 4000));
    }
}

#[test]
fn duplicates_are_reported_once() {
    let mut end = End::new();
    end.inject(data(0), MSS);
    end.inject(data(0), MSS);
    assert_eq!(end.sent()[0].sack, [(0, 1000)]);
    end.inject(data(2000), MSS);
    end.sent();
    end.inject(data(2000), MSS);
    assert_eq!(end.sent()[0].sack, [(2000, 3000), (2000, 3000)]);
    assert_eq!(end.connection.counters().discards.of(Discard::Duplicate), 2);
}

#[test]
fn placed_bytes_are_not_stored_and_are_passed_by_in_order() {
    let mut end = End::with(&context(), &Params { buffer: 0, ..params() });
    end.streams.offered = Offered::Placed;
    end.inject(data(1000), MSS);
    end.inject(data(2000), MSS);
    end.inject(data(0), MSS);
    assert_eq!((end.sent()[0].ack, &end.streams.filled[..]), (3000, &[(1000, 3000)][..]));
    assert_eq!(end.streams.taken.len(), MSS);
}

#[test]
fn a_full_pane_table_and_a_full_store_drop_without_a_report() {
    let mut end = End::new();
    for pane in 0..17 {
        end.inject(data(1000 + pane * 1000), 500);
    }
    let blocks = end.sent()[0].sack.clone();
    assert!(!blocks.contains(&(17_000, 17_500)), "{blocks:?}");
    end.inject(data(1500), 500);
    end.inject(data(21_000), 500);
    let discards = end.connection.counters().discards;
    assert_eq!((discards.of(Discard::Panes), discards.of(Discard::Buffer)), (1, 1));
    assert_eq!(end.sent()[0].sack[0], (1000, 2500));
}

/// The store has memory for one block. The segments are 40 KiB apart.
#[test]
fn bytes_without_memory_are_dropped_without_a_report() {
    let budget = Budget::new(2 * budget::BLOCK);
    let mut end = End::with(&context(), &Params { buffer: 1 << 20, ..params() });
    end.connection.use_budget(&budget);
    end.inject(data(1000), MSS);
    assert_eq!(budget.free(), budget::BLOCK);
    end.inject(data(41_000), MSS);
    assert_eq!(end.connection.counters().discards.of(Discard::Buffer), 1);
    assert_eq!(end.sent()[0].sack, [(1000, 2000)]);
    end.inject(data(0), MSS);
    assert_eq!((end.sent()[0].ack, end.streams.taken.len()), (2000, 2000));
    assert_eq!(budget.free(), 2 * budget::BLOCK);
}

#[test]
fn refused_bytes_are_not_acknowledged_and_come_again() {
    let mut end = End::new();
    end.streams.answers.push(Delivered { taken: 100, then: Then::Refuse });
    end.inject(data(0), MSS);
    end.wait(MS);
    assert_eq!(end.sent()[0].ack, 100);
    end.inject(data(0), MSS);
    assert_eq!((end.sent()[0].ack, end.streams.taken.len()), (1000, 1000));
}

#[test]
fn a_sink_that_holds_back_closes_the_window_and_takes_no_promise_back() {
    let mut end = End::with(&context(), &Params { buffer: 60_000, ..params() });
    end.streams.answers.push(Delivered { taken: 0, then: Then::Hold });
    for at in 0..60 {
        end.inject(data(at * 1000), MSS);
    }
    let sent = end.sent();
    assert_eq!((sent[0].ack, sent[0].window), (60_000, 0));
    end.inject(data(60_000), MSS);
    assert_eq!(end.sent()[0].ack, 60_000);
    end.connection.resume(end.now, &mut end.streams);
    let sent = end.sent();
    assert_eq!((sent[0].window, end.streams.taken.len()), (60_000, 60_000));
}

#[test]
fn the_window_grows_by_a_segment_or_more() {
    let mut end = End::new();
    let mut window_after = |at, len| {
        end.inject(data(at), len);
        end.wait(MS);
        end.sent()[0].window
    };
    assert_eq!([window_after(0, 400), window_after(400, 500)], [59_600, 59_100]);
    assert_eq!(window_after(900, 100), 60_000);
}

/// The owner knows how many bytes the sink can take.
#[test]
fn a_window_that_is_set_takes_no_promise_back() {
    let mut end = End::new();
    end.connection.set_window(0);
    assert_eq!(end.sent(), [], "it is not worth a segment");
    end.inject(data(0), MSS);
    end.inject(data(1000), MSS);
    assert_eq!(end.sent()[0].window, 58_000, "60,000 bytes were promised");
    for at in 2..60 {
        end.inject(data(at * 1000), MSS);
    }
    assert_eq!(end.sent()[0].window, 0);
    end.connection.set_window(50_000);
    assert_eq!(end.sent()[0].window, 50_000, "it grows at once");
    end.connection.set_window(50_001);
    assert_eq!(end.sent(), []);
}

#[test]
fn old_timestamps_are_dropped_and_missing_ones_too() {
    let mut end = End::with(&Context { timestamps: timestamps(), ..context() }, &params());
    end.timestamp = Some(99);
    end.inject(data(0), MSS);
    assert_eq!((end.sent()[0].ack, end.streams.taken.len()), (0, 0));
    end.timestamp = None;
    end.inject(data(0), MSS);
    assert_eq!(end.sent(), []);
    end.timestamp = Some(101);
    end.inject(data(0), MSS);
    assert_eq!(end.streams.taken.len(), MSS);
    let discards = end.connection.counters().discards;
    assert_eq!((discards.of(Discard::OldTimestamp), discards.of(Discard::NoTimestamp)), (1, 1));
}

#[test]
fn an_acknowledgement_from_the_edge_of_a_full_window_counts() {
    let mut end = End::with(&Context { receive_window: 1000, ..context() }, &params());
    end.write(MSS);
    // The peer has filled the window with a segment that was lost.
    let mut header = ack(1000);
    header.seq = data(1000).seq;
    end.inject(header, 0);
    assert_eq!(end.connection.acknowledged().0, 1000);
}

#[test]
fn by_default_all_that_the_peer_may_send_is_stored() {
    let params = Params::default();
    let window = params.window;
    let context = Context { receive_window: window, receive_scale: 7, ..context() };
    let mut end = End::with(&context, &params);
    end.streams.answers.push(Delivered { taken: 0, then: Then::Hold });
    for at in (0..window).step_by(MSS) {
        end.inject(data(at), MSS.min((window - at) as usize));
    }
    let sent = end.sent();
    assert_eq!((sent[0].ack, sent[0].window), (i64::from(window), 0));
}

#[test]
fn a_forged_acknowledgement_does_not_bring_a_timestamp() {
    let mut end = End::with(&Context { timestamps: timestamps(), ..context() }, &params());
    end.timestamp = Some(100 + (1 << 30));
    end.inject(ack(70_000), 0);
    end.inject(Header { ack: ack(0).ack.plus(u32::MAX), ..data(0) }, 0);
    assert_eq!(end.connection.counters().discards.of(Discard::Acknowledgement), 1);
    end.timestamp = Some(101);
    end.inject(data(0), MSS);
    assert_eq!(end.streams.taken.len(), MSS);
}

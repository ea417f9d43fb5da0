//! Tests of the work that an acknowledgement causes.
//!
//! Shows: cost: the work of an acknowledgement does not grow with the window of TCP

use std::time::Duration;

use vrnic_packet::Nanos;

use super::{Ack, Fate, Params, Plan, Sender};
use crate::context::{Algorithm, Context};
use crate::seq::{SeqNum, StreamPos};
use crate::wire::SackBlock;

const RTT: Duration = Duration::from_millis(20);
const LEN: usize = 1000;
/// Number of segments of a full window.
const COUNT: u32 = 2048;
/// Maximum number of records that an acknowledgement of one segment may visit.
const MAX_VISITS: usize = 16;

/// Returns a sender that has sent a full window, one segment each microsecond.
fn full() -> Sender {
    let window = COUNT * LEN as u32;
    let context = Context {
        send_next: SeqNum(0),
        receive_next: SeqNum(0),
        send_window: window,
        max_send_window: window,
        receive_window: 60_000,
        send_scale: 0,
        receive_scale: 0,
        peer_closed: false,
        mss: LEN as u16,
        sack: true,
        timestamps: None,
        round_trip: Some((RTT, RTT / 8)),
    };
    let params = Params { congestion: Algorithm::None, ..Params::default() };
    let mut sender = Sender::new(Nanos(0), &context, &params);
    for nth in 0..u64::from(COUNT) {
        let start = sender.next;
        sender.sent(Nanos(nth * 1000), Plan::New { start, len: LEN });
    }
    sender
}

/// Processes a selective acknowledgement of only these segments. Returns the number of records that
/// were visited, including the search for the next segment to send.
fn selective(sender: &mut Sender, now: Nanos, segments: std::ops::Range<u32>) -> usize {
    let at = |segment: u32| SeqNum(segment * LEN as u32);
    let blocks = [SackBlock { start: at(segments.start), end: at(segments.end) }];
    sender.records.visits = 0;
    sender.acknowledge(&Ack { now, at: StreamPos(0), blocks: &blocks, echo: None, bare: true });
    sender.records.first_lost();
    sender.check();
    sender.records.visits
}

/// Sends the lost segments again.
fn resend(sender: &mut Sender, now: Nanos) {
    while let Some(at) = sender.records.first_lost() {
        sender.records.resend(at, now);
    }
}

/// Returns the time at which the acknowledgement of a segment arrives.
fn arrival(segment: u32) -> Nanos {
    Nanos(u64::from(segment) * 1000).plus(RTT)
}

#[test]
fn acknowledgements_of_a_full_window_visit_few_records() {
    let mut sender = full();
    for segment in 1..COUNT {
        let now = arrival(segment);
        let visits = selective(&mut sender, now, 1..segment + 1);
        assert!(visits <= MAX_VISITS, "{visits} visits at segment {segment}");
        resend(&mut sender, now);
    }
    assert_eq!(sender.records.sacked() + 1, COUNT as usize);
    assert!(sender.records.first().is_some_and(|record| record.resent));
}

#[test]
fn repeated_acknowledgements_visit_few_records() {
    let mut sender = full();
    for segment in (1..COUNT).step_by(2) {
        let now = arrival(segment);
        selective(&mut sender, now, segment..segment + 1);
        resend(&mut sender, now);
    }
    let fates = |sender: &Sender| sender.records.iter().map(|r| r.fate).collect::<Vec<_>>();
    let (now, before) = (arrival(COUNT), fates(&sender));
    assert!(before.contains(&Fate::Flying) && before.contains(&Fate::Sacked));
    selective(&mut sender, now, COUNT - 1..COUNT);
    for segment in (1..COUNT).step_by(2) {
        let visits = selective(&mut sender, now, segment..segment + 1);
        assert!(visits <= MAX_VISITS, "{visits} visits at segment {segment}");
    }
    assert_eq!(fates(&sender), before);
}

//! Messages that are refused: the Terminate, and the outcome at the other end.
//!
//! Shows: iwarp

use vrnic_iwarp::rdmap::work::{Immediate, Outcome, Rejected, Work, WorkRequest};
use vrnic_iwarp::stream::close::State;
use vrnic_iwarp::stream::{Config, Event};
use vrnic_iwarp::tcp::Then;
use vrnic_iwarp::wire::ddp::{Header, Model, Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{AtomicOp, Opcode, ReadRequest, SendKind};
use vrnic_iwarp::wire::terminate::Cause;

use crate::host::{ALL, ONE_TOUCH, READ_ONLY};
use crate::pipe::Pair;
use crate::raw::Raw;

fn place(stag: Stag, to: u64) -> Tagged {
    Tagged { stag, to }
}

/// Posts a work request that is refused. Returns the cause and the outcome.
fn refused(work: Work, length: u32) -> (Cause, Outcome) {
    let mut pair = Pair::new(3, Config::default(), Config::default());
    pair.ends[1].receive(0x1_0000, 100);
    let id = pair.ends[0].post(work, 0, length);
    pair.run();
    let sent = pair.ends[1].events.iter().find_map(|event| match event {
        Event::TerminateSent(cause) => Some(*cause),
        _ => None,
    });
    let received = pair.ends[0].events.iter().find_map(|event| match event {
        Event::TerminateReceived(report) => Some(report.cause()),
        _ => None,
    });
    assert_eq!(sent, received);
    let [(done, outcome)] = pair.ends[0].outcomes()[..] else { panic!("one completion") };
    assert_eq!(done, id);
    (sent.expect("a Terminate"), outcome)
}

#[test]
fn each_refusal_has_its_cause_and_its_outcome() {
    let access = Outcome::RemoteAccess;
    let write = |stag, to| Work::Write(place(stag, to));
    assert_eq!(refused(write(Stag(1), 0), 9), (Cause::TaggedInvalidStag, access));
    assert_eq!(refused(write(ALL, 1 << 18), 9), (Cause::TaggedBounds, access));
    assert_eq!(refused(write(ALL, u64::MAX), 9), (Cause::TaggedWrap, access));
    assert_eq!(refused(write(READ_ONLY, 0), 9), (Cause::Rights, access));
    let read = |stag, to| Work::Read { sink: place(Stag(9), 0), source: place(stag, to) };
    assert_eq!(refused(read(Stag(1), 0), 9), (Cause::InvalidStag, access));
    assert_eq!(refused(read(ALL, 1 << 18), 9), (Cause::Bounds, access));
    assert_eq!(refused(read(ALL, u64::MAX), 9), (Cause::Wrap, access));
    let send = Work::Send(SendKind::default());
    assert_eq!(refused(send, 101), (Cause::TooLong, Outcome::RemoteInvalidRequest));
}

/// RFC 7306 is not negotiated. The TCP of a peer without it, such as Linux siw, acknowledges octets
/// before the peer checks them.
#[test]
fn a_peer_that_does_not_know_an_operation_makes_it_fail() {
    let add = Work::Atomic(place(ALL, 8), AtomicOp::FetchAdd { add: 1, mask: 0 });
    let immediate = Work::WriteImmediate(place(ALL, 8), Immediate::default());
    for (seed, work) in (0..40).flat_map(|seed| [(seed, add), (seed, immediate)]) {
        let config = Config { extensions: true, ..Config::default() };
        let mut pair = Pair::new(seed, config, Config::default());
        (pair.eager, pair.compares) = (true, false);
        let write = Work::Write(place(ALL, 0));
        let read = Work::Read { sink: place(Stag(9), 0), source: place(ALL, 0) };
        for (work, length) in [(write, 100), (read, 5000), (work, 8), (write, 100)] {
            pair.ends[0].post(work, 0, length);
        }
        pair.run();
        assert!(pair.ends[1].events.contains(&Event::TerminateSent(Cause::Opcode)));
        let outcomes = pair.ends[0].outcomes();
        let failed = (2, Outcome::RemoteInvalidRequest);
        let read = outcomes.get(1).map(|(_, outcome)| *outcome);
        assert_eq!(outcomes.len(), 4, "{work:?}: {outcomes:?}");
        assert_eq!(outcomes[0], (0, Outcome::Success), "{work:?}");
        // The peer may not have answered the READ yet.
        assert!(matches!(read, Some(Outcome::Success | Outcome::Flushed)), "{work:?}: {read:?}");
        assert_eq!(outcomes[2..], [failed, (3, Outcome::Flushed)], "{work:?}");
    }
}

#[test]
fn a_key_that_cannot_be_invalidated() {
    let mut pair = Pair::new(3, Config::default(), Config::default());
    pair.ends[1].receive(0x1_0000, 100);
    pair.ends[1].ram.invalid.push(Stag(5));
    let kind = SendKind { solicited: false, invalidate: Some(Stag(5)) };
    pair.ends[0].post(Work::Send(kind), 0, 10);
    pair.run();
    assert!(pair.ends[1].events.contains(&Event::TerminateSent(Cause::CannotInvalidate)));
    assert_eq!(pair.ends[0].outcomes(), [(0, Outcome::RemoteAccess)]);
}

#[test]
fn a_send_without_a_receive_ends_after_its_timeout() {
    let mut pair = Pair::new(3, Config::default(), Config::default());
    pair.ends[0].post(Work::Send(SendKind::default()), 0, 10);
    pair.resumes = false;
    pair.run();
    assert!(pair.ends[1].stream.waits_for_receive());
    assert!(pair.ends[0].completions.is_empty());
    pair.ends[1].stream.receive_timed_out();
    pair.run();
    assert!(pair.ends[1].events.contains(&Event::TerminateSent(Cause::NoBuffer)));
    // TCP may have acknowledged the SEND before, so its outcome is not determined.
    let reported = pair.ends[0].events.iter().any(|event| match event {
        Event::TerminateReceived(report) => report.cause() == Cause::NoBuffer,
        _ => false,
    });
    assert!(reported, "{:?}", pair.ends[0].events);
    assert_eq!(pair.ends[0].completions.len(), 1);
}

#[test]
fn work_that_cannot_be_sent_is_not_taken() {
    let mut config = Config { capacity: 1, ..Config::default() };
    config.wishes.ord = 0;
    let mut pair = Pair::new(3, config, Config::default());
    let mut push = |work, length| {
        let request = WorkRequest { id: 0, work, length, signaled: true, fence: false };
        pair.ends[0].stream.push(request)
    };
    let read = Work::Read { sink: place(ALL, 0), source: place(ALL, 0) };
    let write = Work::Write(place(ALL, 0));
    assert_eq!(push(read, 1), Err(Rejected::Operation));
    assert_eq!(
        push(Work::WriteImmediate(place(ALL, 0), Immediate::default()), 1),
        Err(Rejected::Operation)
    );
    assert_eq!(push(write, (1 << 31) + 1), Err(Rejected::Length));
    assert_eq!(push(write, 1), Ok(()));
    assert_eq!(push(write, 1), Err(Rejected::Full));
}

#[test]
fn a_read_that_was_posted_before_the_agreement_fails_if_that_permits_none() {
    let mut config = Config::default();
    config.wishes.ird = 0;
    let mut pair = Pair::new(3, Config::default(), config);
    let read = Work::Read { sink: place(ALL, 0), source: place(ALL, 0) };
    pair.ends[0].post(read, 0, 1);
    pair.run();
    assert_eq!(pair.ends[0].outcomes(), [(0, Outcome::RemoteOperational)]);
    assert_eq!(pair.ends[0].stream.state(), State::Error);
}

fn read(size: u32) -> ReadRequest {
    ReadRequest { sink: place(Stag(1), 0), size, source: place(ALL, 0) }
}

#[test]
fn more_reads_than_agreed_are_refused() {
    let mut raw = Raw::new(false);
    for msn in 1..=2 {
        let then = raw.untagged(Opcode::ReadRequest, msn, 0, read(10).octets().octets());
        assert_eq!(then, Then::Acknowledge);
    }
    raw.untagged(Opcode::ReadRequest, 3, 0, read(10).octets().octets());
    assert_eq!(raw.cause(), Cause::CatastrophicStream);
}

#[test]
fn numbers_and_offsets_have_to_be_those_that_come_next() {
    let sends: [(u32, u32); 3] = [(2, 0), (1, 8), (0, 0)];
    for ((msn, mo), cause) in
        sends.into_iter().zip([Cause::MsnRange, Cause::MessageOffset, Cause::MsnRange])
    {
        let mut raw = Raw::new(false);
        raw.pair.ends[1].receive(0x1_0000, 100);
        assert_eq!(raw.untagged(Opcode::Send, msn, mo, &[0; 20]), Then::Refuse);
        assert_eq!(raw.cause(), cause, "{msn} {mo}");
    }
    let mut raw = Raw::new(false);
    raw.untagged(Opcode::ReadRequest, 2, 0, read(10).octets().octets());
    assert_eq!(raw.cause(), Cause::MsnRange);
}

#[test]
fn segments_of_two_sends_are_not_mixed() {
    let mut raw = Raw::new(false);
    raw.pair.ends[1].receive(0x1_0000, 100);
    assert_eq!(raw.untagged(Opcode::Send, 1, 0, &[0; 8]), Then::Continue);
    raw.untagged(Opcode::SendSolicited, 1, 8, &[0; 8]);
    assert_eq!(raw.cause(), Cause::Opcode);
}

#[test]
fn a_response_that_nobody_asked_for() {
    let mut raw = Raw::new(false);
    let model = Model::Tagged(place(Stag(1), 0));
    let header = Header { last: true, control: Opcode::ReadResponse.control(), model };
    let fpdu = raw.fpdu(header, &[1; 10]);
    raw.deliver(&fpdu);
    assert_eq!(raw.cause(), Cause::Opcode);
}

#[test]
fn the_segments_of_a_write_name_one_stag() {
    let mut raw = Raw::new(false);
    let model = |stag| Model::Tagged(place(stag, 0x2_0000));
    let control = Opcode::Write.control();
    let first = raw.fpdu(Header { last: false, control, model: model(ONE_TOUCH) }, &[7; 8]);
    assert_eq!(raw.deliver(&first), Then::Continue);
    let last = raw.fpdu(Header { last: true, control, model: model(ALL) }, &[8; 8]);
    assert_eq!(raw.deliver(&last), Then::Refuse);
    assert_eq!(raw.cause(), Cause::TaggedInvalidStag);
    assert_eq!(raw.pair.ends[1].ram.octets[0x2_0000..0x2_0008], [7; 8]);
}

/// Shows: iwarp
#[test]
fn a_wrong_crc_is_asked_for_again_three_times() {
    let mut raw = Raw::new(true);
    let model = Model::Tagged(place(ALL, 0x2_0000));
    let header = Header { last: true, control: Opcode::Write.control(), model };
    let right = raw.fpdu(header, &[7; 40]);
    let mut wrong = right.clone();
    wrong[30] ^= 1;
    for _ in 0..3 {
        assert_eq!(raw.deliver(&wrong), Then::Refuse);
    }
    assert_eq!(raw.pair.ends[1].stream.state(), State::Rts);
    assert_eq!(raw.deliver(&right), Then::Acknowledge);
    assert_eq!(raw.pair.ends[1].ram.octets[0x2_0000..0x2_0028], [7; 40]);
    let next = raw.fpdu(header, &[8; 40]);
    let mut wrong = next.clone();
    wrong[30] ^= 1;
    for _ in 0..4 {
        assert_eq!(raw.deliver(&wrong), Then::Refuse);
    }
    assert_eq!(raw.cause(), Cause::Crc);
    assert_eq!(raw.pair.ends[1].ram.octets[0x2_0000..0x2_0028], [7; 40], "nothing was placed");
    assert_eq!(raw.pair.ends[1].stream.counters().crc_errors, 7);
}

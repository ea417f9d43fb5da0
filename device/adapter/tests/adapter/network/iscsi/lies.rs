//! Targets that lie. Memory stays as it was, and the connection lives unless its framing is lost.
//!
//! Shows: iscsi

use vrnic_abi::connection::{Ending, Stage};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_adapter::memory::tpt::Denied;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;

use super::rig::{
    BHS, MAX_BURST, MAX_RECEIVE, Pdu, READ, Rig, Told, WRITE, data_in, r2t, read10, response,
    write10,
};
use crate::network::streams::ends::{ending, reach};
use crate::network::streams::pattern;
use crate::network::toe::wait;

/// Returns an initiator with a READ and a WRITE of 8,192 bytes each, and their keys.
fn two_commands(digests: bool) -> (Rig, u32, u32) {
    let mut rig = Rig::new(1, Faults::default(), digests);
    rig.receives(0..24);
    rig.a.fill(0, &[0xee; 200_000]);
    rig.post(&read10(8192), &[rig.a.sge(0, 8192)], WRITE);
    let read = rig.heard().tag();
    rig.post(&write10(8192), &[rig.a.sge(100_000, 8192)], READ);
    let write = rig.heard().tag();
    (rig, read, write)
}

/// PDUs that fail a check go to the consumer with all of their bytes and the number of the check.
#[test]
fn pdus_that_fail_a_check_are_the_consumers() {
    let (mut rig, read, write) = two_commands(true);
    // The region of the buffers has a key too, and the next index is free.
    let (region, free) = (rig.a.key, ((write >> 8) + 1) << 8 | 1);
    let data = pattern(100, 1);
    let cases = [
        (data_in(write, 0, &data), Denied::Rights),
        (data_in(read, 8100, &data), Denied::Bounds),
        (data_in(read, u32::MAX, &data), Denied::Bounds),
        (data_in(read ^ 1, 0, &data), Denied::Stale),
        (data_in(region, 0, &data), Denied::Kind),
        (data_in(free, 0, &data), Denied::Invalid),
        (data_in(u32::MAX, 0, &data), Denied::Invalid),
        (r2t(read, 0, 100), Denied::Rights),
        (r2t(write, 8100, 100), Denied::Bounds),
        (r2t(write, 0, 0), Denied::Bounds),
        (r2t(write, u32::MAX, 2), Denied::Bounds),
        (r2t(write, 0, MAX_BURST + 1), Denied::Bounds),
        (r2t(write ^ 3, 0, 100), Denied::Stale),
        (r2t(region, 0, 100), Denied::Kind),
        (r2t(0, 0, 100), Denied::Invalid),
        (r2t(write, 0, 4).data(b"with data"), Denied::Bounds),
    ];
    let count = cases.len() as u64;
    for (pdu, why) in cases {
        rig.say(&pdu);
        rig.expect(&pdu, true, Told::Failed(why as u32));
    }
    assert!(rig.is_quiet(), "no Data-Out was sent");
    assert_eq!(rig.a.bytes(0, 200_000), vec![0xee; 200_000]);
    let counters = rig.counters();
    assert_eq!((counters.refused.get(), counters.whole.get()), (count, count));
    // The commands are as before.
    rig.say(&data_in(read, 0, &data));
    rig.expect(&data_in(read, 0, &data), false, Told::Executed(0, read));
    rig.say(&r2t(write, 0, 100));
    assert_eq!(rig.heard().data, vec![0xee; 100]);
    assert_eq!(rig.a.state(), State::Rts);
}

/// Responses that name no command of the QP are dropped, also the second one of a command.
#[test]
fn responses_without_a_command_are_dropped() {
    let (mut rig, read, write) = two_commands(true);
    let mut status_in = data_in(read ^ 1, 0, &pattern(64, 2));
    status_in.head[1] = 0x81;
    rig.say(&response(write));
    rig.expect(&response(write), true, Told::Ended(1, write));
    for pdu in [
        response(write),
        response(read ^ 1),
        response(rig.a.key),
        response(u32::MAX),
        response(0).data(&pattern(100, 3)),
        status_in,
        response(read).word(16, read + 0x100),
    ] {
        rig.say(&pdu);
    }
    rig.say(&response(read));
    rig.expect(&response(read), true, Told::Ended(0, read));
    assert_eq!(rig.counters().dropped.get(), 7);
    assert_eq!(rig.a.bytes(0, 200_000), vec![0xee; 200_000]);
}

/// The status of a Data-In counts although its data fails a check.
#[test]
fn a_bad_data_in_with_status_ends_its_command() {
    let (mut rig, read, _) = two_commands(false);
    let mut pdu = data_in(read, 8190, b"beyond");
    pdu.head[1] = 0x81;
    rig.say(&pdu);
    rig.expect(&pdu, true, Told::FailedEnd(0, read, Denied::Bounds as u32));
    assert_eq!(rig.a.bytes(0, 9000), vec![0xee; 9000]);
}

/// A target that answers before it has the data that it has asked for gets zeros for the rest, and
/// nothing of the buffer, which belongs to others then.
#[test]
fn an_early_response_ends_the_use_of_the_buffer() {
    let mut rig = Rig::new(3, Faults::default(), false);
    rig.receives(0..4);
    rig.a.fill(0, &[0xee; 60_000]);
    rig.post(&write10(60_000), &[rig.a.sge(0, 60_000)], READ);
    let key = rig.heard().tag();
    let ask = r2t(key, 0, 60_000);
    // Both arrive in one segment, so that no Data-Out is acknowledged before the response.
    rig.say_bytes(&[ask.bytes(false), response(key).bytes(false)].concat());
    rig.expect(&ask, true, Told::Executed(0, key));
    rig.expect(&response(key), true, Told::Ended(0, key));
    assert!(rig.is_quiet(), "the R2T is forgotten");
    // Once Data-Out PDUs are on their way, their lengths stay.
    rig.post(&write10(60_000), &[rig.a.sge(0, 60_000)], READ);
    let key = rig.heard().tag();
    rig.say(&r2t(key, 0, 60_000));
    let asked = rig.received();
    assert_eq!(status(&asked), Status::Success);
    rig.say(&response(key));
    rig.expect(&response(key), true, Told::Ended(1, key));
    let mut all = Vec::new();
    while all.len() < 60_000 {
        all.extend(rig.heard().data);
    }
    let real = all.iter().take_while(|byte| **byte == 0xee).count();
    assert!(all[real..].iter().all(|byte| *byte == 0), "{real} bytes of the buffer");
    assert_eq!(rig.counters().zeroed.get() > 0, real < 60_000);
    rig.send(&Pdu::new(0x40, 0x80, 3));
    assert_eq!(rig.heard().head[0], 0x40, "the stream is in step");
}

/// A flood of R2Ts: those that cannot wait are the consumer's.
#[test]
fn r2ts_are_answered_up_to_a_number() {
    let mut rig = Rig::new(4, Faults::default(), false);
    rig.a.fill(0, &pattern(65_536, 1));
    rig.post(&write10(65_536), &[rig.a.sge(0, 65_536)], READ);
    let key = rig.heard().tag();
    let flood: Vec<u8> = (0..400).flat_map(|_| r2t(key, 0, 65_536).bytes(false)).collect();
    rig.say_bytes(&flood);
    let mut told = Vec::new();
    for number in 0..400 {
        rig.receives(number..number + 1);
        told.push(rig.received().vendor_err.get());
    }
    assert!(told.iter().all(|why| [0, Denied::Full as u32].contains(why)));
    let served = told.iter().filter(|why| **why == 0).count();
    assert!((256..400).contains(&served), "{served} of 400");
    assert_eq!(rig.counters().refused.get(), 400 - served as u64);
}

/// Streams whose framing cannot be believed any more end, with a counter of the reason.
#[test]
fn malformed_pdus_end_the_stream() {
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(bool, Spoil, [u64; 3]); 5] = [
        (true, |bytes| bytes[9] ^= 1, [1, 0, 0]),
        (true, |bytes| bytes[BHS] ^= 0x80, [1, 0, 0]),
        (true, |bytes| bytes[BHS + 4 + 50] ^= 4, [0, 1, 0]),
        (false, |bytes| bytes[4] = 17, [0, 0, 1]),
        // More than the longest data that was agreed.
        (false, |bytes| bytes[6] = (MAX_RECEIVE >> 8) as u8, [0, 0, 1]),
    ];
    for (digests, spoil, counts) in cases {
        let (mut rig, read, _) = two_commands(digests);
        let mut bytes = data_in(read, 0, &pattern(99, 2)).bytes(digests);
        spoil(&mut bytes);
        rig.say_bytes(&bytes);
        let cqe = wait(&rig.cable, &mut rig.a, |a| a.recv_cq.poll());
        assert_eq!(status(&cqe), Status::WrFlushErr);
        assert_eq!(rig.a.state(), State::Err);
        reach(&rig.cable, &rig.a, Stage::Gone);
        assert_eq!(ending(&rig.a), Ending::Local);
        let counters = rig.counters();
        let found = [
            counters.header_digest_errors.get(),
            counters.data_digest_errors.get(),
            counters.too_long.get(),
        ];
        assert_eq!(found, counts);
        assert!(rig.cable.ga.drain_events().contains(&(Kind::QpRequestError, rig.a.qpn)));
        assert_eq!(rig.a.bytes(99, 8093), vec![0xee; 8093]);
    }
}

/// Data that does not fit into a receive is cut off and counted; its header must fit.
#[test]
fn receives_that_are_too_short() {
    let mut rig = Rig::new(5, Faults::default(), false);
    rig.a.post_recv(0, &[rig.a.sge(0, 60)]);
    rig.a.post_recv(1, &[rig.a.sge(100, 47)]);
    let pdu = Pdu::new(0x20, 0x80, u32::MAX).data(b"more than twelve bytes");
    rig.say(&pdu);
    let cqe = rig.received();
    assert_eq!(cqe.byte_len.get(), 60);
    assert_eq!(rig.a.bytes(48, 12), b"more than tw");
    assert_eq!(rig.counters().truncated.get(), 1);
    rig.say(&pdu);
    let cqe = wait(&rig.cable, &mut rig.a, |a| a.recv_cq.poll());
    assert_eq!(status(&cqe), Status::LocLenErr);
}

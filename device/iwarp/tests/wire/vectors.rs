//! Vectors of RFC 5044, and formats written out by hand.
//!
//! Shows: iwarp

use vrnic_iwarp::mpa::deframer::{Deframer, Found};
use vrnic_iwarp::mpa::framer::{Form, Fpdu, Framer};
use vrnic_iwarp::mpa::markers::Markers;
use vrnic_iwarp::tcp::{Budget, Share};
use vrnic_iwarp::wire::ddp::{Header, Model, Msn, Queue, Stag, Tagged};
use vrnic_iwarp::wire::rdmap::{
    AtomicOp, AtomicRequest, Body, Opcode, ReadRequest, Segment, SendKind,
};
use vrnic_iwarp::wire::terminate::{Cause, Report};

const FORM: Form = Form { crc: true, markers: Markers(true) };

/// Returns a SEND of 24 zeros, as in figures 5 and 6 of RFC 5044. They use opcode 3 with a reserved
/// bit of the version set.
fn figure(msn: u8) -> Vec<u8> {
    let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, msn, 0, 0, 0, 0];
    ulpdu.resize(42, 0);
    ulpdu
}

fn build(start: u64, ulpdu: &[u8]) -> Vec<u8> {
    let which = Fpdu { start, ulpdu: ulpdu.len() };
    let wire = which.wire(FORM.markers);
    let mut fpdu = vec![0xee; (wire.end - wire.start) as usize];
    let copy = |into: &mut [u8]| {
        into.copy_from_slice(ulpdu);
        Ok::<(), ()>(())
    };
    Framer::new(FORM).build(&which, &mut fpdu, copy).expect("no error");
    fpdu
}

#[test]
fn an_fpdu_behind_a_marker() {
    let fpdu = build(0, &figure(1));
    assert_eq!(fpdu[..8], [0, 0, 0, 0, 0, 0x2a, 0x41, 0x43]);
    assert_eq!(fpdu[fpdu.len() - 4..], [0x52, 0x23, 0x99, 0x83]);
}

#[test]
fn an_fpdu_around_a_marker() {
    let fpdu = build(508 - 20, &figure(2));
    assert_eq!(fpdu[20..24], [0, 0, 0, 0x14]);
    assert_eq!(fpdu[fpdu.len() - 4..], [0x84, 0x92, 0x58, 0x98]);
}

#[test]
fn a_marker_that_points_elsewhere_is_an_error() {
    let mut fpdu = build(0, &figure(1));
    fpdu[3] = 4;
    let crc = vrnic_iwarp::crc::octets(&fpdu[..48]);
    fpdu[48..].copy_from_slice(&crc);
    assert_eq!(Deframer::new(FORM).find(&fpdu), Err(Cause::MarkerOrLength));
}

#[test]
fn an_fpdu_that_was_not_passed_comes_again() {
    let fpdu = build(0, &figure(1));
    let mut deframer = Deframer::new(FORM);
    assert_eq!(deframer.find(&fpdu[..30]), Ok(Found::Nothing));
    assert!(!deframer.is_at_border());
    for _ in 0..2 {
        let found = deframer.find(&fpdu[30..]);
        assert_eq!(found, Ok(Found::Ulpdu { ulpdu: &figure(1), octets: 22 }));
    }
    deframer.pass();
    assert!(deframer.is_at_border());
    assert_eq!(deframer.find(&[0, 10, 1]), Err(Cause::MarkerOrLength), "shorter than a header");
}

#[test]
fn a_part_of_an_fpdu_without_memory_is_not_consumed() {
    let fpdu = build(0, &figure(1));
    let mut deframer = Deframer::new(FORM);
    deframer.use_budget(&Budget::new(0));
    assert_eq!(deframer.find(&fpdu[..30]), Ok(Found::NoMemory));
    assert!(deframer.is_at_border());
    let found = deframer.find(&fpdu);
    assert_eq!(found, Ok(Found::Ulpdu { ulpdu: &figure(1), octets: 52 }));
}

#[test]
fn no_memory_is_kept_for_long_fpdus_without_their_markers() {
    let ulpdu = [0x41; 20_000];
    let fpdu = build(0, &ulpdu);
    let mut deframer = Deframer::new(FORM);
    for _ in 0..2 {
        let found = deframer.find(&fpdu);
        assert_eq!(found, Ok(Found::Ulpdu { ulpdu: &ulpdu, octets: fpdu.len() }));
        assert!(deframer.kept() > 20_000);
        // The FPDU was not passed, and comes again.
        deframer.trim();
        assert_eq!(deframer.kept(), 0);
    }
}

#[test]
fn parts_of_fpdus_leave_an_eighth_of_the_memory_to_others() {
    let (fpdu, budget) = (build(0, &figure(1)), Budget::new(800));
    let mut deframers: Vec<_> = (0..100).map(|_| Deframer::new(FORM)).collect();
    let stored = |deframer: &mut Deframer| {
        deframer.use_budget(&budget);
        deframer.find(&fpdu[..30]) == Ok(Found::Nothing)
    };
    assert_eq!(deframers.iter_mut().map(stored).filter(|stored| *stored).count(), 23);
    assert_eq!(budget.free(), 110);
}

#[test]
fn a_part_of_an_fpdu_takes_what_it_needs_if_there_is_no_more() {
    let (fpdu, budget) = (build(0, &[0x41; 500]), Budget::new(1000));
    let mut deframer = Deframer::new(FORM);
    deframer.use_budget(&budget);
    assert_eq!(deframer.find(&fpdu[..200]), Ok(Found::Nothing));
    let mut other = Share::of(&budget);
    assert!(other.take(400));
    assert_eq!(deframer.find(&fpdu[200..250]), Ok(Found::Nothing));
    assert_eq!(budget.free(), 350);
}

#[test]
fn tagged_and_untagged_headers() {
    let at = Tagged { stag: Stag(0x0102_0304), to: 0x1112_1314_1516_1718 };
    let header = Header { last: true, control: Opcode::Write.control(), model: Model::Tagged(at) };
    let octets = header.octets();
    let expected = [0xc1, 0x40, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert_eq!(octets.octets(), expected);
    let model = Model::Untagged {
        invalidate: Stag(0xaabb_ccdd),
        queue: Queue::Send,
        msn: Msn(9),
        mo: 0x1_0000,
    };
    let control = Opcode::SendSolicitedInvalidate.control();
    let octets = Header { last: false, control, model }.octets();
    let expected = [0x01, 0x46, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0];
    assert_eq!(octets.octets(), expected);
    let kind = SendKind { solicited: true, invalidate: Some(Stag(0xaabb_ccdd)) };
    let body = Body::Send(kind, Msn(9), 0x1_0000, &[]);
    assert_eq!(Segment::parse(&expected, false), Ok(Segment { last: false, body }));
}

fn untagged(first: u8, opcode: u8, queue: u8) -> Vec<u8> {
    let mut ulpdu = vec![first, opcode, 0, 0, 0, 0, 0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0];
    ulpdu.resize(18 + 28, 0);
    ulpdu
}

#[test]
fn each_mistake_of_a_header_has_its_cause() {
    let cause = |ulpdu: &[u8]| Segment::parse(ulpdu, false).expect_err("it is malformed");
    assert_eq!(cause(&untagged(0x42, 0x41, 1)), Cause::UntaggedVersion);
    assert_eq!(cause(&[0xc0; 20]), Cause::TaggedVersion);
    assert_eq!(cause(&untagged(0x41, 0x01, 1)), Cause::RdmapVersion);
    assert_eq!(cause(&untagged(0x41, 0x4f, 1)), Cause::Opcode);
    assert_eq!(cause(&untagged(0x41, 0x41, 4)), Cause::QueueNumber);
    assert_eq!(cause(&untagged(0x41, 0x41, 0)), Cause::Opcode, "a READ in the queue of SENDs");
    assert_eq!(cause(&untagged(0xc1, 0x43, 0)), Cause::Opcode, "a tagged SEND");
    assert_eq!(cause(&untagged(0x41, 0x4a, 1)), Cause::Opcode, "an extension");
    assert_eq!(cause(&untagged(0x01, 0x41, 1)), Cause::TooLong, "a READ in two segments");
    assert_eq!(cause(&untagged(0x41, 0x41, 1)[..40]), Cause::MarkerOrLength);
    assert_eq!(cause(&[0xc1, 0x40, 0]), Cause::MarkerOrLength);
}

#[test]
fn requests_of_reads_and_atomics() {
    let place = |stag, to| Tagged { stag: Stag(stag), to };
    let read = ReadRequest { sink: place(1, 2), size: 3, source: place(4, 5) };
    let mut ulpdu = untagged(0x41, 0x41, 1);
    ulpdu[18..].copy_from_slice(read.octets().octets());
    let segment = Segment::parse(&ulpdu, false).expect("a request");
    assert_eq!(segment.body, Body::ReadRequest(Msn(1), read));
    let op = AtomicOp::CompareSwap { compare: 6, compare_mask: 7, swap: 8, swap_mask: 9 };
    for op in [op, AtomicOp::FetchAdd { add: 10, mask: 0 }] {
        let request = AtomicRequest { op, id: 11, word: place(12, 16) };
        let mut ulpdu = untagged(0x41, 0x4a, 1);
        ulpdu.truncate(18);
        ulpdu.extend_from_slice(request.octets().octets());
        assert_eq!(ulpdu.len(), 18 + 52);
        let segment = Segment::parse(&ulpdu, true).expect("a request");
        assert_eq!(segment.body, Body::AtomicRequest(Msn(1), request));
    }
}

#[test]
fn atomics_work_on_fields_and_on_chosen_bits() {
    let add = |add, mask| AtomicOp::FetchAdd { add, mask };
    assert_eq!(add(1, 0).apply(u64::MAX), 0);
    // Two fields of 32 bits: no carry from the lower field into the upper one.
    let mask = 0x8000_0000_8000_0000;
    assert_eq!(add(1, mask).apply(0x0000_0007_ffff_ffff), 0x0000_0007_0000_0000);
    assert_eq!(add(1 << 63, mask).apply(1 << 63), 0);
    let (compare, compare_mask, swap, swap_mask) = (0xab, 0xff, 0x1200, 0xff00);
    let swap = AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask };
    assert_eq!(swap.apply(0x77_99ab), 0x77_12ab);
    assert_eq!(swap.apply(0x77_99aa), 0x77_99aa);
}

#[test]
fn a_terminate_is_read_as_rfc_and_as_siw_write_it() {
    let mut ulpdu = untagged(0x41, 0x47, 2);
    ulpdu.truncate(18);
    ulpdu.extend_from_slice(&[0x11, 1, 0, 0]);
    let Ok(Segment { body: Body::Terminate(report), .. }) = Segment::parse(&ulpdu, false) else {
        panic!("a Terminate");
    };
    assert_eq!(report, Report { raw: [0x11, 1, 0, 0] });
    assert_eq!((report.cause(), report.cause_of_siw()), (Cause::TaggedBounds, Cause::TaggedBounds));
}

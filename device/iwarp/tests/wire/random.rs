//! Random messages and octets, cut at random.
//!
//! Shows: iwarp

use proptest::collection::vec;
use proptest::prelude::*;
use vrnic_iwarp::mpa::deframer::{Deframer, Found};
use vrnic_iwarp::mpa::framer::{Form, Fpdu, Framer};
use vrnic_iwarp::mpa::markers::Markers;
use vrnic_iwarp::wire::rdmap::Segment;
use vrnic_iwarp::wire::start::{self, Start};
use vrnic_iwarp::wire::terminate::Cause;

use crate::reference;

/// Frames ULPDUs one after the other.
fn frame(form: Form, ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let (mut framer, mut stream, mut start) = (Framer::new(form), Vec::new(), 0);
    for ulpdu in ulpdus {
        let which = Fpdu { start, ulpdu: ulpdu.len() };
        let wire = which.wire(form.markers);
        assert_eq!(wire.start as usize, stream.len());
        stream.resize(wire.end as usize, 0);
        let into = &mut stream[wire.start as usize..];
        framer
            .build(&which, into, |into| {
                into.copy_from_slice(ulpdu);
                Ok::<(), ()>(())
            })
            .expect("no error");
        start = which.end();
    }
    stream
}

/// Deframes a stream that is cut into pieces. Returns the ULPDUs and the error.
fn deframe(form: Form, stream: &[u8], seed: u64) -> (Vec<Vec<u8>>, Option<Cause>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut deframer, mut found, mut taken) = (Deframer::new(form), Vec::new(), 0);
    while taken < stream.len() {
        let max_step = if rng.bool() { 8 } else { 3000 };
        let end = stream.len().min(taken + rng.usize(1..=max_step));
        match deframer.find(&stream[taken..end]) {
            Ok(Found::Nothing) => taken = end,
            Ok(Found::NoMemory) => panic!("no budget limits it"),
            Ok(Found::Ulpdu { ulpdu, octets }) => {
                assert!(octets <= end - taken);
                // Some ULPDUs are found again before they are taken.
                if rng.u8(..4) > 0 {
                    found.push(ulpdu.to_vec());
                    deframer.pass();
                    taken += octets;
                }
            }
            Err(cause) => return (found, Some(cause)),
        }
    }
    (found, None)
}

fn forms() -> impl Strategy<Value = Form> {
    (any::<bool>(), any::<bool>()).prop_map(|(crc, on)| Form { crc, markers: Markers(on) })
}

proptest! {
    #[test]
    fn what_is_framed_is_found(
        form in forms(),
        ulpdus in vec(vec(any::<u8>(), 14..2000), 1..8),
        seed: u64,
    ) {
        let stream = frame(form, &ulpdus);
        prop_assert_eq!(deframe(form, &stream, seed), (ulpdus.clone(), None));
        let decoded = reference::decode(&stream, form.markers.0, form.crc);
        prop_assert_eq!(decoded, (ulpdus, false));
    }

    #[test]
    fn damage_is_found_as_the_reference_finds_it(
        form in forms(),
        ulpdus in vec(vec(any::<u8>(), 14..600), 1..8),
        (place, bit) in (any::<prop::sample::Index>(), 0..8_u8),
        seed: u64,
    ) {
        let mut stream = frame(form, &ulpdus);
        let at = place.index(stream.len());
        stream[at] ^= 1 << bit;
        let (found, error) = deframe(form, &stream, seed);
        let (expected, wrong) = reference::decode(&stream, form.markers.0, form.crc);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(error.is_some(), wrong);
        prop_assert!(!form.crc || found.iter().zip(&ulpdus).all(|(found, sent)| found == sent));
    }

    #[test]
    fn any_octets_are_parsed_or_refused(
        form in forms(),
        octets in vec(any::<u8>(), 0..400),
        seed: u64,
    ) {
        let _ = Segment::parse(&octets, true);
        let _ = Start::parse(&octets);
        let _ = start::length(&octets);
        let _ = deframe(form, &octets, seed);
    }

    #[test]
    fn start_frames_are_read_as_they_were_written(
        key in any::<bool>(),
        flags: u8,
        revision in 0..4_u8,
        private in vec(any::<u8>(), 0..600),
    ) {
        let mut octets =
            if key { b"MPA ID Req Frame".to_vec() } else { b"MPA ID Rep Frame".to_vec() };
        octets.extend([flags, revision]);
        octets.extend((private.len() as u16).to_be_bytes());
        octets.extend(&private);
        if let Ok(start) = Start::parse(&octets) {
            let again = start.octets();
            // Reserved bits, and the reject bit of a request, are not kept.
            prop_assert_eq!(&again.octets()[17..], &octets[17..]);
            prop_assert_eq!(Start::parse(again.octets()), Ok(start));
        } else {
            let enhanced = revision == 2 && flags & 0x10 != 0 && private.len() < 4;
            prop_assert!(private.len() > 512 || !(1..3).contains(&revision) || enhanced);
        }
    }
}

//! Hostile bytes and packets: random bytes for the parsers, random packets in each state of a
//! connection.
//!
//! Shows: hostile
//!
//! All events follow from bytes, which come from seeds here and from libFuzzer in `fuzz/`.
//! `VRNIC_CASES` sets the number of packets, `VRNIC_SEED` the first seed.
//!
//! | module | contents |
//! | --- | --- |
//! | [`choices`] | packets and decisions from bytes |
//! | [`frames`] | random bytes for the parsers |
//! | [`end`] | one end of a connection, with conditions that always hold |
//! | [`states`] | random packets in each state |

mod choices;
mod end;
mod frames;
mod states;

use vrnic_packet::ethernet::HEADER_LEN;

use crate::choices::Choices;
use crate::end::Events;

/// Bytes of a case.
const CASE: usize = 2000;

/// Number of packets that a test processes.
const PACKETS: u64 = 10_000_000;

#[test]
fn any_packet_in_any_state() {
    let mut events = Events::new();
    vrnic_cases::bytes(PACKETS, CASE, |bytes| states::any_packets(bytes, &mut events));
    println!("{events:?}");
    let missing: Vec<_> = events.iter().filter(|(_, count)| **count == 0).collect();
    // If the caller ends each request at once, it is never busy.
    if vrnic_cases::count(PACKETS) >= 1_000_000 {
        assert_eq!(missing, [(&"busy", &0)], "these do not happen");
    }
}

#[test]
fn any_bytes_for_the_parsers() {
    vrnic_cases::bytes(PACKETS, CASE, |bytes| {
        frames::any_bytes(bytes);
        let mut choices = Choices(bytes);
        let mut frames = 1;
        while !choices.is_empty() {
            frames::changed_frame(&mut choices);
            frames += 1;
        }
        frames
    });
}

/// Frames of rxe, each cut at every length, and with each bit of its headers changed and the CRC
/// corrected.
#[test]
fn known_frames_with_any_change() {
    let digit = |letter: u8| char::from(letter).to_digit(16).expect("a digit") as u8;
    for line in include_str!("../wire/rxe.hex").lines() {
        let (pairs, _) = line.as_bytes().as_chunks::<2>();
        let frame: Vec<u8> = pairs.iter().map(|[a, b]| digit(*a) << 4 | digit(*b)).collect();
        assert!(frames::any_bytes(&frame));
        for length in 0..frame.len() {
            assert!(!frames::any_bytes(&frame[..length]), "cut at {length}");
        }
        for bit in 0..frame.len().min(80) * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            frames::repair(&mut changed[HEADER_LEN..]);
            frames::any_bytes(&changed);
        }
    }
}

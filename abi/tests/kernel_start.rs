// SPDX-License-Identifier: GPL-2.0
//! The part of the kernel module that reads the start frames of MPA, which any host that can
//! connect may send, in any pieces.
//!
//! Shows: hostile: start frames of any bytes, in the kernel module

extern crate vrnic_abi as abi;

use abi::connection::{PRIVATE_MAX, START_HEADER, START_MAX};
use start_fields::{ENHANCED, Header, Malformed, REJECT, REPLY_KEY, REQUEST_KEY, length, rejected};

#[path = "../../driver/iwarp/start_fields.rs"]
mod start_fields;

/// The largest number of READs of these tests.
const DEPTH: u8 = 32;

/// Returns a frame of these fields.
fn frame(key: &[u8], fixed: [u8; 2], len: usize, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(len).expect("a length").to_be_bytes();
    [key, &fixed, &len, data].concat()
}

/// Receives a request as the module does: it asks for the bytes that are missing, and gets some of
/// them. Returns the complete request.
fn receive(sent: &[u8], mut piece: impl FnMut() -> usize) -> Result<&[u8], Malformed> {
    let mut len = 0;
    loop {
        let end = length(&sent[..len])?;
        assert!((len..=START_MAX).contains(&end), "{end} bytes after {len}");
        if end == len {
            return Ok(&sent[..len]);
        }
        len += piece().clamp(1, end - len);
    }
}

#[test]
fn right_requests_are_read_in_any_pieces() {
    for (fixed, data, said) in [
        ([ENHANCED, 2], &[0x80, 5, 0xc0, 7, 1, 2, 3][..], (5, 7, &[1, 2, 3][..])),
        // No number, and one that is too large.
        ([ENHANCED, 2], &[0x3f, 0xff, 0x01, 0x00], (DEPTH, DEPTH, &[])),
        // The first revision has no such words.
        ([ENHANCED, 1], &[0, 1, 0, 1, 9], (DEPTH, DEPTH, &[0, 1, 0, 1, 9])),
        ([0, 2], &[], (DEPTH, DEPTH, &[])),
    ] {
        let mut sent = frame(REQUEST_KEY, fixed, data.len(), data);
        let whole = sent.len();
        sent.extend([0x55; START_MAX]);
        for piece in [1, 3, 20, START_MAX] {
            let request = receive(&sent, || piece).expect("a right request");
            assert_eq!(request.len(), whole, "no byte beyond the request is taken");
            let read = start_fields::read(request, DEPTH).expect("a right request");
            assert_eq!((read.ird, read.ord, read.private), said);
        }
    }
}

#[test]
fn wrong_requests_are_refused() {
    let good = frame(REQUEST_KEY, [0, 2], 0, &[]);
    let mut other = good.clone();
    other[15] ^= 1;
    for wrong in [
        other,
        frame(REPLY_KEY, [0, 2], 0, &[]),
        frame(REQUEST_KEY, [0, 0], 0, &[]),
        frame(REQUEST_KEY, [0, 3], 0, &[]),
        frame(REQUEST_KEY, [0, 2], PRIVATE_MAX + 1, &[]),
        frame(REQUEST_KEY, [0, 2], u16::MAX.into(), &[]),
    ] {
        assert_eq!(length(&wrong), Err(Malformed), "{wrong:?}");
    }
    // The words about READs are missing, and there is more private data than the core passes on.
    for (fixed, len) in [([ENHANCED, 2], 3), ([0, 2], 256), ([ENHANCED, 2], 260)] {
        let wrong = frame(REQUEST_KEY, fixed, len, &vec![0; len]);
        assert_eq!(length(&wrong), Ok(wrong.len()));
        assert_eq!(start_fields::read(&wrong, DEPTH), Err(Malformed), "{len}");
    }
    assert_eq!(start_fields::read(&good[..19], DEPTH), Err(Malformed));
}

#[test]
fn replies_that_reject_have_their_private_data() {
    let reply = |flags, len, data: &[u8]| frame(REPLY_KEY, [flags, 2], len, data);
    assert_eq!(rejected(&reply(REJECT, 3, &[1, 2, 3])), Some(&[1, 2, 3][..]));
    assert_eq!(rejected(&reply(REJECT | ENHANCED, 6, &[0, 0, 0, 0, 8, 9])), Some(&[8, 9][..]));
    assert_eq!(rejected(&reply(0, 3, &[1, 2, 3])), None, "it accepts");
    for (flags, len) in [(REJECT, 4), (REJECT, 0xffff), (REJECT | ENHANCED, 3)] {
        assert_eq!(rejected(&reply(flags, len, &[1, 2, 3])), None, "{len} bytes are announced");
    }
    assert_eq!(rejected(&reply(REJECT, 0, &[])[..19]), None);
}

/// Bytes that are right in some fields, in any pieces, end within the longest frame or are refused.
///
/// Shows: hostile: start frames of any bytes, in the kernel module
#[test]
fn any_bytes_end_or_are_refused() {
    let mut complete = 0;
    vrnic_cases::bytes(20_000, 3 * START_MAX, |bytes| {
        let (head, rest) = bytes.split_at(START_HEADER);
        let mut frame = head.to_vec();
        let is_reply = head[0] & 1 != 0;
        if head[0] & 0xfe != 0 {
            frame[..16].copy_from_slice(if is_reply { REPLY_KEY } else { REQUEST_KEY });
        }
        frame[17] &= 3;
        if head[1] & 3 != 0 {
            frame[18] &= 1;
        }
        frame.extend(rest);
        let mut piece = 0;
        let pieces = || {
            piece = (piece + 1) % rest.len();
            usize::from(rest[piece])
        };
        if let Ok(request) = receive(&frame, pieces) {
            complete += 1;
            assert!(Header::parse(request, REQUEST_KEY).is_some(), "its reply needs them");
            if let Ok(said) = start_fields::read(request, DEPTH) {
                assert!(said.private.len() <= 255 && said.private.len() <= request.len());
                assert!(said.ird <= DEPTH && said.ord <= DEPTH);
            }
        }
        let cut = usize::from(head[2]) + usize::from(head[3]);
        if let Some(private) = rejected(frame.get(..cut).unwrap_or(&frame)) {
            assert!(private.len() + START_HEADER <= cut);
        }
        1
    });
    assert!(complete > 0, "no request was right");
}

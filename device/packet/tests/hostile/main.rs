//! Random bytes for the parsers of headers, and for what cuts joined frames.
//!
//! Shows: hostile
//!
//! Frames are made of bytes, which come from seeds here and from libFuzzer in `fuzz/`.

mod frames;

/// Bytes from which a frame is made.
const LEN: usize = 120;

/// Headers are found within the frame, and all ways to read them agree. So do the parts of a frame
/// that is cut shorter afterwards.
#[test]
fn any_frame_has_its_headers_within_it() {
    let mut whole = 0_u64;
    vrnic_cases::bytes(200_000, LEN, |bytes| {
        for frame in [frames::random(bytes), &frames::likely(bytes)] {
            whole += u64::from(frames::has_headers(frame));
        }
        1
    });
    assert!(whole > 0, "no frame was whole");
}

/// A frame that is cut becomes frames with right headers and the same data.
#[test]
fn any_frame_is_cut_into_right_ones() {
    let mut cut = 0_u64;
    vrnic_cases::bytes(200_000, LEN, |bytes| {
        cut += u64::from(frames::is_cut(&frames::likely(bytes), bytes[1].into()));
        1
    });
    assert!(cut > 0, "no frame was cut into several");
}

/// The checksums of a frame are right once they are completed, and nothing else has changed.
#[test]
fn any_frame_gets_right_checksums() {
    let mut right = 0_u64;
    vrnic_cases::bytes(200_000, LEN, |bytes| {
        right += u64::from(frames::is_completed(&frames::likely(bytes)));
        1
    });
    assert!(right > 0, "no frame had checksums");
}

//! Any bytes for the parsers of headers, and for what cuts and completes frames.
//!
//! | module | contents |
//! | --- | --- |
//! | [`frames`] | frames of random bytes, and what is true of each of them |
#![no_main]
#![allow(dead_code)]

#[path = "../../tests/hostile/frames.rs"]
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let segment = bytes.get(1).copied().unwrap_or_default().into();
    for frame in [bytes, &frames::likely(bytes)] {
        frames::has_headers(frame);
        frames::is_cut(frame, segment);
        frames::is_completed(frame);
    }
});

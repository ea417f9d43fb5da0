//! Any bytes for the parser, and any segment in any state of a connection.
//!
//! | module | contents |
//! | --- | --- |
//! | [`host`] | one end of a connection, with conditions that always hold |
//! | [`pair`] | two ends and the link between them |
//! | [`hostile`] | any segment in any state |
#![no_main]
#![allow(dead_code)]

#[path = "../../tests/stream/host.rs"]
mod host;
#[path = "../../tests/stream/hostile.rs"]
mod hostile;
#[path = "../../tests/stream/pair.rs"]
mod pair;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = vrnic_tcp::wire::Frame::parse(bytes);
    hostile::any_segments(bytes);
});

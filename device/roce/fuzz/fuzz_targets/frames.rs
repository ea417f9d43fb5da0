//! Any bytes for the parsers.
//!
//! | module | contents |
//! | --- | --- |
//! | [`choices`] | packets and decisions from bytes |
//! | [`frames`] | any bytes for the parsers |
#![no_main]
#![allow(dead_code)]

#[path = "../../tests/hostile/choices.rs"]
mod choices;
#[path = "../../tests/hostile/frames.rs"]
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    frames::any_bytes(bytes);
    frames::changed_frame(&mut choices::Choices(bytes));
});

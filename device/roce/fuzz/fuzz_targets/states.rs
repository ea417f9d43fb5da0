//! Any packet in any state of a connection.
//!
//! | module | contents |
//! | --- | --- |
//! | [`choices`] | packets and decisions from bytes |
//! | [`frames`] | any bytes for the parsers |
//! | [`end`] | one end of a connection, with conditions that always hold |
//! | [`states`] | any packet in any state |
#![no_main]
#![allow(dead_code)]

#[path = "../../tests/hostile/choices.rs"]
mod choices;
#[path = "../../tests/hostile/end.rs"]
mod end;
#[path = "../../tests/hostile/frames.rs"]
mod frames;
#[path = "../../tests/hostile/states.rs"]
mod states;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    states::any_packets(bytes, &mut end::Events::new());
});

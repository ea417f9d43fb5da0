//! Bindings of the public headers of libibverbs and librdmacm, generated at build time.
#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    dead_code,
    rust_2018_idioms,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::cast_lossless,
    clippy::ptr_cast_constness
)]

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));

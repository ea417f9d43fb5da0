// SPDX-License-Identifier: GPL-2.0
//! The C types and functions of the RDMA core, and a few others that the kernel's own bindings
//! lack, generated at build time from the headers of the kernel that the module is built for (see
//! Kbuild). Types that the kernel's own bindings have come from there.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unknown_lints,
    unnecessary_transmutes,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

pub use kernel::bindings::*;
use kernel::ffi;

include!(env!("VRNIC_BINDINGS"));

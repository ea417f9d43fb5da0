// SPDX-License-Identifier: GPL-2.0
//! The C functions of `helpers.h`, generated at build time (see Kbuild). The types that they refer
//! to come from the clients' bindings.

#![allow(
    clippy::all,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unreachable_pub,
    unused_imports
)]

use kernel::ffi;

use crate::kclient::bindings::*;

include!(env!("VRNIC_BINDINGS"));

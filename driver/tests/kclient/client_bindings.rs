// SPDX-License-Identifier: GPL-2.0
//! The C functions of a client's own `helpers.h`, generated at build time (see Kbuild): a module of
//! each client that has some. The types that they refer to come from the clients' bindings.

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

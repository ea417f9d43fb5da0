// SPDX-License-Identifier: GPL-2.0
//! A kernel client of the vrnic driver, which tests what user space cannot reach: rings that the
//! driver itself posts to and polls, the region of all memory, completion handlers.
//!
//! Loading runs the tests on every vrnic device, each against itself; loading fails if a test fails
//! or there is no device. The kernel log says which. With `hold=1` the first device's adapter must
//! die after that, and the log has the result when the device goes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`run`] | the order of the tests of a device |
//! | [`address`] | test: address handles |
//! | [`data`] | test: SEND, WRITE, READ, atomics, errors |
//! | [`registration`] | test: fast registration and invalidation |
//! | [`process`] | test: kernel threads cannot register memory of a process |
//! | [`arming`] | test: a request for an event is not taken back by another one |
//! | [`handlers`] | test: handlers of a completion queue run one at a time, outside of methods |
//! | [`holding`] | test: a completion queue that is full holds completions back |
//! | [`options`] | test: the options of `direct.h` for queue pairs and registrations |
//! | [`death`] | test: requests outstanding when the adapter dies, and those posted later |
//! | [`sides`] | two queue pairs of a device, connected to each other |
//! | [`check`] | waiting for the outcome of requests, and logging failures |
//! | [`path`] | paths, GIDs and address handles |
//! | [`states`] | queue pairs: making them, and their states |
//! | [`watch`] | counts forbidden calls of completion handlers |
//!
//! `unsafe` is confined to [`arming`], [`path`], [`states`] and [`watch`], to
//! `handlers`' call of `watch`, to `holding`'s call of the driver, and to `data` and `sides`, which
//! get keys of all memory.

use kclient::{self, bindings, client::Registration};
use kernel::{prelude::*, str::CStr};

mod address;
mod arming;
mod check;
mod data;
mod death;
mod handlers;
mod holding;
mod options;
mod path;
mod process;
mod registration;
mod run;
mod sides;
mod states;
mod watch;

/// The owner of the core's objects.
const NAME: &CStr = c"vrnic_kverbs";

/// The module: a client, registered until it goes.
struct Module {
    _client: Registration<run::Tests>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let client = Registration::new()?;
        run::verdict()?;
        Ok(Self { _client: client })
    }
}

module! {
    type: Module,
    name: "vrnic_kverbs",
    authors: ["vrnic"],
    description: "Kernel client that tests the vrnic driver",
    license: "GPL v2",
    params: {
        hold: bool {
            default: false,
            description: "Keep requests outstanding, for an adapter that dies before its driver goes",
        },
    },
}

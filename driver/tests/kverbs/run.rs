// SPDX-License-Identifier: GPL-2.0
//! The tests of a device.

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use crate::{
    address, arming, data,
    death::Doomed,
    handlers::Handlers,
    holding,
    kclient::{
        attached::Attached,
        client::{Client, User},
    },
    module_parameters, options, process, registration,
    sides::Test,
};

/// Devices that were tested.
static DEVICES: Atomic<u32> = Atomic::new(0);
/// Devices for which a test failed.
static FAILURES: Atomic<u32> = Atomic::new(0);

/// The tests, as a user of devices.
pub(crate) struct Tests;

static CLIENT: Client<Tests> = Client::new();

impl User for Tests {
    type Held = Doomed;
    const NAME: &'static CStr = crate::NAME;

    fn client() -> &'static Client<Self> {
        &CLIENT
    }

    /// Tests a device that has come; what is returned waits for its adapter's death.
    fn come(device: Arc<Attached>) -> Result<Option<Doomed>> {
        let result = test(&device);
        DEVICES.fetch_add(1, Relaxed);
        if result.is_err() {
            FAILURES.fetch_add(1, Relaxed);
        }
        report(&device, "the kernel verbs test", &result);
        result
    }

    /// Ends what has waited until the device goes.
    fn go(device: Arc<Attached>, doomed: Doomed) {
        let result = doomed.check();
        drop(doomed);
        report(&device, "the kernel verbs test after death", &result);
    }
}

/// Returns whether all devices passed, and there was one.
///
/// # Errors
///
/// `ENODEV` if there was none, `EIO`.
pub(crate) fn verdict() -> Result {
    match (DEVICES.load(Relaxed), FAILURES.load(Relaxed)) {
        (0, _) => Err(ENODEV),
        (_, 0) => Ok(()),
        _ => Err(EIO),
    }
}

fn test(device: &Arc<Attached>) -> Result<Option<Doomed>> {
    let test = Test::new(device)?;
    named(address::run(&test), "address handles")?;
    named(data::run(&test), "data")?;
    named(registration::run(&test, device), "fast registration")?;
    named(process::run(&test.pd), "memory of a process")?;
    named(arming::run(&test, device), "requests for events")?;
    named(holding::run(&test, device), "a full completion queue")?;
    named(options::run(&test, device), "options of queue pairs and registrations")?;
    let handlers = named(Handlers::new(device), "completion handlers")?;
    named(handlers.check_alive(), "completion handlers")?;
    // A device that comes back after its adapter's death is not to die again.
    if !module_parameters::hold.value() || DEVICES.load(Relaxed) != 0 {
        return Ok(None);
    }
    named(Doomed::new(test, handlers), "requests that the adapter's death flushes").map(Some)
}

/// Returns the result of the test of `what`, and logs its failure.
fn named<T>(result: Result<T>, what: &str) -> Result<T> {
    result.inspect_err(|error| pr_err!("the test of {what} failed: {error:?}\n"))
}

/// Logs the result of all tests of a device.
fn report<T>(device: &Attached, tests: &str, result: &Result<T>) {
    let name = device.name();
    match result {
        Ok(_) => pr_info!("{name}: {tests} passed\n"),
        Err(error) => pr_err!("{name}: {tests} failed: {error:?}\n"),
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The tests of a device.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
};

use crate::{
    address, attached::Attached, data, death::Doomed, module_parameters, registration, sides::Test,
};

/// Devices that were tested.
static DEVICES: Atomic<u32> = Atomic::new(0);
/// Those of which a test failed.
static FAILURES: Atomic<u32> = Atomic::new(0);

/// Tests a device that has come; what is returned waits for its adapter's death.
pub(crate) fn come(device: Arc<Attached>) -> Result<Option<Doomed>> {
    let result = test(&device);
    DEVICES.fetch_add(1, Relaxed);
    if result.is_err() {
        FAILURES.fetch_add(1, Relaxed);
    }
    pr_info!("{}: kernel verbs test: {}\n", device.name(), errno(&result));
    result
}

/// Ends what has waited until the device goes.
pub(crate) fn go(device: Arc<Attached>, doomed: Doomed) {
    let result = doomed.check();
    drop(doomed);
    pr_info!("{}: kernel verbs test after death: {}\n", device.name(), errno(&result));
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
    told(address::run(&test), "address handles")?;
    told(data::run(&test), "data")?;
    told(registration::run(&test, device), "fast registration")?;
    // A device that comes back after its adapter's death is not to die again.
    if !module_parameters::hold.value() || DEVICES.load(Relaxed) != 0 {
        return Ok(None);
    }
    told(Doomed::new(test), "receives to be flushed").map(Some)
}

/// Says which part failed.
fn told<T>(result: Result<T>, what: &str) -> Result<T> {
    result.inspect_err(|error| pr_err!("{what}: {error:?}\n"))
}

fn errno<T>(result: &Result<T>) -> i32 {
    result.as_ref().err().map_or(0, |error| error.to_errno())
}

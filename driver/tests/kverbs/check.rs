// SPDX-License-Identifier: GPL-2.0
//! Waiting for the outcome of requests, and logging failures.

use kernel::{
    prelude::*,
    time::{Delta, Msecs, delay::fsleep, msecs_to_jiffies},
};

use crate::kclient::request::{Outcome, Request, Status};

/// Longest time for a request.
const TIMEOUT_MS: Msecs = 5000;

/// Waits for a request, which must end with `status`.
///
/// # Errors
///
/// `ETIMEDOUT` if it does not end, `EIO` if it ends otherwise; the log says so. `EINTR` when the
/// caller got a signal.
pub(crate) fn ends(request: &Request, status: Status, what: &str) -> Result<Outcome> {
    ends_within(request, TIMEOUT_MS, status, what)
}

/// Waits for the end of a request, for a time that the caller gives.
pub(crate) fn ends_within(
    request: &Request,
    timeout: Msecs,
    status: Status,
    what: &str,
) -> Result<Outcome> {
    has_ended(request.wait(msecs_to_jiffies(timeout))?, status, what)
}

/// Checks that a request is known to have ended with `status`.
///
/// # Errors
///
/// As for [`ends`].
pub(crate) fn has_ended(outcome: Option<Outcome>, status: Status, what: &str) -> Result<Outcome> {
    let outcome = outcome
        .ok_or(ETIMEDOUT)
        .inspect_err(|_| pr_err!("a request has not completed: {what}\n"))?;
    if outcome.status != status {
        let (got, vendor) = (outcome.status, outcome.vendor);
        pr_err!(
            "a request completed with {got:?} (vendor error {vendor:#x}), not {status:?}: {what}\n"
        );
        return Err(EIO);
    }
    Ok(outcome)
}

/// Checks that something is true.
///
/// # Errors
///
/// `EIO` if it is not; the log says so.
pub(crate) fn expect(ok: bool, what: &str) -> Result {
    if ok {
        return Ok(());
    }
    pr_err!("a check failed: {what}\n");
    Err(EIO)
}

/// Waits until something is true, as long as for a request.
///
/// # Errors
///
/// `EIO` if it does not become true; the log says so.
pub(crate) fn within_limit(what: &str, mut is_so: impl FnMut() -> bool) -> Result {
    for _ in 0..TIMEOUT_MS {
        if is_so() {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    expect(false, what)
}

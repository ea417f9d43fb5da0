// SPDX-License-Identifier: GPL-2.0
//! The end of a queue pair's address ranges.

use abi::{Qpn, RangeNumber, uverbs::range_mmap};
use kernel::prelude::*;

use super::{Ctx, Verbs};
use crate::{direct::ranges::Held, rdma::user::ucontext::User};

/// Frees the ranges of a process whose queue pair has been destroyed, as soon as no process has
/// them mapped any more. Without a `user` its context goes, and the mappings with it.
pub(super) fn release(ctx: &Ctx<'_>, held: &Held, user: Option<&User<'_, Verbs>>) {
    for range in held.ranges() {
        ctx.adapter.ranges().forget_memory(range);
        unmap(range, user);
    }
}

/// Takes a range from the queue pair of a process, if `end` succeeds, which checks the owner and
/// ends the transfer. The range is free when no process has it mapped any more.
pub(super) fn retire(
    ctx: &Ctx<'_>,
    qpn: Qpn,
    range: RangeNumber,
    user: &User<'_, Verbs>,
    end: impl FnOnce() -> Result,
) -> Result {
    ctx.adapter.ranges().retire(range, qpn, end)?;
    unmap(range, Some(user));
    Ok(())
}

/// Ends the permission of a process to map a range. The range is free when no process has it mapped
/// any more.
pub(super) fn unmap(range: RangeNumber, user: Option<&User<'_, Verbs>>) {
    if let (Some(offset), Some(user)) = (range_mmap(range), user) {
        user.context.remove_mapping(offset);
    }
}

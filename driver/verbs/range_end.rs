// SPDX-License-Identifier: GPL-2.0
//! The end of a queue pair's address ranges.

use abi::{Qpn, RangeNumber, direct::RANGES, uverbs::range_mmap};

use super::{Ctx, Verbs};
use crate::rdma::udata::User;

/// Takes all ranges from the queue pair of a kernel client, which has been destroyed.
pub(super) fn give_all_back(ctx: &Ctx<'_>, qpn: Qpn) {
    (0..RANGES).for_each(|range| ctx.adapter.ranges().give_back(range.into(), qpn));
}

/// Takes all ranges from the queue pair of a process, which has been destroyed. Without a `user`
/// its context goes, and the mappings with it.
pub(super) fn retire_all(ctx: &Ctx<'_>, qpn: Qpn, user: Option<&User<'_, Verbs>>) {
    for range in (0..RANGES).map(RangeNumber::new) {
        if ctx.adapter.ranges().is_of(range, qpn) {
            retire(ctx, qpn, range, user);
        }
    }
}

/// Takes a range from the queue pair of a process. It is free when nobody has it mapped any more.
pub(super) fn retire(ctx: &Ctx<'_>, qpn: Qpn, range: RangeNumber, user: Option<&User<'_, Verbs>>) {
    ctx.adapter.ranges().retire(range, qpn);
    if let (Some(offset), Some(user)) = (range_mmap(range), user) {
        user.context.remove_mapping(offset);
    }
}

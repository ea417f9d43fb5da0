// SPDX-License-Identifier: GPL-2.0
//! Memory windows. Processes bind them by work requests, of either type.

use abi::{
    Key,
    admin::{self, AllocMw, command},
};
use kernel::prelude::*;

use super::{Ctx, context::Pd};
use crate::rdma::mw::{MwType, NewMw};

/// The adapter's part of a window.
pub(crate) struct Mw {
    /// The first key; the adapter looks at its index alone.
    key: Key,
}

pub(super) fn alloc(ctx: &Ctx<'_>, pd: &Pd, kind: MwType) -> Result<NewMw<Mw>> {
    let kind = match kind {
        MwType::Type1 => admin::MwType::Type1,
        MwType::Type2 => admin::MwType::Type2,
    };
    let key = ctx.execute::<command::AllocMw>(&AllocMw::new(pd.pdn, kind))?;
    Ok(NewMw { rkey: key.get(), driver: Mw { key } })
}

pub(super) fn dealloc(ctx: &Ctx<'_>, mw: &Mw) -> Result {
    ctx.destroy::<command::DeallocMw>(&mw.key)
}

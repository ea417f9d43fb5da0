// SPDX-License-Identifier: GPL-2.0
//! Memory windows. Processes bind them by work requests, of either type.

use abi::{
    Key,
    admin::{self, AllocMw, command},
};
use kernel::prelude::*;

use crate::rdma::{
    self,
    memory::mw::{MwOperations, MwType, NewMw},
};
use crate::verbs::{Ctx, Verbs};

/// The adapter's part of a window.
pub(crate) struct Mw {
    /// The first key; the adapter looks only at its index.
    key: Key,
}

#[vtable]
impl MwOperations for Verbs {
    fn alloc_mw(ctx: &Ctx<'_>, pd: &rdma::pd::Pd<Self>, kind: MwType) -> Result<NewMw<Mw>> {
        let kind = match kind {
            MwType::Type1 => admin::MwType::Type1,
            MwType::Type2 => admin::MwType::Type2,
        };
        let key = ctx.execute::<command::AllocMw>(&AllocMw::new(pd.pdn, kind))?;
        Ok(NewMw { rkey: key.get(), driver: Mw { key } })
    }

    fn dealloc_mw(ctx: &Ctx<'_>, mw: &rdma::memory::mw::Mw<Self>) -> Result {
        ctx.destroy::<command::DeallocMw>(&mw.key)
    }
}

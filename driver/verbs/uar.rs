// SPDX-License-Identifier: GPL-2.0
//! The doorbell pages of a user context. It starts with one; when all slots of its pages are
//! taken it gets a further one.

use abi::{ContextId, UarIndex, admin::command, uar::SLOTS};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use super::Ctx;
use crate::rdma::user::mmap::IoArea;

/// A doorbell page of a context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uar {
    /// The page's number.
    pub(super) index: UarIndex,
    /// mmap offset of the page.
    pub(super) mmap: u64,
}

struct Page {
    uar: Uar,
    /// Slots in use.
    used: u32,
}

/// All doorbell pages of a context.
#[pin_data]
pub(super) struct UarSet {
    context: ContextId,
    #[pin]
    pages: Mutex<KVec<Page>>,
}

/// A slot taken in a page; given back on drop. The page stays with the context.
pub(super) struct TakenSlot {
    set: Arc<UarSet>,
    /// The page.
    pub(super) uar: Uar,
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        let mut pages = self.set.pages.lock();
        if let Some(page) = pages.iter_mut().find(|page| page.uar.index == self.uar.index) {
            page.used = page.used.saturating_sub(1);
        }
    }
}

impl UarSet {
    /// Returns the set of the context with this number, still empty.
    pub(super) fn new(context: ContextId) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self { context, pages <- new_mutex!(KVec::new(), "vrnic::UarSet") }),
            GFP_KERNEL,
        )
    }

    /// Takes a slot in a page that has a free one. `map` makes a new page mappable.
    pub(super) fn take_slot(
        self: &Arc<Self>,
        ctx: &Ctx<'_>,
        map: impl FnOnce(IoArea<'_>) -> Result<u64>,
    ) -> Result<TakenSlot> {
        let mut pages = self.pages.lock();
        let free = pages.iter_mut().find(|page| page.used < SLOTS);
        let uar = if let Some(page) = free {
            page.used += 1;
            page.uar
        } else {
            self.add_page(&mut pages, ctx, map, 1)?
        };
        Ok(TakenSlot { set: self.clone(), uar })
    }

    /// Adds the first page.
    pub(super) fn add_first(
        &self,
        ctx: &Ctx<'_>,
        map: impl FnOnce(IoArea<'_>) -> Result<u64>,
    ) -> Result<Uar> {
        self.add_page(&mut self.pages.lock(), ctx, map, 0)
    }

    /// Frees all pages, which no object uses any more.
    pub(super) fn free(&self, ctx: &Ctx<'_>) {
        let mut pages = self.pages.lock();
        while let Some(page) = pages.pop() {
            if let Err(error) = ctx.destroy::<command::FreeUar>(&page.uar.index) {
                dev_err!(ctx.dma(), "freeing UAR {:?} failed: {error:?}\n", page.uar.index);
            }
        }
    }

    fn add_page(
        &self,
        pages: &mut KVec<Page>,
        ctx: &Ctx<'_>,
        map: impl FnOnce(IoArea<'_>) -> Result<u64>,
        used: u32,
    ) -> Result<Uar> {
        pages.reserve(1, GFP_KERNEL)?;
        let index = ctx.execute::<command::AllocUar>(&self.context)?;
        let mut uar = Uar { index, mmap: 0 };
        ctx.complete::<command::FreeUar, _>(index, (), |()| {
            uar.mmap = map(ctx.adapter.uar_area(index)?)?;
            Ok(())
        })?;
        pages.push(Page { uar, used }, GFP_KERNEL)?;
        Ok(uar)
    }
}

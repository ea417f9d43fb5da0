// SPDX-License-Identifier: GPL-2.0
//! User contexts and protection domains.

use abi::{
    ContextId, Pdn,
    admin::{DeviceFeatures, command},
    uverbs::{ContextResp, Features, PdResp},
};
use kernel::{current, prelude::*, sync::Arc};

use super::{Ctx, Verbs, ctx::KERNEL_CONTEXT, uar::UarSet};
use crate::direct::quota::ContextQuotas;
use crate::rdma::{
    self,
    pd::PdOperations,
    port::attr::Protocol,
    user::ucontext::{NewUcontext, Ucontext, UcontextOperations, User},
    user::udata::Udata,
};

/// The adapter's part of a user context.
pub(crate) struct Context {
    /// The context's number.
    pub(super) id: ContextId,
    /// The context's doorbell pages.
    pub(super) uars: Arc<UarSet>,
    /// The address ranges and the device memory that it may still take.
    pub(super) quotas: ContextQuotas,
    /// The answer that the process was given, for others that import the context.
    answer: ContextResp,
}

/// The adapter's part of a protection domain.
pub(crate) struct Pd {
    /// The domain's number.
    pub(super) pdn: Pdn,
}

#[vtable]
impl UcontextOperations for Verbs {
    fn alloc_ucontext(
        ctx: &Ctx<'_>,
        new: &NewUcontext<'_, Self>,
        udata: &Udata<'_>,
    ) -> Result<Context> {
        udata.no_request()?;
        let quotas = ctx.adapter.quotas().open(current!().uid())?;
        let id = ctx.execute::<command::AllocContext>(&())?;
        let mut made = None;
        ctx.complete::<command::FreeContext, _>(id, (), |()| {
            let uars = UarSet::new(id)?;
            let answer = answer(ctx, new, udata, &uars).inspect_err(|_| uars.free(ctx))?;
            made = Some(Context { id, uars, quotas, answer });
            Ok(())
        })?;
        made.ok_or(EINVAL)
    }

    fn dealloc_ucontext(ctx: &Ctx<'_>, context: &Ucontext<Self>) {
        context.uars.free(ctx);
        if let Err(error) = ctx.destroy::<command::FreeContext>(&context.id) {
            dev_err!(ctx.dma(), "freeing context {:?} failed: {error:?}\n", context.id);
        }
    }

    /// Gives a process that imports the context the answer that the first one got.
    fn query_ucontext(_ctx: &Ctx<'_>, context: &Ucontext<Self>, udata: &Udata<'_>) -> Result {
        udata.no_request()?;
        udata.respond(&context.answer)
    }
}

/// Gives a new context its first doorbell page, and tells the process of it.
fn answer(
    ctx: &Ctx<'_>,
    new: &NewUcontext<'_, Verbs>,
    udata: &Udata<'_>,
    uars: &UarSet,
) -> Result<ContextResp> {
    let uar = uars.add_first(ctx, |area| new.add_mapping(area))?;
    let kick_mmap = new.add_mapping(ctx.adapter.kick_area()?)?;
    let caps = ctx.adapter.caps();
    // The adapter's clock has registers, from another begin than the system's.
    let mut features = Features::all().difference(Features::SYSTEM_CLOCK);
    features.set(Features::AWAIT, caps.has(DeviceFeatures::AWAIT));
    features.set(Features::HOLDING_CQ, caps.has(DeviceFeatures::HOLDING_CQ));
    features.set(Features::KEY_OPTIONS, caps.has(DeviceFeatures::KEY_OPTIONS));
    features.set(Features::RAW_PACKET, caps.has(DeviceFeatures::RAW_PACKET));
    features.set(Features::FLUSH, caps.has(DeviceFeatures::FLUSH));
    features.set(Features::NULL_KEY, caps.has(DeviceFeatures::NULL_KEY));
    features.set(Features::BLOCK_LOOPBACK, caps.has(DeviceFeatures::BLOCK_LOOPBACK));
    features.set(Features::SPREADS, ctx.has_work_queues());
    features.set(Features::RANGE_BLOCKS, ctx.adapter.has_blocks());
    let iwarp = ctx.adapter.protocol() == Protocol::Iwarp;
    features.set(Features::TOE, iwarp);
    features.set(Features::START_RDMA, iwarp);
    features.set(Features::ACKNOWLEDGED, caps.has(DeviceFeatures::ACKNOWLEDGED));
    features.set(Features::CONNECTION, iwarp && caps.has(DeviceFeatures::CLOSE_CONNECTION));
    let answer = ContextResp {
        abi_version: ctx.adapter.abi_version().into(),
        uar: uar.index,
        uar_mmap: uar.mmap.into(),
        kick_mmap: kick_mmap.into(),
        max_wr: caps.max_wr,
        max_sge: caps.max_sge,
        max_inline: caps.max_inline,
        max_cqe: caps.max_cqe,
        features: features.bits().into(),
        rings: 0.into(),
    };
    udata.respond(&answer)?;
    Ok(answer)
}

#[vtable]
impl PdOperations for Verbs {
    fn alloc_pd(ctx: &Ctx<'_>, user: Option<&User<'_, Self>>) -> Result<Pd> {
        if let Some(user) = user {
            user.data.no_request()?;
        }
        let context = user.map_or(KERNEL_CONTEXT, |user| user.context.id);
        let pdn = ctx.execute::<command::AllocPd>(&context)?;
        ctx.complete::<command::FreePd, _>(pdn, (), |()| match user {
            Some(user) => user.data.respond(&PdResp { pdn, ..PdResp::default() }),
            None => Ok(()),
        })?;
        Ok(Pd { pdn })
    }

    fn dealloc_pd(ctx: &Ctx<'_>, pd: &rdma::pd::Pd<Self>) -> Result {
        ctx.destroy::<command::FreePd>(&pd.pdn)
    }
}

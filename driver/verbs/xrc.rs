// SPDX-License-Identifier: GPL-2.0
//! XRC domains, and the targets in them: queue pairs that receive for the shared receive queues of
//! several processes, and may outlive the one that created them. So both are the kernel's.

use abi::{
    Cqn, Qpn, Xrcdn,
    admin::{CreateCq, CreateQp, NO_QUEUE, command},
    cq::CQE_LEN,
    qp::Type,
};
use kernel::{prelude::*, sync::Arc};

use super::{Ctx, Verbs, ctx::KERNEL_UAR, memory::pages::PageTable};
use crate::hw::ring::{Ring, RingShape};
use crate::rdma::{self, queues::qp::QpInit, queues::xrcd::XrcdOperations};

/// The adapter's part of an XRC domain.
pub(crate) struct Xrcd {
    /// The domain's number.
    pub(super) xrcdn: Xrcdn,
    /// The completion queue that its targets name: each must, though none completes there.
    cqn: Cqn,
    /// The ring of that completion queue.
    ring: Arc<Ring>,
}

#[vtable]
impl XrcdOperations for Verbs {
    fn alloc_xrcd(ctx: &Ctx<'_>) -> Result<Xrcd> {
        let ring = Ring::new(ctx.dma(), RingShape::with_room(1, CQE_LEN))?;
        let ring = Arc::new(ring, GFP_KERNEL)?;
        let table = PageTable::of_kernel_ring(ctx.dma(), &ring)?;
        let eqn = ctx.adapter.handlers().get(0)?.eqn;
        let result =
            ctx.execute::<command::CreateCq>(&CreateCq::new(KERNEL_UAR, eqn, 0, table.pages()))?;
        let this = Xrcd { xrcdn: Xrcdn::default(), cqn: result.cqn, ring };
        ctx.complete::<command::DestroyCq, _>(result.cqn, this, |this| {
            this.xrcdn = ctx.execute::<command::AllocXrcd>(&())?;
            Ok(())
        })
    }

    fn dealloc_xrcd(ctx: &Ctx<'_>, xrcd: &rdma::queues::xrcd::Xrcd<Self>) -> Result {
        ctx.destroy::<command::FreeXrcd>(&xrcd.xrcdn)?;
        if let Err(error) = ctx.destroy::<command::DestroyCq>(&xrcd.cqn) {
            ctx.hold::<command::DestroyCq, _>(&xrcd.cqn, error, xrcd.ring.clone());
        }
        Ok(())
    }
}

/// Creates a target, which has no queues.
pub(super) fn create_target(ctx: &Ctx<'_>, init: &QpInit<'_, Verbs>) -> Result<Qpn> {
    let xrcd = init.xrcd().ok_or(EINVAL)?;
    let params = CreateQp {
        send_cqn: xrcd.cqn,
        recv_cqn: xrcd.cqn,
        uar: KERNEL_UAR,
        xrcdn: xrcd.xrcdn,
        // CAST: the enum's number.
        qp_type: Type::XrcTgt as u8,
        sq_log_size: NO_QUEUE,
        rq_log_size: NO_QUEUE,
        ..CreateQp::default()
    };
    Ok(ctx.execute::<command::CreateQp>(&params)?.qpn)
}

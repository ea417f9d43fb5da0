// SPDX-License-Identifier: GPL-2.0
//! XRC domains, and the targets in them: queue pairs that receive for the shared receive queues of
//! several processes, and may outlive the one that created them. So both are the kernel's.

use abi::{
    admin::{CreateCq, CreateQp, NO_QUEUE, NoParams, Opcode},
    cq::CQE_LEN,
    qp::Type,
};
use kernel::prelude::*;

use super::{
    Hca,
    hca::{Created, KERNEL_UAR},
    ops::Verbs,
    pages::PageTable,
    qp::{self, Queues},
};
use crate::rdma::{qp::QpInit, qp_attr::QpCap};
use crate::ring::Ring;

/// The adapter's part of an XRC domain.
pub(crate) struct Xrcd {
    /// Its number.
    pub(super) xrcdn: u32,
    /// The completion queue that its targets name: each must, though none completes there.
    cqn: u32,
    _ring: Ring,
}

pub(super) fn alloc(hca: &Hca<'_>) -> Result<Xrcd> {
    // CAST: log2 of a u32.
    let ring = Ring::new(hca.dma(), 0, CQE_LEN.trailing_zeros() as u8)?;
    let pages = PageTable::contiguous(ring.dma_address()).pages();
    let eqn = hca.nic.handlers().get(0)?.eqn;
    let result = hca.execute(Opcode::CreateCq, &CreateCq::new(KERNEL_UAR, eqn, 0, pages))?;
    let cq = hca.created(Opcode::DestroyCq, result.cqn.get());
    let result = hca.execute(Opcode::AllocXrcd, &NoParams::default())?;
    Ok(Xrcd { xrcdn: result.id.get(), cqn: cq.keep(), _ring: ring })
}

pub(super) fn dealloc(hca: &Hca<'_>, xrcd: &Xrcd) -> Result {
    hca.destroy(Opcode::FreeXrcd, xrcd.xrcdn)?;
    if let Err(error) = hca.destroy(Opcode::DestroyCq, xrcd.cqn) {
        dev_err!(hca.dma(), "destroying the CQ of XRC domain {} failed: {error:?}\n", xrcd.xrcdn);
    }
    Ok(())
}

/// Creates a target, which has no queues.
pub(super) fn create_target<'h, 'a>(
    hca: &'h Hca<'a>,
    init: &QpInit<'_, Verbs>,
) -> Result<(QpCap, Queues, Created<'h, 'a>)> {
    let xrcd = init.xrcd().ok_or(EINVAL)?;
    let params = CreateQp {
        send_cqn: xrcd.cqn.into(),
        recv_cqn: xrcd.cqn.into(),
        uar: KERNEL_UAR.into(),
        xrcdn: xrcd.xrcdn.into(),
        // CAST: the enum's number.
        qp_type: Type::XrcTgt as u8,
        sq_log_size: NO_QUEUE,
        rq_log_size: NO_QUEUE,
        ..CreateQp::default()
    };
    let (_, created) = qp::execute(hca, &params)?;
    Ok((QpCap::default(), Queues::Target, created))
}

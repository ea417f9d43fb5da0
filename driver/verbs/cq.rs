// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use abi::{
    admin::{CreateCq, ModifyCq, Opcode},
    cq::CQE_LEN,
    uverbs::{CqReq, CqResp},
};
use kernel::prelude::*;

use super::{Hca, hca::KERNEL_UAR, ops::Verbs, pages::PageTable, poll::KernelCq, uar::TakenSlot};
use crate::rdma::{
    self, Device,
    cq::{CqInit, Moderation},
    udata::User,
    umem::{Umem, Use},
};
use crate::ring::Ring;

/// The adapter's part of a completion queue.
pub(crate) struct Cq {
    /// Its number.
    pub(super) cqn: u32,
    /// The completion vector that it was bound to.
    vector: u32,
    /// Where its entries are.
    memory: Memory,
}

/// Whose ring it is.
enum Memory {
    /// A process polls it.
    User { _ring: Umem, _slot: TakenSlot },
    /// A kernel client polls it, through us.
    Kernel(Pin<KBox<KernelCq>>),
}

impl Cq {
    /// The queue as kernel clients use it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one that belongs to a process.
    pub(super) fn kernel(&self) -> Result<Pin<&KernelCq>> {
        match &self.memory {
            Memory::Kernel(queue) => Ok(queue.as_ref()),
            Memory::User { .. } => Err(EINVAL),
        }
    }
}

pub(super) fn create(
    hca: &Hca<'_>,
    device: &Device<Verbs>,
    init: &mut CqInit<'_>,
    user: Option<&User<'_, Verbs>>,
) -> Result<Cq> {
    if init.flags != 0 {
        return Err(EOPNOTSUPP);
    }
    if init.entries == 0 || init.entries > hca.nic.caps().max_cqe.get() {
        return Err(EINVAL);
    }
    match user {
        Some(user) => create_user(hca, device, init, user),
        None => create_kernel(hca, init),
    }
}

fn create_user(
    hca: &Hca<'_>,
    device: &Device<Verbs>,
    init: &mut CqInit<'_>,
    user: &User<'_, Verbs>,
) -> Result<Cq> {
    let request: CqReq = user.data.request()?;
    if request.reserved != [0; 7] || u32::from(request.log_size) > abi::cq::LOG_CQES_MAX {
        return Err(EINVAL);
    }
    let entries = 1u32 << request.log_size;
    if init.entries > entries || entries > hca.nic.caps().max_cqe.get() {
        return Err(EINVAL);
    }
    let length = u64::from(entries) * u64::from(CQE_LEN);
    let buffer = request.buf.get();
    let umem = Umem::pin(device, buffer, length, Use::Write)?;
    let table = PageTable::of_ring(hca.dma(), &umem, hca.nic.caps().page_sizes.get(), buffer)?;
    let slot = user.context.uars.take_slot(hca, |area| user.context.add_mapping(area))?;
    let eqn = hca.nic.eqn(init.comp_vector)?;
    let params = CreateCq::new(slot.uar.index, eqn, request.log_size, table.pages());
    let result = hca.execute(Opcode::CreateCq, &params)?;
    let created = hca.created(Opcode::DestroyCq, result.cqn.get());
    user.data.respond(&CqResp {
        cqn: result.cqn,
        slot: result.slot,
        uar: slot.uar.index.into(),
        uar_mmap: slot.uar.mmap.into(),
        ..CqResp::default()
    })?;
    hca.nic.add_cq(init.comp_vector, created.id(), init.link.clone())?;
    init.granted = entries;
    let memory = Memory::User { _ring: umem, _slot: slot };
    Ok(Cq { cqn: created.keep(), vector: init.comp_vector, memory })
}

fn create_kernel(hca: &Hca<'_>, init: &mut CqInit<'_>) -> Result<Cq> {
    // CAST: log2 of a u32.
    let log_size = init.entries.next_power_of_two().trailing_zeros() as u8;
    let log_stride = CQE_LEN.trailing_zeros() as u8;
    let ring = Ring::new(hca.dma(), log_size, log_stride)?;
    let pages = PageTable::contiguous(ring.dma_address()).pages();
    init.granted = ring.size();
    // Before the command: on failure the adapter lets go before the memory does.
    let queue = KBox::pin_init(KernelCq::new(ring), GFP_KERNEL)?;
    let eqn = hca.nic.eqn(init.comp_vector)?;
    let result = hca.execute(Opcode::CreateCq, &CreateCq::new(KERNEL_UAR, eqn, log_size, pages))?;
    let created = hca.created(Opcode::DestroyCq, result.cqn.get());
    queue.set_doorbell(result.slot.get());
    hca.nic.add_cq(init.comp_vector, created.id(), init.link.clone())?;
    Ok(Cq { cqn: created.keep(), vector: init.comp_vector, memory: Memory::Kernel(queue) })
}

pub(super) fn modify(hca: &Hca<'_>, cq: &rdma::cq::Cq<Verbs>, moderation: Moderation) -> Result {
    let params = ModifyCq::new(cq.cqn, moderation.count, moderation.period);
    hca.execute(Opcode::ModifyCq, &params)?;
    Ok(())
}

pub(super) fn destroy(hca: &Hca<'_>, cq: &rdma::cq::Cq<Verbs>) -> Result {
    hca.destroy(Opcode::DestroyCq, cq.cqn)?;
    hca.nic.remove_cq(cq.vector, cq.cqn, cq.link());
    Ok(())
}

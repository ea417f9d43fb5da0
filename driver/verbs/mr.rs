// SPDX-License-Identifier: GPL-2.0
//! Memory regions.

use abi::{
    admin::{Opcode, RegMr},
    qp::Access,
};
use kernel::prelude::*;

use super::{Hca, context::Pd, ops::Verbs, pages::PageTable};
use crate::rdma::{
    Device,
    mr::{NewMr, UserRegion},
    umem::Umem,
};

/// Rights that are hints, which may be ignored (`IB_ACCESS_OPTIONAL`), and
/// `IB_ACCESS_HUGETLB`, which is one for paging on demand.
const HINTS: u32 = 0x3ff0_0000 | 1 << 7;

/// The adapter's part of a region.
pub(crate) struct Mr {
    key: u32,
    /// Unpinned when the adapter has forgotten the region.
    _memory: Option<Umem>,
}

/// The rights, if the adapter has all of them.
fn rights(access: u32) -> Result<Access> {
    Access::from_bits(access & !HINTS).ok_or(EOPNOTSUPP)
}

fn register(hca: &Hca<'_>, params: &RegMr, memory: Option<Umem>) -> Result<NewMr<Mr>> {
    let key = hca.execute(Opcode::RegMr, params)?.key.get();
    Ok(NewMr { lkey: key, rkey: key, driver: Mr { key, _memory: memory } })
}

pub(super) fn reg_all(hca: &Hca<'_>, pd: &Pd, access: u32) -> Result<NewMr<Mr>> {
    register(hca, &RegMr::all_memory(pd.pdn, rights(access)?.bits()), None)
}

pub(super) fn reg_user(
    hca: &Hca<'_>,
    device: &Device<Verbs>,
    pd: &Pd,
    region: &UserRegion,
) -> Result<NewMr<Mr>> {
    let rights = rights(region.access)?;
    if region.length > hca.nic.caps().max_mr_size.get() {
        return Err(EINVAL);
    }
    let umem = Umem::pin_for(device, region.start, region.length, region.access)?;
    let page_sizes = hca.nic.caps().page_sizes.get();
    let table = PageTable::of_umem(hca.dma(), &umem, page_sizes, region.iova)?;
    let params = RegMr::new(pd.pdn, rights.bits(), region.iova, region.length, table.pages());
    register(hca, &params, Some(umem))
}

pub(super) fn dereg(hca: &Hca<'_>, mr: &Mr) -> Result {
    hca.destroy(Opcode::DeregMr, mr.key)
}

//! Regions.

use std::mem::offset_of;

use vrnic_abi::admin::{MrFlags, MrResult, Pages, RegMr, Status};
use vrnic_abi::qp::Access;
use zerocopy::IntoBytes;

use super::{Failure, Outcome, bad, done, pages_failure, result, zero};
use crate::att::Table;
use crate::function::Function;
use crate::host::Host;
use crate::limits;
use crate::memory::{PAGE_SHIFT_MAX, PAGE_SHIFT_MIN};
use crate::objects::{hold, release};
use crate::tpt::Mr;

pub(super) fn reg_mr<H: Host>(function: &Function<H>, params: &RegMr) -> Outcome {
    zero(&params.reserved, offset_of!(RegMr, reserved))?;
    let flags = MrFlags::from_bits(params.flags.get()).ok_or(bad(offset_of!(RegMr, flags)))?;
    let access = access(params.access.get())?;
    let pd = function.objects.pds.get(params.pdn.get()).ok_or(Status::NotFound)?;
    let make = |key| {
        if flags.contains(MrFlags::ALL_MEMORY) {
            return all_memory(params, key, pd.context, access);
        }
        pages(function, params, key, access)
    };
    let key = function.tpt().insert(make)?.ok_or(Status::NoResource)?;
    hold(&pd.users);
    result(&MrResult::new(key))
}

/// The rights asked for; remote write and atomic imply that the region is writable at all.
fn access(bits: u32) -> Result<Access, Failure> {
    let access = Access::from_bits_truncate(bits);
    let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    if writes && !access.contains(Access::LOCAL_WRITE) {
        return Err(bad(offset_of!(RegMr, access)));
    }
    Ok(access)
}

fn all_memory(params: &RegMr, key: u32, context: u32, access: Access) -> Result<Mr, Failure> {
    if context != 0 {
        return Err(Status::Permission.into());
    }
    if params.pages.as_bytes() != Pages::default().as_bytes() {
        return Err(bad(offset_of!(RegMr, pages)));
    }
    let (pdn, table) = (params.pdn.get(), Table::run(0));
    Ok(Mr { key, pdn, access, iova: 0, length: u64::MAX, offset: 0, table })
}

fn pages<H: Host>(
    function: &Function<H>,
    params: &RegMr,
    key: u32,
    access: Access,
) -> Result<Mr, Failure> {
    let (iova, length) = (params.iova.get(), params.length.get());
    if length > limits::MAX_MR_SIZE || iova.checked_add(length).is_none() {
        return Err(bad(offset_of!(RegMr, length)));
    }
    let shift = params.pages.page_shift;
    if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&shift) {
        return Err(bad(offset_of!(RegMr, pages) + offset_of!(Pages, page_shift)));
    }
    let offset = iova & ((1 << shift) - 1);
    let att = function.tpt().att();
    let table = att
        .load(function.host(), &params.pages, offset, length)
        .map_err(|error| pages_failure(error, offset_of!(RegMr, pages)))?;
    Ok(Mr { key, pdn: params.pdn.get(), access, iova, length, offset, table })
}

pub(super) fn dereg_mr<H: Host>(function: &Function<H>, key: u32) -> Outcome {
    let mr = function.tpt().remove(key, || function.host().drain()).ok_or(Status::NotFound)?;
    if let Some(pd) = function.objects.pds.get(mr.pdn) {
        release(&pd.users);
    }
    done()
}

//! Regions.

use std::mem::offset_of;

use vrnic_abi::admin::{MrFlags, MrResult, Pages, RegMr, Status};
use vrnic_abi::qp::Access;
use zerocopy::IntoBytes;

use super::{Failure, Outcome, bad, done, pages_failure, result, zero};
use crate::function::Function;
use crate::host::Host;
use crate::limits;
use crate::memory::{PAGE_SHIFT_MAX, PAGE_SHIFT_MIN, PageMap};
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
    let range = (0, u64::MAX, 0);
    Ok(Mr::new(key, params.pdn.get(), access, range, PageMap::run(0)))
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
    let map = PageMap::read(function.paging(), &params.pages, offset, length)
        .map_err(|error| pages_failure(error, offset_of!(RegMr, pages)))?;
    Ok(Mr::new(key, params.pdn.get(), access, (iova, length, offset), map))
}

pub(super) fn dereg_mr<H: Host>(function: &Function<H>, key: u32) -> Outcome {
    let mr = function.tpt().remove(key).ok_or(Status::NotFound)?;
    if let Some(pd) = function.objects.pds.get(mr.pdn) {
        release(&pd.users);
    }
    done()
}

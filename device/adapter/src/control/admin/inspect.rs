//! INSPECT: returns records of the guest's own objects.

use std::mem::offset_of;

use vrnic_abi::admin::{INSPECT_LEN_MAX, Inspect, InspectResult, Inspected, NONE, Status};
use zerocopy::{Immutable, IntoBytes};

use super::{Outcome, bad};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::inspect::Page;

pub(super) fn inspect<H: Host>(adapter: &Adapter<H>, params: &Inspect) -> Outcome<InspectResult> {
    let kind = Inspected::from_raw(params.kind).ok_or(bad(offset_of!(Inspect, kind)))?;
    if !params.addr.get().is_multiple_of(8) {
        return Err(bad(offset_of!(Inspect, addr)));
    }
    if params.len.get() > INSPECT_LEN_MAX {
        return Err(bad(offset_of!(Inspect, len)));
    }
    match kind {
        Inspected::Qp => answer(adapter, params, Adapter::qp_records),
        Inspected::Cq => answer(adapter, params, Adapter::cq_records),
        Inspected::Eq => answer(adapter, params, Adapter::eq_records),
        Inspected::Srq => answer(adapter, params, Adapter::srq_records),
        Inspected::Key => answer(adapter, params, Adapter::key_records),
        Inspected::Connection => answer(adapter, params, Adapter::connection_records),
    }
}

/// Writes as many records as fit into the buffer.
fn answer<H: Host, T: IntoBytes + Immutable>(
    adapter: &Adapter<H>,
    params: &Inspect,
    list: impl Fn(&Adapter<H>, u32, usize) -> Page<T>,
) -> Outcome<InspectResult> {
    let capacity = params.len.get() as usize / size_of::<T>();
    if capacity == 0 {
        return Err(bad(offset_of!(Inspect, len)));
    }
    let page = list(adapter, params.from.get(), capacity);
    let addr = params.addr;
    adapter
        .host()
        .hold(Lane::SHARED)
        .write(addr, page.items.as_bytes())
        .map_err(|_| Status::BadAddress)?;
    // There are at most as many as fit into the buffer.
    let count = (page.items.len() as u32).into();
    Ok(InspectResult { count, next: page.next.unwrap_or(NONE).into() })
}

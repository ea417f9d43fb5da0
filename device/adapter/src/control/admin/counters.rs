//! Counters of the function, sets of counters for the work of some QPs, and optional counters.

use std::mem::offset_of;

use vrnic_abi::CountersId;
use vrnic_abi::admin::{BindCounters, QueryCounters, QueryParams, Status, SwitchCounter};

use super::objects::answer;
use super::{Outcome, bad};
use crate::adapter::Adapter;
use crate::host::Host;
use crate::objects::held;
use crate::objects::optional_counters::Missing;

/// Answers without the work that sets have counted: the guest's kernel adds their counters.
pub(super) fn query_stats<H: Host>(adapter: &Adapter<H>, params: &QueryParams) -> Outcome<()> {
    let own = adapter.stats().values().without(&adapter.objects.counter_sets.sum());
    answer(adapter, params, &own.bytes())
}

pub(super) fn create<H: Host>(adapter: &Adapter<H>, _: &()) -> Outcome<CountersId> {
    Ok(adapter.objects.counter_sets.add().ok_or(Status::NoResource)?.id)
}

pub(super) fn destroy<H: Host>(adapter: &Adapter<H>, &id: &CountersId) -> Outcome<()> {
    let sets = &adapter.objects.counter_sets;
    if held(&sets.get(id).ok_or(Status::NotFound)?.users) {
        return Err(Status::Busy.into());
    }
    // A turn that began while a QP had the set may still count.
    adapter.host().drain();
    sets.remove(id);
    Ok(())
}

pub(super) fn bind<H: Host>(adapter: &Adapter<H>, params: &BindCounters) -> Outcome<()> {
    let objects = &adapter.objects;
    let qp = objects.qp(params.qpn).ok_or(Status::NotFound)?;
    let set = match params.counters.get() {
        0 => None,
        _ => Some(objects.counter_sets.get(params.counters).ok_or(Status::NotFound)?),
    };
    adapter.core().counted.set(qp.qpn, &qp.is_counted, set);
    Ok(())
}

pub(super) fn query<H: Host>(adapter: &Adapter<H>, params: &QueryCounters) -> Outcome<()> {
    if !params.addr.is_multiple_of(8) {
        return Err(bad(offset_of!(QueryCounters, addr)));
    }
    let values = match params.counters.get() {
        0 => adapter.stats().values(),
        _ => {
            let set = adapter.objects.counter_sets.get(params.counters);
            set.ok_or(Status::NotFound)?.counters.values()
        }
    };
    let buffer = QueryParams { addr: params.addr, len: params.len };
    answer(adapter, &buffer, &values.bytes())
}

pub(super) fn switch<H: Host>(adapter: &Adapter<H>, params: &SwitchCounter) -> Outcome<()> {
    let on = match params.on.get() {
        0 => false,
        1 => true,
        _ => return Err(bad(offset_of!(SwitchCounter, on))),
    };
    let switched = adapter.core().optional.switch(params.index.get(), on);
    switched.map_err(|Missing| bad(offset_of!(SwitchCounter, index)))?;
    // Turns that began before do not count by the new state.
    adapter.host().drain();
    Ok(())
}

pub(super) fn query_optional<H: Host>(adapter: &Adapter<H>, params: &QueryParams) -> Outcome<()> {
    answer(adapter, params, &adapter.core().optional.bytes())
}

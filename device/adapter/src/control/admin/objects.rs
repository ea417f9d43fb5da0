//! Queries, the GID table, the port, contexts, UARs and PDs.

use std::mem::offset_of;
use std::sync::Arc;

use vrnic_abi::admin::{QueryParams, SetGid, SetPort, Status};
use vrnic_abi::qp::NO_VLAN;
use vrnic_abi::{ContextId, Pdn, UarIndex};
use vrnic_packet::MacAddr;
use zerocopy::IntoBytes;

use super::{Failure, Outcome, bad};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};
use crate::limits;
use crate::objects::network::addresses::in_vlan;
use crate::objects::network::gids::GidEntry;
use crate::objects::uar::Uar;
use crate::objects::{Context, Pd, held, hold, release};
use crate::vlans::NotMember;

pub(super) fn query_device<H: Host>(adapter: &Adapter<H>, params: &QueryParams) -> Outcome<()> {
    answer(adapter, params, adapter.caps().as_bytes())
}

/// Writes as much of `answer` as fits into the guest's buffer.
pub(super) fn answer<H: Host>(
    adapter: &Adapter<H>,
    params: &QueryParams,
    answer: &[u8],
) -> Outcome<()> {
    if !params.addr.is_multiple_of(8) {
        return Err(bad(offset_of!(QueryParams, addr)));
    }
    let len = answer.len().min(params.len.get() as usize);
    let answer = answer.get(..len).unwrap_or(answer);
    adapter.host().hold(Lane::SHARED).write(params.addr, answer).map_err(|_| Status::BadAddress)?;
    Ok(())
}

pub(super) fn set_gid<H: Host>(adapter: &Adapter<H>, params: &SetGid) -> Outcome<()> {
    let (index, gids) = (params.index.get(), &adapter.objects.gids);
    if u32::from(index) >= limits::MAX_GID {
        return Err(bad(offset_of!(SetGid, index)));
    }
    match params.valid {
        0 => gids.unset(index),
        1 => {
            let vlan = Some(params.vlan.get()).filter(|vlan| *vlan != NO_VLAN);
            let vlan = adapter.core().port.vlans().of_guest(vlan);
            let vlan = vlan.map_err(|NotMember| bad(offset_of!(SetGid, vlan)))?;
            let vlan = vlan.unwrap_or(NO_VLAN);
            let source = GidEntry { gid: params.gid, vlan, mac: MacAddr(params.smac) };
            let at = in_vlan(source.mac, source.vlan);
            let address = adapter.fabric().claim(at, &adapter.objects);
            gids.set(index, source, address.ok_or(bad(offset_of!(SetGid, smac)))?);
        }
        _ => return Err(bad(offset_of!(SetGid, valid))),
    }
    Ok(())
}

pub(super) fn set_port<H: Host>(adapter: &Adapter<H>, params: &SetPort) -> Outcome<()> {
    if params.mtu > limits::MAX_MTU {
        return Err(bad(offset_of!(SetPort, mtu)));
    }
    if params.closed > 1 {
        return Err(bad(offset_of!(SetPort, closed)));
    }
    if params.mtu != 0 {
        adapter.set_mtu(params.mtu);
    }
    adapter.set_open(params.closed == 0);
    Ok(())
}

pub(super) fn alloc_context<H: Host>(adapter: &Adapter<H>, _: &()) -> Outcome<ContextId> {
    let make = |id| Ok::<_, Failure>(Context { id, users: 0.into() });
    let context = adapter.objects.contexts.insert(make)?.ok_or(Status::NoResource)?;
    Ok(context.id)
}

pub(super) fn free_context<H: Host>(adapter: &Adapter<H>, &id: &ContextId) -> Outcome<()> {
    let contexts = &adapter.objects.contexts;
    let context = contexts.get(id).ok_or(Status::NotFound)?;
    if held(&context.users) {
        return Err(Status::Busy.into());
    }
    contexts.remove(id);
    // The process of the context no longer maps this memory.
    adapter.objects.sq_memory.lock().release(id);
    Ok(())
}

pub(super) fn alloc_uar<H: Host>(adapter: &Adapter<H>, &context: &ContextId) -> Outcome<UarIndex> {
    let objects = &adapter.objects;
    let context = objects.contexts.get(context).ok_or(Status::NotFound)?;
    let make = |number| Ok::<_, Failure>(Uar::new(number, adapter.core().domain(), context.id));
    let uar = objects.uars.insert(make)?.ok_or(Status::NoResource)?;
    hold(&context.users);
    adapter.host().bar_zero(uar.number.range());
    objects.refresh_uars();
    // A sleeping worker does not watch the doorbells of this UAR yet.
    adapter.wake_all();
    Ok(uar.number)
}

pub(super) fn free_uar<H: Host>(adapter: &Adapter<H>, &number: &UarIndex) -> Outcome<()> {
    let objects = &adapter.objects;
    let uar = objects.uars.get(number).ok_or(Status::NotFound)?;
    if number.get() == 0 {
        return Err(Status::Permission.into());
    }
    if uar.in_use() {
        return Err(Status::Busy.into());
    }
    objects.uars.remove(number);
    objects.refresh_uars();
    if let Some(context) = objects.contexts.get(uar.context) {
        release(&context.users);
    }
    Ok(())
}

pub(super) fn alloc_pd<H: Host>(adapter: &Arc<Adapter<H>>, &context: &ContextId) -> Outcome<Pdn> {
    let objects = &adapter.objects;
    let context = objects.contexts.get(context).ok_or(Status::NotFound)?;
    let make = |pdn| Ok::<_, Failure>(Pd { pdn, context: context.id, users: 0.into() });
    let pd = objects.pds.insert(make)?.ok_or(Status::NoResource)?;
    hold(&context.users);
    Ok(pd.pdn)
}

pub(super) fn free_pd<H: Host>(adapter: &Adapter<H>, &pdn: &Pdn) -> Outcome<()> {
    let objects = &adapter.objects;
    let pd = objects.pds.get(pdn).ok_or(Status::NotFound)?;
    if held(&pd.users) {
        return Err(Status::Busy.into());
    }
    objects.pds.remove(pdn);
    if let Some(context) = objects.contexts.get(pd.context) {
        release(&context.users);
    }
    Ok(())
}

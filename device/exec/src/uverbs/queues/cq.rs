//! Completion queues.

use rustix::io::Errno;
use vrnic_abi::admin::{self, CreateCq, DeviceFeatures, Pages, command};
use vrnic_abi::cq::{CQE_LEN, LOG_CQES_MAX};
use vrnic_abi::uverbs::{CQ_ANY_VECTOR, CQ_HOLDING, CqReq, CqResp, ResizeCqResp};

use crate::memory::{PAGE, PAGE_SHIFT};
use crate::uverbs::file::OpenFile;
use crate::uverbs::objects::Object;
use crate::uverbs::region::forget;
use crate::uverbs::request::Request;
use crate::uverbs::ring::{RingMemory, Rings};
use crate::uverbs::routes::{Route, Source};
use crate::uverbs::wire::device::CORE_OUT;
use crate::uverbs::wire::{HANDLE, UHW_IN, UHW_OUT, cq};
use crate::uverbs::write::{ModifyCq as Modify, ResizeCq as Resize};

/// Flags of creation (`enum ib_uverbs_ex_create_cq_flags`). Asking for timestamps changes nothing.
const TIMESTAMPS: u32 = 1 << 0;
const IGNORE_OVERRUN: u32 = 1 << 1;
/// The attribute that can be changed (`IB_CQ_MODERATE`).
const MODERATION: u32 = 1 << 0;

/// Returns the place of a ring of a process, which begins at a page. Adds the memory of the ring to
/// `rings`.
///
/// # Errors
/// `EINVAL` if it does not begin so, `EFAULT` if it is not there.
pub fn ring(
    file: &OpenFile,
    request: &Request<'_>,
    rings: &mut Rings,
    addr: u64,
    len: u64,
    written: bool,
) -> Result<Pages, Errno> {
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::INVAL);
    }
    let shared = request.process().mapped(addr, len).and_then(|(id, start)| {
        let end = start.checked_add(len)?.checked_next_multiple_of(PAGE)?;
        file.ring(id, start..end)
    });
    let memory = match shared {
        Some(shared) => RingMemory::Shared(shared),
        None => RingMemory::Placed(request.process().place(addr, len, written)?),
    };
    let place = memory.addr()?;
    rings.push(memory);
    Ok(Pages::new(place, PAGE_SHIFT, 0))
}

/// Creates a completion queue (`UVERBS_METHOD_CQ_CREATE`, and `create_cq` of the driver).
///
/// # Errors
/// The kernel's, and the adapter's refusal.
pub fn create(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let _exists = file.context()?;
    file.objects.check_room()?;
    let completions =
        request.file(cq::CHANNEL)?.map(|channel| file.channel(channel)).transpose()?;
    let events = match request.file(cq::EVENT_FD)? {
        Some(channel) => Some(file.channel(channel)?),
        None => file.events().cloned(),
    };
    let (entries, vector): (u32, u32) = (request.value(cq::ENTRIES), request.value(cq::VECTOR));
    let flags: u64 = request.value(cq::FLAGS);
    let asked: CqReq = request.value(UHW_IN);
    let flags = u32::try_from(flags).map_err(|_| Errno::INVAL)?;
    if flags & !(TIMESTAMPS | IGNORE_OVERRUN) != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if vector != 0 {
        return Err(Errno::INVAL);
    }
    let mut rings = Rings::new();
    let params = params(file, request, entries, &asked, &mut rings)?;
    let params = match (flags & IGNORE_OVERRUN != 0, asked.flags & CQ_HOLDING != 0) {
        (false, false) => params,
        (false, true) => params.holding(asked.few.get()),
        (true, false) => params.ignoring_overruns(),
        (true, true) => return Err(Errno::INVAL),
    };
    let uar = file.take_slot()?;
    let created = file.device().driver().command::<command::CreateCq>(&CreateCq { uar, ..params });
    let result = created.inspect_err(|_| file.release_slot(uar))?;
    let cqn = result.cqn;
    file.keep_rings(Source::Cq, cqn.get(), rings);
    let user_handle = request.value(cq::USER_HANDLE);
    let route = Route { user_handle, completions, events, completion_count: 0, event_count: 0 };
    file.device().routes().insert((file.device().number(), Source::Cq, cqn.get()), route);
    let object = Object::Cq(cqn, uar);
    let handle = file.objects.insert(object);
    let answer =
        CqResp { cqn, slot: result.slot, uar, vector: 0.into(), uar_mmap: uar.offset().into() };
    request
        .respond_or_zero(UHW_OUT, &answer)
        .and_then(|()| request.respond(cq::RESP_ENTRIES, &(1u32 << asked.log_size)))
        .and_then(|()| request.respond_handle(HANDLE, handle.into()))
        .inspect_err(|_| forget(file, handle, &object))
}

/// Checks what the plugin asks for, and returns the adapter's parameters without the doorbell page.
fn params(
    file: &OpenFile,
    request: &Request<'_>,
    entries: u32,
    asked: &CqReq,
    rings: &mut Rings,
) -> Result<CreateCq, Errno> {
    let driver = file.device().driver();
    let holds = asked.flags & CQ_HOLDING != 0;
    if asked.reserved != [0; 2]
        || asked.flags & !(CQ_ANY_VECTOR | CQ_HOLDING) != 0
        || u32::from(asked.log_size) > LOG_CQES_MAX
        || !holds && asked.few.get() != 0
    {
        return Err(Errno::INVAL);
    }
    if entries == 0 || entries > driver.caps().max_cqe.get() {
        return Err(Errno::INVAL);
    }
    if holds && !driver.caps().has(DeviceFeatures::HOLDING_CQ) {
        return Err(Errno::OPNOTSUPP);
    }
    let pages = entries_ring(file, request, entries, asked, rings)?;
    Ok(CreateCq::new(0, driver.eqn(), asked.log_size, pages))
}

/// Returns the place of the ring for a queue of so many entries.
fn entries_ring(
    file: &OpenFile,
    request: &Request<'_>,
    entries: u32,
    asked: &CqReq,
    rings: &mut Rings,
) -> Result<Pages, Errno> {
    let offered = 1u32 << (asked.log_size & 31);
    if entries > offered || offered > file.device().driver().caps().max_cqe.get() {
        return Err(Errno::INVAL);
    }
    let len = u64::from(offered) * u64::from(CQE_LEN);
    ring(file, request, rings, asked.buf.get(), len, true)
}

/// Sets after how many completions, or how many microseconds, a completion queue raises an event
/// (`ib_uverbs_ex_modify_cq`).
///
/// # Errors
/// `EINVAL` if nothing is to change, `EOPNOTSUPP` for an unknown attribute, and the adapter's
/// refusal.
pub fn moderate(file: &OpenFile, command: &Modify) -> Result<(), Errno> {
    if command.attr_mask == 0 || command.reserved != 0 {
        return Err(Errno::INVAL);
    }
    if command.attr_mask > MODERATION {
        return Err(Errno::OPNOTSUPP);
    }
    let (cqn, _) = file.objects.cq(command.cq_handle)?;
    let params = admin::ModifyCq::new(cqn, command.cq_count, command.cq_period);
    file.device().driver().command::<command::ModifyCq>(&params)?;
    Ok(())
}

/// Moves a completion queue to another ring (`ib_uverbs_resize_cq`, and `resize_user_cq` of the
/// driver).
///
/// # Errors
/// `EINVAL` for a ring that does not fit, and the adapter's refusal.
pub fn resize(file: &mut OpenFile, request: &Request<'_>, command: &Resize) -> Result<(), Errno> {
    let (cqn, _) = file.objects.cq(command.cq_handle)?;
    let asked: CqReq = request.value(UHW_IN);
    if asked.reserved != [0; 2]
        || asked.flags & !CQ_ANY_VECTOR != 0
        || u32::from(asked.log_size) > LOG_CQES_MAX
        || asked.few.get() != 0
    {
        return Err(Errno::INVAL);
    }
    let mut rings = Rings::new();
    let pages = entries_ring(file, request, command.cqe, &asked, &mut rings)?;
    // An answer that cannot be written fails here, where nothing has changed.
    request.respond_or_zero(UHW_OUT, &ResizeCqResp::default())?;
    let params = admin::ResizeCq::new(cqn, asked.log_size, pages);
    let result = file.device().driver().command::<command::ResizeCq>(&params)?;
    // The adapter does not write to the old ring any more.
    file.replace_rings(Source::Cq, cqn.get(), rings);
    let answer = ResizeCqResp { first: result.first, ..ResizeCqResp::default() };
    request.respond_or_zero(UHW_OUT, &answer)?;
    request.respond_or_zero(CORE_OUT, &[1u32 << asked.log_size, 0])
}

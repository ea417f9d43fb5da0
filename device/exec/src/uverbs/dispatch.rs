//! The choice of what a request does.

use std::sync::Arc;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::channel::Channel;
use super::file::OpenFile;
use super::objects::Object;
use super::process::Process;
use super::queues::{cq, multicast, qp, qp_attr, srq, xrc};
use super::request::Request;
use super::wire::device::{CORE_IN, CORE_OUT, WRITE_COMMAND};
use super::wire::{
    EVENTS_REPORTED, HANDLE, ah, async_event, cq as cqs, device as dev, dm as dms, mr, mw, pd,
};
use super::wire::{qp as qps, srq as srqs, xrcd};
use super::write::{self, DeviceResp, DeviceRespEx, MODIFY_QP_LEN};
use super::{address, dm, methods, profile, query, region};

/// Length in bytes of a record of a completion event (`struct ib_uverbs_comp_event_desc`), and of
/// an asynchronous event (`struct ib_uverbs_async_event_desc`).
const COMPLETION_LEN: usize = 8;
const EVENT_LEN: usize = 16;

/// Executes the request at an address of a process.
///
/// # Errors
/// The kernel's errors.
pub fn ioctl(file: &mut OpenFile, process: &dyn Process, addr: u64) -> Result<(), Errno> {
    file.check_memory()?;
    let mut request = Request::copy(process, addr)?;
    let (object, method) = request.method();
    let known = methods::attributes(object, method).ok_or(Errno::PROTONOSUPPORT)?;
    request.check(known)?;
    let created = profile::created(&request);
    let device = Arc::clone(file.device());
    let of_profile = device.driver().profile();
    profile::check(of_profile, created)?;
    let done = execute(file, process, &request);
    done.map_err(|errno| profile::error(of_profile, created, errno))
}

/// Executes a request that has been checked.
fn execute(file: &mut OpenFile, process: &dyn Process, request: &Request<'_>) -> Result<(), Errno> {
    match request.method() {
        (dev::OBJECT, dev::INVOKE_WRITE) => invoke(file, request),
        (dev::OBJECT, dev::QUERY_PORT) => query::query_port(file, request),
        (dev::OBJECT, dev::GET_CONTEXT) => query::get_context(file, request),
        (dev::OBJECT, dev::QUERY_GID_TABLE) => query::query_gid_table(file, request),
        (dev::OBJECT, dev::QUERY_GID_ENTRY) => query::query_gid_entry(file, request),
        (async_event::OBJECT, async_event::ALLOC) => {
            let _exists = file.context()?;
            let descriptor = file.add_events(|| Channel::create(process, EVENT_LEN))?;
            request.respond_handle(HANDLE, descriptor.into())
        }
        (dms::OBJECT, dms::ALLOC) => dm::alloc(file, request),
        (mr::OBJECT, mr::REG_DM) => dm::register(file, request),
        (mr::OBJECT, mr::ADVISE) => region::advise(file, request),
        (cqs::OBJECT, cqs::CREATE) => cq::create(file, request),
        (qps::OBJECT, qps::CREATE) => qp::create(file, request),
        (srqs::OBJECT, srqs::CREATE) => srq::create(file, request),
        (cqs::OBJECT, cqs::DESTROY)
        | (qps::OBJECT, qps::DESTROY)
        | (srqs::OBJECT, srqs::DESTROY)
        | (ah::OBJECT, ah::DESTROY)
        | (mr::OBJECT, mr::DESTROY)
        | (mw::OBJECT, mw::DESTROY)
        | (dms::OBJECT, dms::FREE)
        | (xrcd::OBJECT, xrcd::DESTROY)
        | (pd::OBJECT, pd::DESTROY) => destroy(file, request, request.method().0),
        _ => Err(Errno::PROTONOSUPPORT),
    }
}

/// Destroys an object, and tells the program how many of its events it acknowledges.
fn destroy(file: &mut OpenFile, request: &Request<'_>, kind: u16) -> Result<(), Errno> {
    let handle = request.handle(HANDLE)?.ok_or(Errno::INVAL)?;
    let object = file.objects.get(handle, |object| {
        let same = match object {
            Object::Ah(_) => kind == ah::OBJECT,
            Object::Mr(_) => kind == mr::OBJECT,
            Object::Mw(_) => kind == mw::OBJECT,
            Object::Dm(_) => kind == dms::OBJECT,
            Object::Xrcd(_) => kind == xrcd::OBJECT,
            Object::Qp(_) => kind == qps::OBJECT,
            Object::Srq(_) => kind == srqs::OBJECT,
            Object::Cq(..) => kind == cqs::OBJECT,
            Object::Pd(_) => kind == pd::OBJECT,
        };
        same.then_some(*object)
    })?;
    let busy = match object {
        Object::Pd(_) => file.objects.has_address_handle(handle),
        Object::Xrcd(_) => file.objects.uses_xrcd(handle),
        Object::Qp(_) => file.groups.has(handle),
        _ => false,
    };
    if busy {
        return Err(Errno::BUSY);
    }
    if matches!(object, Object::Dm(_)) {
        dm::free(file, handle)?;
    }
    let [completions, events] = file.destroy(&object)?;
    file.objects.remove(handle);
    match object {
        Object::Cq(..) => request.respond(EVENTS_REPORTED, &[completions, events]),
        Object::Qp(_) | Object::Srq(_) => request.respond(EVENTS_REPORTED, &events),
        _ => Ok(()),
    }
}

/// Returns the request of a command, which has at least the first `len` bytes of its struct, and
/// room for an answer of `room` bytes.
fn core<T: FromBytes + IntoBytes>(
    request: &Request<'_>,
    len: usize,
    room: usize,
) -> Result<T, Errno> {
    let given = request.bytes(CORE_IN).len();
    if given < len || usize::from(request.room(CORE_OUT)) < room {
        return Err(Errno::NOSPC);
    }
    Ok(request.value(CORE_IN))
}

/// Returns the request of a command that is a whole struct.
fn whole<T: FromBytes + IntoBytes>(request: &Request<'_>, room: usize) -> Result<T, Errno> {
    core(request, size_of::<T>(), room)
}

/// Executes a command that was a system call write once (`UVERBS_METHOD_INVOKE_WRITE`).
fn invoke(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    const QUERY_DEVICE_EX: u32 = write::QUERY_DEVICE | write::EXTENDED;
    const MODIFY_QP_EX: u32 = write::MODIFY_QP | write::EXTENDED;

    let number: u64 = request.value(WRITE_COMMAND);
    match u32::try_from(number).map_err(|_| Errno::INVAL)? {
        write::QUERY_DEVICE => {
            let _address: u64 = whole(request, size_of::<DeviceResp>())?;
            let _exists = file.context()?;
            request.respond_or_zero(CORE_OUT, &file.device().query().base)
        }
        QUERY_DEVICE_EX => query_device(file, request),
        write::ALLOC_PD => {
            let _address: u64 = whole(request, 4)?;
            region::alloc_pd(file, request)
        }
        write::CREATE_AH => address::create(file, request, &whole(request, 4)?),
        write::REG_MR => region::register(file, request, &whole(request, 12)?),
        write::REREG_MR => region::change(file, request, &whole(request, 8)?),
        write::ALLOC_MW => region::alloc_window(file, request, &whole(request, 8)?),
        write::RESIZE_CQ => cq::resize(file, request, &whole(request, 8)?),
        write::MODIFY_CQ => cq::moderate(file, &whole(request, 0)?),
        write::ATTACH_MCAST => multicast::attach(file, &whole(request, 0)?),
        write::DETACH_MCAST => multicast::detach(file, &whole(request, 0)?),
        write::OPEN_XRCD => xrc::open(file, request, &whole(request, 4)?),
        write::OPEN_QP => xrc::open_target(file, request, &whole(request, 32)?),
        write::CREATE_COMP_CHANNEL => {
            let _address: u64 = whole(request, 4)?;
            let _exists = file.context()?;
            let process = request.process();
            let descriptor = file.add_channel(|| Channel::create(process, COMPLETION_LEN))?;
            request.respond(CORE_OUT, &descriptor)
        }
        write::QUERY_QP => qp_attr::query(file, request, &whole(request, 128)?),
        write::MODIFY_QP => {
            qp_attr::modify(file, request, &core(request, MODIFY_QP_LEN, 0)?, false)
        }
        MODIFY_QP_EX => qp_attr::modify(file, request, &core(request, MODIFY_QP_LEN, 0)?, true),
        write::MODIFY_SRQ => srq::modify(file, request, &whole(request, 0)?),
        write::QUERY_SRQ => {
            let command: write::QuerySrq = whole(request, 16)?;
            srq::query(file, request, command.srq_handle)
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Answers the extended form of QUERY_DEVICE (`ib_uverbs_ex_query_device`).
fn query_device(file: &OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let [mask, reserved]: [u32; 2] = whole(request, size_of::<DeviceResp>() + 8)?;
    if mask != 0 || reserved != 0 {
        return Err(Errno::INVAL);
    }
    let _exists = file.context()?;
    let mut answer = file.device().query();
    let room = usize::from(request.room(CORE_OUT)).min(size_of::<DeviceRespEx>());
    answer.response_length = u32::try_from(room).map_err(|_| Errno::INVAL)?;
    request.respond_or_zero(CORE_OUT, &answer)
}

//! XRC domains and their targets, as programs open them.

use rustix::fs::OFlags;
use rustix::io::Errno;
use vrnic_abi::admin::{CreateQp, NO_QUEUE, command};
use vrnic_abi::qp::Type;
use vrnic_abi::{Qpn, UarIndex};

use crate::uverbs::file::OpenFile;
use crate::uverbs::objects::{Object, Qp, Target};
use crate::uverbs::region::forget;
use crate::uverbs::request::Request;
use crate::uverbs::routes::{Route, Source};
use crate::uverbs::wire::device::CORE_OUT;
use crate::uverbs::wire::{HANDLE, qp};
use crate::uverbs::write::{OpenQp, OpenXrcd, QpCap, QpOpened};

/// The descriptor of a domain that nobody shares.
const NO_FILE: i32 = -1;

/// Opens an XRC domain (`ib_uverbs_open_xrcd`).
///
/// # Errors
/// `EBADF` for a descriptor that is none, `EAGAIN` for a file without a domain, `EINVAL` for one
/// that has a domain already and must not, and the adapter's refusal.
pub fn open(file: &mut OpenFile, request: &Request<'_>, command: &OpenXrcd) -> Result<(), Errno> {
    let _exists = file.context()?;
    file.objects.check_room()?;
    let shared = match command.fd {
        NO_FILE => None,
        descriptor => Some(request.process().file(descriptor)?),
    };
    let flags = OFlags::from_bits_retain(command.oflags);
    let device = file.device();
    let object = Object::Xrcd(device.domains().open(device.driver(), shared, flags)?);
    let handle = file.objects.insert(object);
    request.respond_or_zero(CORE_OUT, &handle).inspect_err(|_| forget(file, handle, &object))
}

/// Creates a target, which has no queues.
///
/// # Errors
/// `EINVAL` for attributes that a target does not have, and the adapter's refusal.
pub fn create_target(file: &mut OpenFile, request: &Request<'_>) -> Result<(), Errno> {
    let others = [qp::PD, qp::SEND_CQ, qp::RECV_CQ];
    if others.into_iter().any(|id| request.has(id)) {
        return Err(Errno::INVAL);
    }
    let domain = request.handle(qp::XRCD)?.ok_or(Errno::NOENT)?;
    let xrcdn = file.objects.xrcd(domain)?;
    if request.value::<u64>(qp::FLAGS) & !qp::SIGNAL_ALL != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let events = match request.file(qp::EVENT_FD)? {
        Some(channel) => Some(file.channel(channel)?),
        None => file.events().cloned(),
    };
    let driver = file.device().driver();
    let params = CreateQp {
        send_cqn: driver.idle_cqn(),
        recv_cqn: driver.idle_cqn(),
        uar: UarIndex::new(0),
        xrcdn,
        // CAST: the enum's number.
        qp_type: Type::XrcTgt as u8,
        sq_log_size: NO_QUEUE,
        rq_log_size: NO_QUEUE,
        ..CreateQp::default()
    };
    let qpn = driver.command::<command::CreateQp>(&params)?.qpn;
    file.device().domains().open_target(xrcdn, qpn, true)?;
    let user_handle = request.value(qp::USER_HANDLE);
    let key = (file.device().number(), Source::Qp, qpn.get());
    let route = Route { user_handle, events, ..Route::default() };
    let opening = file.device().routes().insert_shared(key, route);
    let object = object(qpn, Target { handle: domain, xrcdn, opening });
    let handle = file.objects.insert(object);
    request
        .respond(qp::RESP_CAP, &QpCap::default())
        .and_then(|()| request.respond(qp::RESP_NUMBER, &qpn.get()))
        .and_then(|()| request.respond_handle(HANDLE, handle.into()))
        .inspect_err(|_| forget(file, handle, &object))
}

/// Returns the object of an opening.
fn object(qpn: Qpn, target: Target) -> Object {
    Object::Qp(Qp {
        qpn,
        kind: Type::XrcTgt,
        uar: UarIndex::new(0),
        cap: QpCap::default(),
        signals_all: false,
        device_sq: None,
        target: Some(target),
    })
}

/// Opens a target that others have created (`ib_uverbs_open_qp`).
///
/// # Errors
/// `EINVAL` if there is no such target in the domain.
pub fn open_target(
    file: &mut OpenFile,
    request: &Request<'_>,
    command: &OpenQp,
) -> Result<(), Errno> {
    file.objects.check_room()?;
    let xrcdn = file.objects.xrcd(command.pd_handle)?;
    if Type::from_raw(command.qp_type) != Some(Type::XrcTgt) {
        return Err(Errno::INVAL);
    }
    let qpn = Qpn::new(command.qpn);
    file.device().domains().open_target(xrcdn, qpn, false)?;
    let (user_handle, events) = (command.user_handle, file.events().cloned());
    let route = Route { user_handle, events, ..Route::default() };
    let key = (file.device().number(), Source::Qp, qpn.get());
    let opening = file.device().routes().insert_shared(key, route);
    let object = object(qpn, Target { handle: command.pd_handle, xrcdn, opening });
    let handle = file.objects.insert(object);
    let answer = QpOpened { qp_handle: handle, qpn: qpn.get(), ..QpOpened::default() };
    request.respond_or_zero(CORE_OUT, &answer).inspect_err(|_| forget(file, handle, &object))
}

// SPDX-License-Identifier: GPL-2.0
//! The driver's own methods of the core's objects: the functions of `methods.h`, which `methods.c`
//! declares to the core.

use abi::uverbs;
use kernel::{error::from_result, ffi::c_int, prelude::*};

use crate::{
    bindings,
    rdma::{memory::dm, queues::qp::Qp, registration::Methods, user::ucontext::User},
    verbs::{self, Verbs},
};

// CAST: the numbers are 16 bits long.
const _: () = {
    assert!(bindings::VRNIC_METHOD_RANGE as u16 == uverbs::METHOD_RANGE);
    assert!(bindings::VRNIC_METHOD_ATTACH as u16 == uverbs::METHOD_ATTACH);
    assert!(bindings::VRNIC_ATTR_ATTACH_QP as u16 == uverbs::ATTR_ATTACH_QP);
    assert!(bindings::VRNIC_METHOD_START as u16 == uverbs::METHOD_START);
    assert!(bindings::VRNIC_ATTR_START_FROM as u16 == uverbs::ATTR_START_FROM);
    assert!(bindings::VRNIC_ATTR_START_TO as u16 == uverbs::ATTR_START_TO);
    assert!(bindings::VRNIC_METHOD_CONNECTION as u16 == uverbs::METHOD_CONNECTION);
    assert!(bindings::VRNIC_ATTR_CONNECTION_QP as u16 == uverbs::ATTR_CONNECTION_QP);
    assert!(bindings::VRNIC_METHOD_QUERY_DM as u16 == uverbs::METHOD_QUERY_DM);
    assert!(bindings::VRNIC_ATTR_RANGE_QP as u16 == uverbs::ATTR_RANGE_QP);
    assert!(bindings::VRNIC_ATTR_RANGE_DM as u16 == uverbs::ATTR_RANGE_DM);
    assert!(bindings::VRNIC_ATTR_QUERY_DM as u16 == uverbs::ATTR_QUERY_DM);
};

/// Returns the list of the methods.
pub(crate) fn list() -> Methods<Verbs> {
    // SAFETY: the list of `methods.c`, which does not change and has a first element.
    let first = unsafe { &*(&raw const bindings::vrnic_methods).cast() };
    // SAFETY: the list ends with an empty element. Its handlers are called for devices with this
    // list alone, which are `Device<Verbs>`, and pass their objects to the functions below.
    unsafe { Methods::new(first) }
}

/// See `methods.h`.
///
/// # Safety
///
/// To be called by the method that the payload is for, with the objects that the core has found.
#[no_mangle]
unsafe extern "C" fn vrnic_method_range(
    qp: *mut bindings::ib_qp,
    dm: *mut bindings::ib_dm,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: the core has found the device memory, if the method names any, among the objects
        // of an open context of this driver, and keeps it until the method has returned.
        let dm = unsafe { dm::lend::<Verbs>(dm) };
        // SAFETY: the core has found the queue pair, or the opened handle of one, among the objects
        // of an open context of this driver, keeps it until the method has returned, and passes the
        // method's payload.
        unsafe {
            Qp::<Verbs>::lend_to_user(qp, udata, |ctx, qp, user| {
                verbs::direct_user::run(ctx, qp, dm, user)
            })
        }?;
        Ok(0)
    })
}

/// See `methods.h`.
///
/// # Safety
///
/// As for [`vrnic_method_range`].
#[no_mangle]
unsafe extern "C" fn vrnic_method_attach(
    qp: *mut bindings::ib_qp,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: the core has found the queue pair, or the opened handle of one, among the objects
        // of an open context of this driver, keeps it until the method has returned, and passes the
        // method's payload.
        unsafe { Qp::<Verbs>::lend_to_user(qp, udata, verbs::tcp::toe::attach) }?;
        Ok(0)
    })
}

/// See `methods.h`.
///
/// # Safety
///
/// As for [`vrnic_method_range`].
#[no_mangle]
unsafe extern "C" fn vrnic_method_start(
    from: *mut bindings::ib_qp,
    to: *mut bindings::ib_qp,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: the core has found both queue pairs, or the opened handles of some, among the
        // objects of an open context of this driver, keeps them until the method has returned, and
        // passes the method's payload.
        unsafe {
            Qp::<Verbs>::lend_to_user(from, udata, |ctx, from, user| {
                Qp::<Verbs>::lend(to, |_, to| verbs::tcp::toe::start(ctx, from, to, user))
            })
        }?;
        Ok(0)
    })
}

/// See `methods.h`.
///
/// # Safety
///
/// As for [`vrnic_method_range`].
#[no_mangle]
unsafe extern "C" fn vrnic_method_connection(
    qp: *mut bindings::ib_qp,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: the core has found the queue pair, or the opened handle of one, among the objects
        // of an open context of this driver, keeps it until the method has returned, and passes the
        // method's payload.
        unsafe { Qp::<Verbs>::lend_to_user(qp, udata, verbs::tcp::connection::run) }?;
        Ok(0)
    })
}

/// See `methods.h`.
///
/// # Safety
///
/// As for [`vrnic_method_range`].
#[no_mangle]
unsafe extern "C" fn vrnic_method_query_dm(
    dm: *mut bindings::ib_dm,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: the core has found the device memory among the objects of an open context of this
        // driver, and keeps it until the method has returned.
        let dm = unsafe { dm::lend::<Verbs>(dm) }.ok_or(EINVAL)?;
        // SAFETY: the payload belongs to the method that runs, and the core has called the method
        // for an open context of this driver.
        let user = unsafe { User::<Verbs>::of_method(udata) }.ok_or(EINVAL)?;
        verbs::memory::dm::query(dm, &user)?;
        Ok(0)
    })
}

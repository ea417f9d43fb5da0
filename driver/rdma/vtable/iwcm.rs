// SPDX-License-Identifier: GPL-2.0
//! Trampolines of the connection manager of iWARP devices.

use core::ptr::NonNull;

use kernel::{
    error::from_result,
    ffi::{c_int, c_void},
    prelude::*,
};

use super::{CoreObject, EMPTY, VTable, Wrapper};
use crate::bindings;
use crate::rdma::{
    iwcm::{CmId, ConnParam, Given, IwOperations, Offer, private_data},
    queues::qp::Qp,
};

impl CoreObject for bindings::iw_cm_id {
    unsafe fn device(object: *mut Self) -> *mut bindings::ib_device {
        // SAFETY: the caller promises that the identifier is valid. The field does not change.
        unsafe { (*object).device }
    }
}

impl<T: IwOperations> VTable<T> {
    /// Operations that only iWARP devices have. The core needs all of them.
    pub(in crate::rdma) const IWCM: bindings::ib_device_ops = bindings::ib_device_ops {
        iw_add_ref: Some(Self::iw_add_ref),
        iw_rem_ref: Some(Self::iw_rem_ref),
        iw_get_qp: Some(Self::iw_get_qp),
        iw_connect: Some(Self::iw_connect),
        iw_accept: Some(Self::iw_accept),
        iw_reject: Some(Self::iw_reject),
        iw_create_listen: Some(Self::iw_create_listen),
        iw_destroy_listen: Some(Self::iw_destroy_listen),
        ..EMPTY
    };

    /// Does nothing: the core calls this only after `iw_get_qp`, which has taken the reference,
    /// as the queue pair could go in between.
    unsafe extern "C" fn iw_add_ref(_qp: *mut bindings::ib_qp) {}

    unsafe extern "C" fn iw_rem_ref(qp: *mut bindings::ib_qp) {
        // SAFETY: the core gives back a reference that `iw_get_qp` has taken, until which the queue
        // pair is not destroyed.
        unsafe { Qp::<T>::from_raw(qp) }.references().give_back();
    }

    unsafe extern "C" fn iw_get_qp(
        device: *mut bindings::ib_device,
        number: c_int,
    ) -> *mut bindings::ib_qp {
        let Ok(number) = u32::try_from(number) else { return core::ptr::null_mut() };
        let take = |raw: *mut bindings::ib_qp, qp: &Qp<T>| qp.references().take().then_some(raw);
        // SAFETY: the core calls this as an operation of this device.
        let taken =
            unsafe { Self::with(device, |_, data| Self::with_qp(device, data, number, take)) };
        taken.flatten().unwrap_or(core::ptr::null_mut())
    }

    /// Calls `run` with the queue pair of `device` that has this number, if there is one. `run`
    /// must not sleep.
    fn with_qp<R>(
        device: *const bindings::ib_device,
        data: &T::Data<'_>,
        number: u32,
        run: impl FnOnce(*mut bindings::ib_qp, &Qp<T>) -> R,
    ) -> Option<R> {
        let run = |qp: NonNull<bindings::ib_qp>| {
            // SAFETY: `with` keeps the queue pair alive; only the field's address is made.
            let field = unsafe { &raw const (*qp.as_ptr()).qp_num };
            // SAFETY: the field is part of a queue pair that `with` keeps alive. It is written last
            // when the queue pair is created, by one store.
            let created = unsafe { field.read_volatile() };
            // SAFETY: `with` keeps the queue pair alive. The core has set the field before it let
            // the driver create the queue pair.
            let of = unsafe { (*qp.as_ptr()).device };
            if created != number || of.cast_const() != device {
                return None;
            }
            // SAFETY: one that has its number is initialised, and is alive during this closure.
            Some(run(qp.as_ptr(), unsafe { Qp::<T>::from_raw(qp.as_ptr()) }))
        };
        // A queue pair has the number zero while it is created.
        let link = if number == 0 { None } else { T::get_qp(data, number) };
        link?.with(run).flatten()
    }

    /// Returns an error unless the caller of the operation `iw_connect` or `iw_accept`, to which
    /// the core has passed `id`, may connect the queue pair of this number.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    ///
    /// # Safety
    ///
    /// To be called from one of these operations.
    unsafe fn check_owner<S: Given>(id: &CmId<S>, number: u32) -> Result {
        let raw = id.as_ptr();
        let may_connect = |qp: *mut bindings::ib_qp, this: &Qp<T>| {
            // SAFETY: the caller promises that the owner of the identifier is in a call.
            T::may_connect(this, unsafe { id.client_has(qp) })
        };
        // SAFETY: the identifier is alive, and its device was set before.
        let device = unsafe { (*raw).device };
        // SAFETY: the caller promises that this is an operation, which is one of this device.
        let allowed = unsafe {
            Self::with(device, |_, data| Self::with_qp(device, data, number, may_connect))
        };
        if allowed == Some(true) { Ok(()) } else { Err(EPERM) }
    }

    unsafe extern "C" fn iw_connect(
        id: *mut bindings::iw_cm_id,
        param: *mut bindings::iw_cm_conn_param,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes an identifier that is alive during the call.
            let counted = unsafe { CmId::new(NonNull::new(id).ok_or(EINVAL)?) };
            // SAFETY: the core passes parameters that are valid during the call.
            let param = unsafe { &*param };
            // SAFETY: the private data of these parameters is valid during the call.
            let param = unsafe { ConnParam::from_raw(param) };
            // SAFETY: this is an operation by which the owner connects.
            unsafe { Self::check_owner(&counted, param.qpn) }?;
            // SAFETY: the core calls this as an operation of the identifier's device.
            let result = unsafe {
                Self::with_device_of(id, |device, data| T::connect(data, device, counted, &param))
            };
            CmId::outcome(id, result)?;
            Ok(0)
        })
    }

    unsafe extern "C" fn iw_accept(
        id: *mut bindings::iw_cm_id,
        param: *mut bindings::iw_cm_conn_param,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes an identifier that is alive during the call.
            let counted = unsafe { CmId::new(NonNull::new(id).ok_or(EINVAL)?) };
            // SAFETY: the core passes an identifier that is alive during the call.
            let offer = unsafe { Self::offer(id) };
            // SAFETY: the core passes parameters that are valid during the call.
            let param = unsafe { &*param };
            // SAFETY: the private data of these parameters is valid during the call.
            let param = unsafe { ConnParam::from_raw(param) };
            // SAFETY: this is an operation by which the owner accepts.
            if let Err(error) = unsafe { Self::check_owner(&counted, param.qpn) } {
                // The core does not reject a request whose acceptance has failed. One that has
                // gone needs no answer.
                // SAFETY: the core calls this as an operation of the identifier's device.
                let _ = unsafe { Self::with_device_of(id, |_, data| T::reject(data, offer, &[])) };
                return Err(error);
            }
            // SAFETY: the core calls this as an operation of the identifier's device.
            let result = unsafe {
                Self::with_device_of(id, |device, data| {
                    T::accept(data, device, counted, offer, &param)
                })
            };
            CmId::outcome(id, result)?;
            Ok(0)
        })
    }

    unsafe extern "C" fn iw_reject(
        id: *mut bindings::iw_cm_id,
        data: *const c_void,
        length: u8,
    ) -> c_int {
        from_result(|| {
            // SAFETY: the core passes an identifier that is alive during the call.
            let offer = unsafe { Self::offer(id) };
            // SAFETY: the core passes this many bytes, or null.
            let private = unsafe { private_data(data.cast(), length.into()) };
            // SAFETY: the core calls this as an operation of the identifier's device.
            unsafe { Self::with_device_of(id, |_, data| T::reject(data, offer, private)) }?;
            Ok(0)
        })
    }

    /// Returns the number of the request that an identifier was made for.
    ///
    /// # Safety
    ///
    /// The identifier must be alive.
    unsafe fn offer(id: *mut bindings::iw_cm_id) -> Offer {
        // SAFETY: the caller promises that the identifier is alive. The core has set the field
        // before the driver gets to know it.
        Offer(unsafe { (*id).provider_data }.addr())
    }

    unsafe extern "C" fn iw_create_listen(id: *mut bindings::iw_cm_id, backlog: c_int) -> c_int {
        from_result(|| {
            // SAFETY: the core passes an identifier that is alive during the call.
            let counted = unsafe { CmId::new(NonNull::new(id).ok_or(EINVAL)?) };
            // SAFETY: the core calls this as an operation of the identifier's device.
            unsafe {
                Self::with_device_of(id, |device, data| {
                    T::create_listen(data, device, counted, backlog)
                })
            }?;
            Ok(0)
        })
    }

    unsafe extern "C" fn iw_destroy_listen(id: *mut bindings::iw_cm_id) -> c_int {
        from_result(|| {
            let identity = CmId::identity_of(id);
            // SAFETY: the core calls this as an operation of the identifier's device.
            unsafe { Self::with_device_of(id, |_, data| T::destroy_listen(data, identity)) }?;
            Ok(0)
        })
    }
}

// SPDX-License-Identifier: GPL-2.0
//! A client of the core, which is called when devices of the driver are added and removed.

use core::{
    marker::PhantomData,
    mem,
    ptr::NonNull, //
};

use kernel::{
    error::{from_result, to_result},
    ffi::{c_int, c_void},
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    types::Opaque,
};

use super::attached::{Attached, Gone};
use crate::bindings;

/// The driver's number (`RDMA_DRIVER_ID` of the abi), by which its devices are known.
const DRIVER_ID: u32 = 0x7672_6e69;

/// A user of devices.
pub trait User: Sized + 'static {
    /// The data that it keeps of a device between the calls.
    type Held: Send + 'static;
    /// The client's name, which owns the core's objects.
    const NAME: &'static CStr;

    /// Returns the client that the module registers.
    fn client() -> &'static Client<Self>;

    /// Called for each device that comes or is there; may sleep. If nothing is returned, the device
    /// is no longer used on return, or soon after it.
    ///
    /// # Errors
    ///
    /// Any; the core ignores them.
    fn come(device: Arc<Attached>) -> Result<Option<Self::Held>>;

    /// Called once for each device of which something is held, before it goes or the client does;
    /// may sleep. The device is no longer used on return, or soon after it.
    fn go(device: Arc<Attached>, held: Self::Held);
}

/// The data that the core keeps for the client between its callbacks.
struct Kept<T: User> {
    held: T::Held,
    device: Arc<Attached>,
    gone: Arc<Gone>,
}

/// Called for each device that comes or is there; may sleep.
unsafe extern "C" fn add<T: User>(raw: *mut bindings::ib_device) -> c_int {
    from_result(|| {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: the core passes a device that is registered; its operations do not change.
        if unsafe { (*raw.as_ptr()).ops.driver_id } != DRIVER_ID {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: the device is registered until this call returns, or, if it leaves something for
        // `remove`, until that returns. Both wait for `gone` first.
        let (device, gone) = unsafe { Attached::new(raw, T::NAME) }?;
        match attach::<T>(device, &gone) {
            Ok(Some(kept)) => {
                let data = KBox::into_raw(kept).cast();
                let client = T::client().0.get();
                // SAFETY: the core passes a device that is registered, for this client.
                unsafe { bindings::ib_set_client_data(raw.as_ptr(), client, data) };
                Ok(0)
            }
            done => {
                gone.completion.wait_for_completion();
                done.map(|_| 0)
            }
        }
    })
}

/// Gives a device to its user, and returns data for `remove` if the user keeps something.
fn attach<T: User>(device: Arc<Attached>, gone: &Arc<Gone>) -> Result<Option<KBox<Kept<T>>>> {
    let Some(held) = T::come(device.clone())? else { return Ok(None) };
    match KBox::new_uninit(GFP_KERNEL) {
        Ok(place) => Ok(Some(KBox::write(place, Kept { held, device, gone: gone.clone() }))),
        Err(error) => {
            T::go(device, held);
            Err(error.into())
        }
    }
}

/// Called once for each device that `add` took, before it goes or the client does; may sleep.
unsafe extern "C" fn remove<T: User>(_raw: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: `add` has left the pointer of a `KBox` as the device's data, which the core gives
    // back once.
    let kept = unsafe { KBox::<Kept<T>>::from_raw(data.cast()) };
    let Kept { held, device, gone } = KBox::into_inner(kept);
    T::go(device, held);
    gone.completion.wait_for_completion();
}

/// The core's struct of a client, and the number of its registrations.
pub struct Client<T: User>(Opaque<bindings::ib_client>, Atomic<u32>, PhantomData<fn(T)>);

// SAFETY: only the core changes the struct, under its own locks.
unsafe impl<T: User> Sync for Client<T> {}

impl<T: User> Client<T> {
    /// Returns a client of `T`.
    pub const fn new() -> Self {
        let raw = Opaque::new(bindings::ib_client {
            name: T::NAME.as_ptr().cast(),
            add: Some(add::<T>),
            remove: Some(remove::<T>),
            // SAFETY: a plain C struct of numbers, pointers and optional functions, for which zero
            // is valid; the rest of it is set by registering.
            ..unsafe { mem::zeroed() }
        });
        Self(raw, Atomic::new(0), PhantomData)
    }
}

/// The client of `T`, registered until this is dropped.
pub struct Registration<T: User>(PhantomData<fn(T)>);

impl<T: User> Registration<T> {
    /// Registers it: on return the devices that there are have come.
    ///
    /// # Errors
    ///
    /// `EBUSY` if that was done before.
    pub fn new() -> Result<Self> {
        let client = T::client();
        if client.1.fetch_add(1, Relaxed) != 0 {
            return Err(EBUSY);
        }
        // SAFETY: the struct is static, and registered once; the callbacks are part of the module,
        // which unregisters it before it goes.
        to_result(unsafe { bindings::ib_register_client(client.0.get()) })?;
        Ok(Self(PhantomData))
    }
}

impl<T: User> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `new` has registered the client. On return `remove` has returned for all devices.
        unsafe { bindings::ib_unregister_client(T::client().0.get()) };
    }
}

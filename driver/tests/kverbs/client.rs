// SPDX-License-Identifier: GPL-2.0
//! The client of the core, which is called when devices are added and removed.

use core::{mem, ptr::NonNull};

use kernel::{
    error::{from_result, to_result},
    ffi::{c_int, c_void},
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    types::Opaque,
};

use crate::{
    attached::{Attached, Gone},
    bindings,
    death::Doomed,
    run,
};

/// The driver's number (`RDMA_DRIVER_ID` of the abi), by which its devices are known.
const DRIVER_ID: u32 = 0x7672_6e69;

/// The data that the core keeps for the client between its callbacks.
struct Held {
    doomed: Doomed,
    device: Arc<Attached>,
    gone: Arc<Gone>,
}

/// Called for each device that comes or is there; may sleep.
unsafe extern "C" fn add(raw: *mut bindings::ib_device) -> c_int {
    from_result(|| {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: the core passes a device that is registered; its operations do not change.
        if unsafe { (*raw.as_ptr()).ops.driver_id } != DRIVER_ID {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: the device is registered until this call returns, or, if it leaves something for
        // `remove`, until that returns. Both wait for `gone` first.
        let (device, gone) = unsafe { Attached::new(raw) }?;
        match attach(device, &gone) {
            Ok(Some(held)) => {
                let data = KBox::into_raw(held).cast();
                // SAFETY: the core passes a device that is registered, for this client.
                unsafe { bindings::ib_set_client_data(raw.as_ptr(), CLIENT.0.get(), data) };
                Ok(0)
            }
            done => {
                gone.completion.wait_for_completion();
                done.map(|_| 0)
            }
        }
    })
}

/// Tests a device, and returns data for `remove` if a test waits. Otherwise the device is no longer
/// used on return, or soon after it.
fn attach(device: Arc<Attached>, gone: &Arc<Gone>) -> Result<Option<KBox<Held>>> {
    let Some(doomed) = run::come(device.clone())? else { return Ok(None) };
    Ok(Some(KBox::new(Held { doomed, device, gone: gone.clone() }, GFP_KERNEL)?))
}

/// Called once for each device that `add` took, before it goes or the client does; may sleep.
unsafe extern "C" fn remove(_raw: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: `add` has left the pointer of a `KBox` as the device's data, which the core gives
    // back once.
    let held = unsafe { KBox::<Held>::from_raw(data.cast()) };
    let Held { doomed, device, gone } = KBox::into_inner(held);
    run::go(device, doomed);
    gone.completion.wait_for_completion();
}

/// The core's struct.
struct Client(Opaque<bindings::ib_client>);

// SAFETY: the core alone changes the struct, under its own locks.
unsafe impl Sync for Client {}

static CLIENT: Client = Client(Opaque::new(bindings::ib_client {
    name: crate::NAME.as_ptr().cast(),
    add: Some(add),
    remove: Some(remove),
    // SAFETY: a plain C struct of numbers, pointers and optional functions, for which zero is
    // valid; the rest of it is set by registering.
    ..unsafe { mem::zeroed() }
}));

/// The client, registered until this is dropped.
pub(crate) struct Registration(());

impl Registration {
    /// Registers it: on return the devices that there are have been tested.
    ///
    /// # Errors
    ///
    /// `EBUSY` if that was done before.
    pub(crate) fn new() -> Result<Self> {
        static REGISTERED: Atomic<u32> = Atomic::new(0);
        if REGISTERED.fetch_add(1, Relaxed) != 0 {
            return Err(EBUSY);
        }
        // SAFETY: the struct is static, and registered once; the callbacks are part of the module,
        // which unregisters it before it goes.
        to_result(unsafe { bindings::ib_register_client(CLIENT.0.get()) })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `new` has registered the client. On return `remove` has returned for all devices.
        unsafe { bindings::ib_unregister_client(CLIENT.0.get()) };
    }
}

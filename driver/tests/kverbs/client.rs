// SPDX-License-Identifier: GPL-2.0
//! The core's client: devices that come and go.
//!
//! Whoever uses a device keeps its [`Attached`], and the core is told that the client is done with
//! the device when the last has let go of that: neither callback returns before.

use core::{mem, ptr::NonNull};

use kernel::{
    device,
    error::{from_result, to_result},
    ffi::{c_int, c_void},
    prelude::*,
    str::CStr,
    sync::{
        Arc, Completion,
        atomic::{Atomic, Relaxed},
    },
    types::Opaque,
};

use crate::{bindings, death::Doomed, kclient::pd::Device, run};

/// The driver's number (`RDMA_DRIVER_ID` of the abi), by which its devices are known.
const DRIVER_ID: u32 = 0x7672_6e69;

/// Told when nobody uses a device any more.
#[pin_data]
struct Gone {
    #[pin]
    completion: Completion,
}

/// A device of the driver.
pub(crate) struct Attached {
    raw: NonNull<bindings::ib_device>,
    gone: Arc<Gone>,
}

// SAFETY: devices may be used by any thread.
unsafe impl Send for Attached {}
// SAFETY: devices may be used by any thread; what changes is atomic.
unsafe impl Sync for Attached {}

// SAFETY: `add` and `remove`, during which the device is registered and between which it stays so,
// wait for all users.
unsafe impl Device for Attached {
    fn as_raw(&self) -> NonNull<bindings::ib_device> {
        self.raw
    }

    fn owner(&self) -> &'static CStr {
        crate::NAME
    }
}

impl Attached {
    /// # Safety
    ///
    /// The device must be registered until the completion of what is returned beside it.
    unsafe fn new(raw: NonNull<bindings::ib_device>) -> Result<(Arc<Self>, Arc<Gone>)> {
        let gone = Arc::pin_init(pin_init!(Gone { completion <- Completion::new() }), GFP_KERNEL)?;
        let this = Arc::new(Self { raw, gone: gone.clone() }, GFP_KERNEL)?;
        Ok((this, gone))
    }

    /// The device's name.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: registered; both views of the union begin with the device.
        unsafe {
            let device = &raw mut (*self.raw.as_ptr()).__bindgen_anon_1.dev;
            <device::Device>::from_raw(device.cast()).name()
        }
    }

    /// Entries of a completion queue, at most.
    pub(crate) fn max_cqe(&self) -> Result<u32> {
        // SAFETY: registered; constant.
        Ok(unsafe { (*self.raw.as_ptr()).attrs.max_cqe }.try_into()?)
    }

    /// Its capabilities (`enum ib_device_cap_flags`).
    pub(crate) fn capabilities(&self) -> u64 {
        // SAFETY: registered; constant.
        unsafe { (*self.raw.as_ptr()).attrs.device_cap_flags }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.gone.completion.complete_all();
    }
}

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
        // SAFETY: the core's device, whose operations do not change.
        if unsafe { (*raw.as_ptr()).ops.driver_id } != DRIVER_ID {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: registered during this call, which waits below, or, if it leaves something for
        // `remove`, until that returns, which waits.
        let (device, gone) = unsafe { Attached::new(raw) }?;
        match attach(device, &gone) {
            Ok(Some(held)) => {
                let data = KBox::into_raw(held).cast();
                // SAFETY: the core's device and its client.
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

/// Tests a device, and packs what is left for `remove`. Else nothing uses the device on return, or
/// will soon.
fn attach(device: Arc<Attached>, gone: &Arc<Gone>) -> Result<Option<KBox<Held>>> {
    let Some(doomed) = run::come(device.clone())? else { return Ok(None) };
    Ok(Some(KBox::new(Held { doomed, device, gone: gone.clone() }, GFP_KERNEL)?))
}

/// Called once for each device that `add` took, before it goes or the client does; may sleep.
unsafe extern "C" fn remove(_raw: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: what `add` left, which the core gives back once.
    let held = unsafe { KBox::<Held>::from_raw(data.cast()) };
    let Held { doomed, device, gone } = KBox::into_inner(held);
    run::go(device, doomed);
    gone.completion.wait_for_completion();
}

/// The core's struct.
struct Client(Opaque<bindings::ib_client>);

// SAFETY: the core changes it under its own locks; nobody else does.
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
        // SAFETY: static, and registered once; the callbacks are the module's, which unregisters it
        // before it goes.
        to_result(unsafe { bindings::ib_register_client(CLIENT.0.get()) })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered by `new`. On return `remove` has returned for all devices.
        unsafe { bindings::ib_unregister_client(CLIENT.0.get()) };
    }
}

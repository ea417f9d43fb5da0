// SPDX-License-Identifier: GPL-2.0
//! The RDMA device and its registration.

use core::{alloc::Layout, cell::UnsafeCell, ptr::NonNull};

use kernel::{device, error::to_result, prelude::*, str::CStr, types::Opaque};

use super::{
    bindings,
    event::DeviceLink,
    netdev::{NetdevRef, PortSettings},
    ops::Operations,
    pairing::Pairing,
    vtable::VTable,
};

/// The number of the one port.
pub(crate) const PORT: u32 = 1;

/// An RDMA device: `struct ib_device` first, then what the trampolines need.
///
/// # Invariants
///
/// `ib` is at offset 0 and was allocated by the core. `data` points to the data of the
/// [`Registration`] while operations can be called.
#[repr(C)]
pub(crate) struct Device<T: Operations> {
    ib: Opaque<bindings::ib_device>,
    data: UnsafeCell<NonNull<T::Data<'static>>>,
}

impl<T: Operations> Device<T> {
    /// Borrows the device behind the core's pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must point to the `ib_device` of a registered `Device<T>`, for `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: by the caller's promise and the layout.
        unsafe { &*ptr.cast() }
    }

    /// The core's struct.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.ib.get()
    }

    /// Calls `f` with the registration's data. The higher-ranked closure keeps the erased
    /// lifetime from escaping.
    ///
    /// # Safety
    ///
    /// Must be called from an operation of the device: those run only while it is registered.
    pub(super) unsafe fn with_data<R>(
        &self,
        f: impl for<'a> FnOnce(&'a Self, &'a T::Data<'a>) -> R,
    ) -> R {
        // SAFETY: by the type's invariant, as the caller promises that operations can be called;
        // lifetimes do not affect layout.
        let data = unsafe { (*self.data.get()).cast::<T::Data<'_>>().as_ref() };
        f(self, data)
    }

    /// Tells the driver how the Ethernet device is; see [`PortChanged`](super::pairing::PortChanged).
    unsafe fn port_changed(device: *mut bindings::ib_device, settings: &PortSettings) {
        // SAFETY: by the caller's promise the data is alive, as it is while operations can be called.
        let result =
            unsafe { Self::from_raw(device).with_data(|_, data| T::set_port(data, settings)) };
        if let Err(error) = result {
            // SAFETY: allocated by `Allocated::new`.
            let parent = unsafe { parent(device) };
            dev_warn!(parent, "the adapter does not take the port's {settings:?}: {error:?}\n");
        }
    }

    /// The Ethernet device that the port is paired with, if it is there.
    pub(crate) fn netdev(&self) -> Option<NetdevRef> {
        // SAFETY: the device is alive and has port 1; the function returns a counted reference
        // or null.
        let raw = unsafe { bindings::ib_device_get_netdev(self.as_raw(), PORT) };
        // SAFETY: the reference is ours.
        NonNull::new(raw).map(|raw| unsafe { NetdevRef::from_raw(raw) })
    }
}

// SAFETY: the core allows its device from any thread; `data` only changes while no operation
// can be called.
unsafe impl<T: Operations> Sync for Device<T> {}

// SAFETY: as for `Sync`; the device is freed by its `Registration`.
unsafe impl<T: Operations> Send for Device<T> {}

/// The C struct of a device.
fn raw_device(device: &device::Device<device::Bound>) -> *mut bindings::device {
    // The wrapper is transparent; its own accessor is private to the kernel crate.
    core::ptr::from_ref(device).cast_mut().cast()
}

/// What an RDMA device is below, by which messages name it: that has a name before the RDMA device does.
///
/// # Safety
///
/// `device` must have been allocated by [`Allocated::new`] and be alive during `'a`.
pub(super) unsafe fn parent<'a>(device: *const bindings::ib_device) -> &'a device::Device {
    // SAFETY: set on allocation; the driver is bound to it as long as there is the RDMA device.
    unsafe { device::Device::from_raw((*(*device).__bindgen_anon_1.dev).parent.cast()) }
}

/// What a device is registered with.
pub(crate) struct Config {
    /// Name pattern; `%d` is replaced by a number.
    pub(crate) name: &'static CStr,
    /// MAC of the port: gives the node GUID and finds the Ethernet device.
    pub(crate) mac: [u8; 6],
    /// Number of completion vectors.
    pub(crate) num_comp_vectors: u32,
}

/// A device that is allocated but not registered.
struct Allocated<T: Operations>(NonNull<Device<T>>);

impl<T: Operations> Drop for Allocated<T> {
    fn drop(&mut self) {
        // SAFETY: allocated by the core and not, or no longer, registered.
        unsafe { bindings::ib_dealloc_device(self.0.cast().as_ptr()) };
    }
}

impl<T: Operations> Allocated<T> {
    fn new(parent: &device::Device<device::Bound>, config: &Config) -> Result<Self> {
        let size = Layout::new::<Device<T>>().pad_to_align().size();
        // SAFETY: no preconditions.
        let raw = unsafe { bindings::rdma_helper_alloc_device(size) };
        let this = Self(NonNull::new(raw.cast()).ok_or(ENOMEM)?);
        // SAFETY: nobody else knows the new device; `ops` is copied by the callee.
        unsafe {
            (*raw).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*raw).phys_port_cnt = PORT;
            (*raw).num_comp_vectors = config.num_comp_vectors.try_into()?;
            // The core then tunes the moderation of kernel clients' queues (lib/dim/rdma_dim.c).
            (*raw).set_use_cq_dim(1);
            bindings::rdma_helper_node_guid(
                (&raw mut (*raw).node_guid).cast(),
                config.mac.as_ptr(),
            );
            (*(*raw).__bindgen_anon_1.dev).parent = raw_device(parent);
            bindings::ib_set_device_ops(raw, &VTable::<T>::new());
            // Allocates the port's data now, so that the notifier below need not.
            to_result(bindings::ib_device_set_netdev(raw, core::ptr::null_mut(), PORT))?;
        }
        Ok(this)
    }

    fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.cast().as_ptr()
    }
}

/// A registered device, which owns the data of its operations.
///
/// On drop all events cease, user contexts are disassociated and all objects destroyed; then the
/// data is dropped. As the lifetime is that of a bound parent, this happens before unbinding.
pub(crate) struct Registration<'a, T: Operations> {
    // Dropped in this order, by `drop` below for the first two. Pinned memory in the data refers to the device.
    pairing: Option<Pairing>,
    link: DeviceLink,
    _data: Pin<KBox<T::Data<'a>>>,
    device: Allocated<T>,
}

// SAFETY: everything in it may be used and dropped on any thread that may sleep.
unsafe impl<T: Operations> Send for Registration<'_, T> {}
// SAFETY: there are no shared operations but `link`, which returns a `Sync` object.
unsafe impl<T: Operations> Sync for Registration<'_, T> {}

impl<'a, T: Operations> Registration<'a, T> {
    /// Registers a device below `parent`; `data` is what its operations work on.
    ///
    /// # Safety
    ///
    /// The result must be dropped before `'a` ends: not leaked.
    pub(crate) unsafe fn new(
        parent: &'a device::Device<device::Bound>,
        config: &Config,
        data: impl PinInit<T::Data<'a>, Error>,
    ) -> Result<Self> {
        let device = Allocated::<T>::new(parent, config)?;
        let data: Pin<KBox<T::Data<'a>>> = KBox::pin_init(data, GFP_KERNEL)?;
        let raw = NonNull::new(device.as_raw()).ok_or(ENOMEM)?;
        // SAFETY: the device is not registered, so no operation reads the pointer yet; the
        // lifetime is restored by `with_data`.
        unsafe {
            (&raw mut (*device.0.as_ptr()).data)
                .write(UnsafeCell::new(NonNull::from(data.as_ref().get_ref()).cast()));
        }
        // SAFETY: revoked by `drop`, before the device goes, or below.
        let link = unsafe { DeviceLink::new(raw) }?;
        // SAFETY: as for `link`: `pairing` is dropped before the device and the data.
        let pairing = unsafe { Pairing::new(raw, config.mac, Device::<T>::port_changed) }
            .inspect_err(|_| link.revoke())?;
        // SAFETY: a fully set up device; the name is a format string with at most a `%d`; the
        // parent does the DMA.
        let result = to_result(unsafe {
            bindings::ib_register_device(
                device.as_raw(),
                config.name.as_char_ptr(),
                raw_device(parent),
            )
        });
        if let Err(error) = result {
            link.revoke();
            drop(pairing);
            return Err(error);
        }
        // The core reports changes of a state that it knows.
        pairing.report();
        Ok(Self { pairing: Some(pairing), link, device, _data: data })
    }

    /// Where to report events of the device and its port.
    pub(crate) fn link(&self) -> DeviceLink {
        self.link.clone()
    }
}

impl<T: Operations> Drop for Registration<'_, T> {
    fn drop(&mut self) {
        self.link.revoke();
        self.pairing = None;
        // SAFETY: registered by `new`; returns when no operation runs or will run.
        unsafe { bindings::ib_unregister_device(self.device.as_raw()) };
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The registration of RDMA devices.

use core::{cell::UnsafeCell, ptr::NonNull};

use kernel::{device, error::to_result, prelude::*, str::CStr};

use super::{
    attr::Protocol, bindings, device::Device, event::DeviceLink, iwcm::IwOperations,
    netdev::NetdevRef, vtable::VTable,
};

/// The properties that a device is allocated with.
pub(crate) struct Config {
    /// Its protocol.
    pub(crate) protocol: Protocol,
    /// GUID of the node, first byte first.
    pub(crate) node_guid: [u8; 8],
    /// Number of completion vectors.
    pub(crate) num_comp_vectors: u32,
    /// True if the core tunes the moderation of kernel clients' queues (`lib/dim/rdma_dim.c`).
    pub(crate) use_cq_dim: bool,
    /// The driver's own methods: the first element of a list that ends with an empty one.
    pub(crate) methods: &'static bindings::uapi_definition,
}

/// Returns the C struct of a device.
fn raw_device(device: &device::Device<device::Bound>) -> *mut bindings::device {
    // The wrapper is transparent; its own accessor is private to the kernel crate.
    core::ptr::from_ref(device).cast_mut().cast()
}

/// A device that the core has allocated.
///
/// # Invariants
///
/// The pointer is that of `_ib_alloc_device`, and the device is not registered when this is
/// dropped.
struct Allocated<T: IwOperations>(NonNull<Device<T>>);

impl<T: IwOperations> Drop for Allocated<T> {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the core has allocated the device, and it is not
        // registered.
        unsafe { bindings::ib_dealloc_device(self.as_raw()) };
    }
}

impl<T: IwOperations> Allocated<T> {
    fn new(parent: &device::Device<device::Bound>, config: &Config) -> Result<Self> {
        // SAFETY: the size is that of a `Device<T>`, which begins with an `ib_device`.
        let raw = unsafe { bindings::rdma_helper_alloc_device(Device::<T>::SIZE) };
        // INVARIANT: the core has allocated it just now.
        let this = Self(NonNull::new(raw.cast()).ok_or(ENOMEM)?);
        // SAFETY: the device was allocated above, and nobody else knows it.
        let ib = unsafe { &mut *raw };
        ib.node_type = match config.protocol {
            Protocol::Roce => bindings::RDMA_NODE_IB_CA as u8,
            Protocol::Iwarp => bindings::RDMA_NODE_RNIC as u8,
        };
        // Connections of iWARP have real sockets, so their ports need no mapping.
        ib.iw_driver_flags = bindings::iw_flags_IW_F_NO_PORT_MAP;
        ib.node_guid = u64::from_ne_bytes(config.node_guid);
        ib.phys_port_cnt = T::PORTS;
        ib.num_comp_vectors = config.num_comp_vectors.try_into()?;
        ib.set_use_cq_dim(config.use_cq_dim.into());
        ib.ops.set_uverbs_robust_udata(1);
        ib.driver_def = config.methods;
        // SAFETY: this view of the union is the device's own `struct device`, which the core has
        // initialised.
        unsafe { (*ib.__bindgen_anon_1.dev).parent = raw_device(parent) };
        for tables in [VTable::<T>::COMMON, VTable::<T>::of_protocol(config.protocol)] {
            for table in tables {
                // SAFETY: the device is not registered; the core copies the table.
                unsafe { bindings::ib_set_device_ops(raw, *table) };
            }
        }
        // Allocates the data of all ports, so that `set_netdev` need not.
        // SAFETY: the device has a port 1 and its operations; null is no Ethernet device.
        to_result(unsafe { bindings::ib_device_set_netdev(raw, core::ptr::null_mut(), 1) })?;
        Ok(this)
    }

    fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.cast().as_ptr()
    }
}

/// A device with the data of its operations.
///
/// # Invariants
///
/// `registered` says whether the device is registered. `Device::data` points to `_data`.
struct Inner<'a, T: IwOperations> {
    link: DeviceLink,
    registered: bool,
    // Dropped in this order: pinned memory in the data refers to the device.
    _data: Pin<KBox<T::Data<'a>>>,
    device: Allocated<T>,
}

impl<T: IwOperations> Drop for Inner<'_, T> {
    fn drop(&mut self) {
        self.link.revoke();
        if self.registered {
            // SAFETY: the device is registered by the type's invariants. On return no operation
            // runs or will run.
            unsafe { bindings::ib_unregister_device(self.device.as_raw()) };
        }
    }
}

// SAFETY: the core allows its devices to be used and freed on any thread that may sleep; the data
// is `Send`.
unsafe impl<T: IwOperations> Send for Inner<'_, T> {}
// SAFETY: the one shared operation is a clone of `link`, which is `Sync`.
unsafe impl<T: IwOperations> Sync for Inner<'_, T> {}

/// A device that is not registered yet: it can be paired with Ethernet devices, but nobody uses it.
///
/// # Invariants
///
/// The device is not registered, and its data is set.
pub(crate) struct Unregistered<'a, T: IwOperations>(Inner<'a, T>);

impl<'a, T: IwOperations> Unregistered<'a, T> {
    /// Allocates a device below `parent`; `data` is what its operations work on.
    ///
    /// # Safety
    ///
    /// The result, or the [`Registration`] made of it, must be dropped before `'a` ends: not
    /// leaked.
    pub(crate) unsafe fn new(
        parent: &'a device::Device<device::Bound>,
        config: &Config,
        data: impl PinInit<T::Data<'a>, Error>,
    ) -> Result<Self> {
        let device = Allocated::<T>::new(parent, config)?;
        let data: Pin<KBox<T::Data<'a>>> = KBox::pin_init(data, GFP_KERNEL)?;
        let pointer = UnsafeCell::new(NonNull::from(data.as_ref().get_ref()).cast());
        // SAFETY: the device was allocated with room for the field, whose address alone is made.
        let field = unsafe { &raw mut (*device.0.as_ptr()).data };
        // SAFETY: the field is in bounds and aligned, and nobody else knows the device.
        unsafe { field.write(pointer) };
        let raw = NonNull::new(device.as_raw()).ok_or(ENOMEM)?;
        // SAFETY: `Inner::drop` revokes the link before the device goes.
        let link = unsafe { DeviceLink::new(raw) }?;
        // INVARIANT: the field with the data was written above; the device is new, and not
        // registered.
        Ok(Self(Inner { link, registered: false, _data: data, device }))
    }

    /// Returns a reference that events are reported through, and that outlives the device.
    pub(crate) fn link(&self) -> DeviceLink {
        self.0.link.clone()
    }
}

/// A registered device, which owns the data of its operations.
///
/// On drop all events cease, user contexts are disassociated and all objects destroyed; then the
/// data is dropped. As the lifetime is that of a bound parent, this happens before unbinding.
///
/// # Invariants
///
/// The device is registered.
pub(crate) struct Registration<'a, T: IwOperations> {
    _inner: Inner<'a, T>,
}

impl<'a, T: IwOperations> Registration<'a, T> {
    /// Registers a device below the parent that it was allocated for. In `name` a `%d` is replaced
    /// by a number.
    pub(crate) fn new(
        device: Unregistered<'a, T>,
        parent: &'a device::Device<device::Bound>,
        name: &'static CStr,
    ) -> Result<Self> {
        let Unregistered(mut inner) = device;
        let raw = inner.device.as_raw();
        // SAFETY: the device is alive.
        if let Some(netdev) =
            NonNull::new(raw).and_then(|raw| unsafe { NetdevRef::of_port(raw, 1) })
        {
            // SAFETY: nobody else knows the device before it is registered.
            netdev.copy_name(unsafe { &mut (*raw).iw_ifname });
        }
        // SAFETY: `Allocated::new` has set the device up, and `Unregistered::new` its data; the
        // name is a format with one `%d` at most, of which the core makes sure.
        to_result(unsafe {
            bindings::ib_register_device(raw, name.as_char_ptr(), raw_device(parent))
        })?;
        // INVARIANT: it was registered just now.
        inner.registered = true;
        Ok(Self { _inner: inner })
    }
}

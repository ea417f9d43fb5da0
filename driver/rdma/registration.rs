// SPDX-License-Identifier: GPL-2.0
//! The registration of RDMA devices.

use core::{cell::UnsafeCell, marker::PhantomData, ptr::NonNull};

use kernel::{device, error::to_result, prelude::*, str::CStr};

use super::{
    device::Device, event::DeviceLink, iwcm::IwOperations, ops::Operations, port::attr::Protocol,
    port::netdev::NetdevRef, vtable::VTable,
};
use crate::bindings;

/// The properties that a device is allocated with.
pub(crate) struct Config<T: Operations> {
    /// The operations and attributes that only an iWARP device has. A device without them is a RoCE
    /// device.
    pub(crate) iwarp: Option<Iwarp<T>>,
    /// GUID of the node, first byte first.
    pub(crate) node_guid: [u8; 8],
    /// Number of completion vectors.
    pub(crate) num_comp_vectors: u32,
    /// True if the core tunes the moderation of kernel clients' queues (`lib/dim/rdma_dim.c`).
    pub(crate) use_cq_dim: bool,
    /// The driver's own methods, if there are any.
    pub(crate) methods: Option<Methods<T>>,
}

/// The methods that driver `T` adds, and its changes to methods of the core
/// (`ib_device::driver_def`).
///
/// # Invariants
///
/// `first` is the first element of a list that ends with an empty one. Its handlers expect devices
/// and objects of driver `T`.
pub(crate) struct Methods<T: Operations> {
    first: &'static bindings::uapi_definition,
    _driver: PhantomData<T>,
}

impl<T: Operations> Methods<T> {
    /// # Safety
    ///
    /// `first` must be the first element of a list that ends with an empty one, and whose handlers
    /// expect devices and objects of driver `T`.
    pub(crate) unsafe fn new(first: &'static bindings::uapi_definition) -> Self {
        // INVARIANT: the caller passes such a list.
        Self { first, _driver: PhantomData }
    }
}

impl<T: Operations> Config<T> {
    fn protocol(&self) -> Protocol {
        if self.iwarp.is_some() { Protocol::Iwarp } else { Protocol::Roce }
    }
}

/// The additional properties of an iWARP device. Drivers that have no such devices need no
/// [`IwOperations`].
pub(crate) struct Iwarp<T: Operations> {
    manager: &'static bindings::ib_device_ops,
    port: u32,
    map_ports: bool,
    _driver: PhantomData<T>,
}

impl<T: IwOperations> Iwarp<T> {
    /// Describes a device that uses the Ethernet device of `port`. `map_ports` is true if its
    /// connections are hidden from the kernel's TCP, so that their ports must be reserved by the
    /// port mapper (`iwpmd`).
    pub(crate) fn new(port: u32, map_ports: bool) -> Self {
        let manager = const { &VTable::<T>::IWCM };
        Self { manager, port, map_ports, _driver: PhantomData }
    }
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
/// `_ib_alloc_device` has returned the pointer, and the device is not registered when this is
/// dropped.
struct Allocated<T: Operations>(NonNull<Device<T>>);

impl<T: Operations> Drop for Allocated<T> {
    fn drop(&mut self) {
        // SAFETY: by the type's invariants the core has allocated the device, and it is not
        // registered.
        unsafe { bindings::ib_dealloc_device(self.as_raw()) };
    }
}

impl<T: Operations> Allocated<T> {
    fn new(parent: &device::Device<device::Bound>, config: &Config<T>) -> Result<Self> {
        // SAFETY: a `Device<T>` has this size, and begins with an `ib_device`.
        let raw = unsafe { bindings::rdma_helper_alloc_device(Device::<T>::SIZE) };
        // INVARIANT: the core has allocated it just now.
        let this = Self(NonNull::new(raw.cast()).ok_or(ENOMEM)?);
        // SAFETY: the device was allocated above, and no other code knows it.
        let ib = unsafe { &mut *raw };
        ib.node_type = match config.protocol() {
            Protocol::Roce => bindings::RDMA_NODE_IB_CA as u8,
            Protocol::Iwarp => bindings::RDMA_NODE_RNIC as u8,
        };
        if config.iwarp.as_ref().is_some_and(|iwarp| !iwarp.map_ports) {
            ib.iw_driver_flags = bindings::iw_flags_IW_F_NO_PORT_MAP;
        }
        ib.node_guid = u64::from_ne_bytes(config.node_guid);
        ib.phys_port_cnt = T::PORTS;
        ib.num_comp_vectors = config.num_comp_vectors.try_into()?;
        ib.set_use_cq_dim(config.use_cq_dim.into());
        ib.ops.set_uverbs_robust_udata(1);
        let methods = config.methods.as_ref().map(|methods| core::ptr::from_ref(methods.first));
        ib.driver_def = methods.unwrap_or(core::ptr::null());
        // SAFETY: this view of the union is the device's own `struct device`, which the core has
        // initialised.
        unsafe { (*ib.__bindgen_anon_1.dev).parent = raw_device(parent) };
        let manager = config.iwarp.as_ref().map(|iwarp| iwarp.manager);
        let of_protocol = VTable::<T>::of_protocol(config.protocol());
        for tables in [VTable::<T>::COMMON, of_protocol, manager.as_slice()] {
            for table in tables {
                // SAFETY: the device is not registered; the core copies the table.
                unsafe { bindings::ib_set_device_ops(raw, *table) };
            }
        }
        for port in 1..=T::PORTS {
            let none = core::ptr::null_mut();
            // The first call allocates the data of all ports, so that `set_netdev` need not.
            // SAFETY: the device has this port and its operations; null is no Ethernet device.
            to_result(unsafe { bindings::ib_device_set_netdev(raw, none, port) })?;
        }
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
struct Inner<'a, T: Operations> {
    link: DeviceLink,
    registered: bool,
    /// The port of a device of iWARP.
    iwarp_port: Option<u32>,
    // The fields are dropped in this order: pinned memory in the data refers to the device.
    _data: Pin<KBox<T::Data<'a>>>,
    device: Allocated<T>,
}

impl<T: Operations> Drop for Inner<'_, T> {
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
unsafe impl<T: Operations> Send for Inner<'_, T> {}
// SAFETY: the one shared operation is a clone of `link`, which is `Sync`.
unsafe impl<T: Operations> Sync for Inner<'_, T> {}

/// A device that is not registered yet: it can be paired with Ethernet devices, but no code uses
/// it.
///
/// # Invariants
///
/// The device is not registered, and its data is set.
pub(crate) struct Unregistered<'a, T: Operations>(Inner<'a, T>);

impl<'a, T: Operations> Unregistered<'a, T> {
    /// Allocates a device below `parent`; `data` is what its operations work on.
    ///
    /// # Safety
    ///
    /// The result, or the [`Registration`] made of it, must be dropped before `'a` ends: not
    /// leaked.
    pub(crate) unsafe fn new(
        parent: &'a device::Device<device::Bound>,
        config: &Config<T>,
        data: impl PinInit<T::Data<'a>, Error>,
    ) -> Result<Self> {
        let device = Allocated::<T>::new(parent, config)?;
        let data: Pin<KBox<T::Data<'a>>> = KBox::pin_init(data, GFP_KERNEL)?;
        let pointer = UnsafeCell::new(NonNull::from(data.as_ref().get_ref()).cast());
        // SAFETY: the device was allocated with room for the field, of which only the address is
        // made.
        let field = unsafe { &raw mut (*device.0.as_ptr()).data };
        // SAFETY: the field is in bounds and aligned, and no other code knows the device.
        unsafe { field.write(pointer) };
        let raw = NonNull::new(device.as_raw()).ok_or(ENOMEM)?;
        // SAFETY: `Inner::drop` revokes the link before the device goes.
        let link = unsafe { DeviceLink::new(raw) }?;
        // INVARIANT: the field with the data was written above; the device is new, and not
        // registered.
        let iwarp_port = config.iwarp.as_ref().map(|iwarp| iwarp.port);
        Ok(Self(Inner { link, registered: false, iwarp_port, _data: data, device }))
    }

    /// Returns a reference that events are reported through, and that outlives the device.
    pub(crate) fn link(&self) -> DeviceLink {
        self.0.link.clone()
    }
}

/// A registered device, which owns the data of its operations.
///
/// On drop all events cease, user contexts are disassociated and all objects destroyed; then the
/// data is dropped. The lifetime ends while the parent is still bound, so this happens before
/// unbinding.
///
/// # Invariants
///
/// The device is registered.
pub(crate) struct Registration<'a, T: Operations> {
    _inner: Inner<'a, T>,
}

impl<'a, T: Operations> Registration<'a, T> {
    /// Registers a device below the parent that it was allocated for. It gets the first free name
    /// of [`Operations::NAMES`].
    pub(crate) fn new(
        device: Unregistered<'a, T>,
        parent: &'a device::Device<device::Bound>,
    ) -> Result<Self> {
        const { assert!(is_pattern(T::NAMES), "a pattern of names must have one '%d', and no more") };
        let Unregistered(mut inner) = device;
        let raw = inner.device.as_raw();
        // The port mapper of iWARP wants to know it.
        // SAFETY: the device is alive.
        let of_port = |port| unsafe { NetdevRef::of_port(NonNull::new(raw)?, port) };
        if let Some(netdev) = inner.iwarp_port.and_then(of_port) {
            // SAFETY: no other code knows the device before it is registered.
            netdev.copy_name(unsafe { &mut (*raw).iw_ifname });
        }
        // SAFETY: `Allocated::new` has set the device up, and `Unregistered::new` its data. The
        // name is a format whose only conversion is one `%d`, as was checked above.
        to_result(unsafe {
            bindings::ib_register_device(raw, T::NAMES.as_char_ptr(), raw_device(parent))
        })?;
        // INVARIANT: it was registered just now.
        inner.registered = true;
        Ok(Self { _inner: inner })
    }
}

/// Returns whether a format has the conversion `%d` once, and no other.
const fn is_pattern(format: &CStr) -> bool {
    let bytes = format.to_bytes();
    let (mut at, mut found) = (0, 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            if at + 1 == bytes.len() || bytes[at + 1] != b'd' {
                return false;
            }
            found += 1;
        }
        at += 1;
    }
    found == 1
}

const _: () = {
    assert!(is_pattern(c"vrnic%d") && is_pattern(c"%d"));
    assert!(!is_pattern(c"vrnic") && !is_pattern(c"%s") && !is_pattern(c"%d%d"));
    assert!(!is_pattern(c"%%d") && !is_pattern(c"vrnic%") && !is_pattern(c"%d%n"));
};

// SPDX-License-Identifier: GPL-2.0
//! Pairing with an Ethernet device: the one whose permanent address is the port's MAC. It may
//! appear, go and come back at any time.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi::{c_int, c_ulong, c_void},
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
    types::Opaque,
};

use super::{
    bindings,
    device::{PORT, parent},
};

/// A counted reference to a network device.
pub(crate) struct NetdevRef(NonNull<bindings::net_device>);

impl NetdevRef {
    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// `raw` must be a network device with a reference that the caller owns.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::net_device>) -> Self {
        Self(raw)
    }

    /// Whether the device is up and has a carrier.
    pub(crate) fn is_active(&self) -> bool {
        // SAFETY: a live device, by the reference.
        unsafe { is_active(self.0.as_ptr()) }
    }

    /// The longest IP packet in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: a live device, by the reference.
        unsafe { bindings::rdma_helper_netdev_mtu(self.0.as_ptr()) }
    }

    /// The largest path MTU (`enum ib_mtu`) whose packets fit, if any does.
    pub(crate) fn path_mtu(&self) -> Option<u32> {
        // SAFETY: a live device, by the reference.
        unsafe { path_mtu(self.0.as_ptr()) }
    }
}

/// See [`NetdevRef::is_active`].
///
/// # Safety
///
/// `netdev` must be a live network device.
unsafe fn is_active(netdev: *mut bindings::net_device) -> bool {
    // SAFETY: by the caller's promise.
    let state = unsafe { bindings::rdma_helper_port_state(netdev) };
    u32::from(state) == bindings::ib_port_state_IB_PORT_ACTIVE
}

/// See [`NetdevRef::path_mtu`].
///
/// # Safety
///
/// As for [`is_active`].
unsafe fn path_mtu(netdev: *mut bindings::net_device) -> Option<u32> {
    // SAFETY: by the caller's promise.
    let mtu = unsafe { bindings::rdma_helper_netdev_rdma_mtu(netdev) };
    u32::try_from(mtu).ok().filter(|mtu| *mtu != 0)
}

impl Drop for NetdevRef {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that the type owns.
        unsafe { bindings::rdma_helper_netdev_put(self.0.as_ptr()) };
    }
}

/// Keeps a device's port paired with the Ethernet device of its MAC; unpairs on drop.
pub(super) struct Pairing(Pin<KBox<Notifier>>);

#[pin_data]
#[repr(C)]
struct Notifier {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    device: NonNull<bindings::ib_device>,
    mac: [u8; 6],
    port_changed: PortChanged,
    /// Set while the pairing ends, which is no news for the driver.
    ending: Atomic<bool>,
}

/// What the Ethernet device says of the port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortSettings {
    /// The largest path MTU (`enum ib_mtu`), if it has changed or there is one.
    pub(crate) path_mtu: Option<u32>,
    /// Whether the port may carry anything.
    pub(crate) active: bool,
}

/// Tells the driver what the Ethernet device says of the port.
///
/// # Safety
///
/// To be called with the RDMA device of a registration whose data is alive.
pub(super) type PortChanged = unsafe fn(*mut bindings::ib_device, &PortSettings);

impl Pairing {
    /// Starts pairing; an Ethernet device that is there already is found before this returns.
    ///
    /// # Safety
    ///
    /// `device` must have its port data and stay allocated until the result has been dropped, with all
    /// that `port_changed` asks for.
    pub(super) unsafe fn new(
        device: NonNull<bindings::ib_device>,
        mac: [u8; 6],
        port_changed: PortChanged,
    ) -> Result<Self> {
        let notifier = KBox::pin_init(
            pin_init!(Notifier {
                block <- Opaque::ffi_init(|slot: *mut bindings::notifier_block| {
                    // SAFETY: `slot` is the memory of the block; all fields are written.
                    unsafe {
                        slot.write(bindings::notifier_block {
                            notifier_call: Some(Notifier::call),
                            next: core::ptr::null_mut(),
                            // Before the core's own notifier, which asks for the pairing.
                            priority: 1,
                        });
                    }
                }),
                device,
                mac,
                port_changed,
                ending: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        // Until an Ethernet device is there.
        notifier.tell(&PortSettings { path_mtu: None, active: false });
        // SAFETY: the block is pinned and lives until `drop` unregisters it.
        to_result(unsafe { bindings::register_netdevice_notifier(notifier.block.get()) })?;
        Ok(Self(notifier))
    }
}

impl Drop for Pairing {
    fn drop(&mut self) {
        self.0.ending.store(true, Relaxed);
        // Replays NETDEV_DOWN and NETDEV_UNREGISTER, by which the pairing ends.
        // SAFETY: registered by `new`.
        unsafe { bindings::unregister_netdevice_notifier(self.0.block.get()) };
    }
}

impl Notifier {
    /// Tells the driver how the device `netdev` is, which is alive.
    fn tell_of(&self, netdev: *mut bindings::net_device) {
        // SAFETY: the device is alive during the notification.
        let settings =
            unsafe { PortSettings { path_mtu: path_mtu(netdev), active: is_active(netdev) } };
        self.tell(&settings);
    }

    /// Tells the driver of the port. While the pairing ends, clients have yet to take leave of their peers.
    fn tell(&self, settings: &PortSettings) {
        if !self.ending.load(Relaxed) {
            // SAFETY: by the promise of `Pairing::new`.
            unsafe { (self.port_changed)(self.device.as_ptr(), settings) };
        }
    }

    /// The notifier's callback; runs under the RTNL.
    ///
    /// # Safety
    ///
    /// `block` must be that of a pinned `Notifier`, `info` that of a netdevice notification.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: `block` is the first field of a `Notifier`, by the caller's promise.
        let this = unsafe { &*block.cast::<Self>() };
        // SAFETY: `info` comes from the network stack.
        let netdev = unsafe { bindings::rdma_helper_notifier_netdev(info) };
        // SAFETY: the device is alive during the notification; `mac` has 6 bytes.
        if !unsafe { bindings::rdma_helper_netdev_has_perm_addr(netdev, this.mac.as_ptr()) } {
            return bindings::NOTIFY_DONE as c_int;
        }
        // CAST: the event's numbers are those of `enum netdev_cmd`.
        let paired = match event as u32 {
            bindings::netdev_cmd_NETDEV_REGISTER => {
                this.tell_of(netdev);
                netdev
            }
            bindings::netdev_cmd_NETDEV_UP
            | bindings::netdev_cmd_NETDEV_CHANGE
            | bindings::netdev_cmd_NETDEV_DOWN
            | bindings::netdev_cmd_NETDEV_CHANGEMTU => {
                this.tell_of(netdev);
                return bindings::NOTIFY_OK as c_int;
            }
            bindings::netdev_cmd_NETDEV_UNREGISTER => {
                this.tell(&PortSettings { path_mtu: None, active: false });
                core::ptr::null_mut()
            }
            _ => return bindings::NOTIFY_DONE as c_int,
        };
        // SAFETY: the RDMA device is alive while the notifier is registered, with its port data
        // allocated; the callee takes its own reference to `paired`.
        let ret = unsafe { bindings::ib_device_set_netdev(this.device.as_ptr(), paired, PORT) };
        if ret != 0 {
            // SAFETY: the RDMA device is alive, and made by this driver.
            let parent = unsafe { parent(this.device.as_ptr()) };
            dev_warn!(parent, "pairing with the Ethernet device failed: {ret}\n");
        }
        bindings::NOTIFY_OK as c_int
    }
}

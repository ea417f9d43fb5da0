// SPDX-License-Identifier: GPL-2.0
//! The Ethernet devices that ports are paired with.
//!
//! C header: `include/linux/netdevice.h`.

use core::ptr::NonNull;

use kernel::{error::to_result, ffi::c_char, prelude::*};

use crate::bindings;
use crate::rdma::event::DeviceLink;

/// A counted reference to a network device.
///
/// # Invariants
///
/// The pointer refers to a network device, and the type owns a reference to it.
pub(crate) struct NetdevRef(NonNull<bindings::net_device>);

// SAFETY: network devices may be used, and references to them given back, by any thread.
unsafe impl Send for NetdevRef {}
// SAFETY: what is read of a device by reference may be read by several threads at a time.
unsafe impl Sync for NetdevRef {}

impl NetdevRef {
    /// Takes a reference.
    ///
    /// # Safety
    ///
    /// `raw` must be a network device that is alive during the call.
    pub(crate) unsafe fn new(raw: NonNull<bindings::net_device>) -> Self {
        // SAFETY: the caller promises that the device is alive.
        unsafe { bindings::rdma_helper_netdev_hold(raw.as_ptr()) };
        // INVARIANT: the reference was taken just now.
        Self(raw)
    }

    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// `raw` must be a network device, of which the caller passes on a reference.
    pub(crate) unsafe fn from_held(raw: NonNull<bindings::net_device>) -> Self {
        // INVARIANT: the caller passes on a reference.
        Self(raw)
    }

    /// Returns the Ethernet device that a port is paired with, if it is there.
    ///
    /// # Safety
    ///
    /// `device` must be an RDMA device that is alive during the call.
    pub(in crate::rdma) unsafe fn of_port(
        device: NonNull<bindings::ib_device>,
        port: u32,
    ) -> Option<Self> {
        // SAFETY: the caller promises that the device is alive; the core refuses ports that it does
        // not have.
        let raw = unsafe { bindings::ib_device_get_netdev(device.as_ptr(), port) };
        // INVARIANT: the core has taken a reference for the caller.
        NonNull::new(raw).map(Self)
    }

    /// Returns the device itself.
    pub(crate) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.as_ptr()
    }

    /// Returns whether the device is up and has a carrier.
    pub(crate) fn is_active(&self) -> bool {
        // SAFETY: the device is alive by the type's invariants.
        let state = unsafe { bindings::rdma_helper_port_state(self.0.as_ptr()) };
        u32::from(state) == bindings::ib_port_state_IB_PORT_ACTIVE
    }

    /// Returns the MAC of the network device.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        // SAFETY: the device is alive by the type's invariants; a MAC has 6 bytes.
        unsafe { bindings::rdma_helper_netdev_mac(self.0.as_ptr(), mac.as_mut_ptr()) };
        mac
    }

    /// Writes its name, with a terminator.
    pub(in crate::rdma) fn copy_name(&self, out: &mut [c_char; bindings::IFNAMSIZ as usize]) {
        // SAFETY: the device is alive by the type's invariants; a name with its terminator fits.
        unsafe { bindings::rdma_helper_netdev_name(self.0.as_ptr(), out.as_mut_ptr()) };
    }

    /// Returns the longest IP packet in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: the device is alive by the type's invariants.
        unsafe { bindings::rdma_helper_netdev_mtu(self.0.as_ptr()) }
    }

    /// Returns the largest path MTU (`enum ib_mtu`) whose packets fit, if any does.
    pub(crate) fn path_mtu(&self) -> Option<u32> {
        // SAFETY: the device is alive by the type's invariants.
        let mtu = unsafe { bindings::rdma_helper_netdev_rdma_mtu(self.0.as_ptr()) };
        u32::try_from(mtu).ok().filter(|mtu| *mtu != 0)
    }
}

impl Clone for NetdevRef {
    fn clone(&self) -> Self {
        // SAFETY: the device is alive by the type's invariants.
        unsafe { Self::new(self.0) }
    }
}

impl PartialEq for NetdevRef {
    /// Returns whether both refer to the same device.
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Drop for NetdevRef {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that the type owns by its invariants.
        unsafe { bindings::rdma_helper_netdev_put(self.0.as_ptr()) };
    }
}

/// Operations on the ports of a device, which do nothing when it has gone.
impl DeviceLink {
    /// Returns the Ethernet device that a port is paired with, if it is there.
    pub(crate) fn netdev(&self, port: u32) -> Option<NetdevRef> {
        // SAFETY: `with` keeps the device alive.
        self.with(|device| unsafe { NetdevRef::of_port(device, port) }).flatten()
    }

    /// Pairs a port with an Ethernet device, or with none.
    pub(crate) fn set_netdev(&self, port: u32, netdev: Option<&NetdevRef>) -> Result {
        let netdev = netdev.map_or(core::ptr::null_mut(), NetdevRef::as_raw);
        let set = |device: NonNull<bindings::ib_device>| {
            // SAFETY: `with` keeps the device alive, which has its ports' data; the core takes a
            // reference of its own.
            to_result(unsafe { bindings::ib_device_set_netdev(device.as_ptr(), netdev, port) })
        };
        self.with(set).unwrap_or(Ok(()))
    }

    /// Reports to the clients whether a port is active, unless they know it.
    pub(crate) fn report_port_state(&self, port: u32, active: bool) {
        self.with(|device| {
            // SAFETY: `with` keeps the device alive; the function ignores ports that the device
            // does not have.
            unsafe { bindings::rdma_helper_report_port(device.as_ptr(), port, active) };
        });
    }

    /// Looks for addresses of Ethernet devices that no notification has named.
    pub(crate) fn rescan_gids(&self) {
        self.with(|device| {
            // SAFETY: `with` keeps the device alive.
            unsafe { bindings::rdma_helper_rescan_addresses(device.as_ptr()) };
        });
    }
}

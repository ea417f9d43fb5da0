// SPDX-License-Identifier: GPL-2.0
//! Ethernet devices, as far as a port follows one.

use core::ptr::NonNull;

use super::bindings;

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

    /// The device itself.
    pub(super) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.as_ptr()
    }

    /// Whether the device is up and has a carrier.
    pub(crate) fn is_active(&self) -> bool {
        // SAFETY: a live device, by the reference.
        let state = unsafe { bindings::rdma_helper_port_state(self.0.as_ptr()) };
        u32::from(state) == bindings::ib_port_state_IB_PORT_ACTIVE
    }

    /// The longest IP packet in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: a live device, by the reference.
        unsafe { bindings::rdma_helper_netdev_mtu(self.0.as_ptr()) }
    }

    /// The largest path MTU (`enum ib_mtu`) whose packets fit, if any does.
    pub(crate) fn path_mtu(&self) -> Option<u32> {
        // SAFETY: a live device, by the reference.
        let mtu = unsafe { bindings::rdma_helper_netdev_rdma_mtu(self.0.as_ptr()) };
        u32::try_from(mtu).ok().filter(|mtu| *mtu != 0)
    }

    /// What it says of the port.
    pub(super) fn settings(&self) -> PortSettings {
        PortSettings { path_mtu: self.path_mtu(), active: self.is_active() }
    }
}

impl Drop for NetdevRef {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that the type owns.
        unsafe { bindings::rdma_helper_netdev_put(self.0.as_ptr()) };
    }
}

/// What the Ethernet device says of the port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortSettings {
    /// The largest path MTU (`enum ib_mtu`), if it has changed or there is one.
    pub(crate) path_mtu: Option<u32>,
    /// Whether the port may carry anything.
    pub(crate) active: bool,
}

impl PortSettings {
    /// Of a port without an Ethernet device.
    pub(super) const CLOSED: Self = Self { path_mtu: None, active: false };
}

// SPDX-License-Identifier: GPL-2.0
//! Pairing of a port with the Ethernet device of the same adapter: the network card whose permanent address is
//! the port's MAC. It may appear, go and come back at any time.
//!
//! Others have that address, too: macvlan, ipvlan and their like inherit it, in any network namespace and for users
//! without privilege. Only a network card is ever paired with, and only one at a time.
//!
//! Notifications come under the RTNL, for which the whole network configuration of the machine waits. So the driver
//! is told by work, which may wait for the adapter.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi::{c_int, c_ulong, c_void},
    new_spinlock,
    prelude::*,
    sync::{
        Arc, ArcBorrow, SpinLock,
        atomic::{Atomic, Relaxed},
    },
    types::Opaque,
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use super::{
    bindings,
    device::{PORT, parent},
    netdev::{NetdevRef, PortSettings},
    workqueue::OrderedQueue,
};

/// Keeps a device's port paired; unpairs on drop.
pub(super) struct Pairing(Arc<Notifier>);

#[pin_data]
#[repr(C)]
struct Notifier {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    device: NonNull<bindings::ib_device>,
    mac: [u8; 6],
    port_changed: PortChanged,
    #[pin]
    news: SpinLock<News>,
    #[pin]
    work: Work<Self>,
    queue: OrderedQueue,
    /// Set when the pairing ends, which is no news for the driver: clients have yet to take leave of their peers.
    ending: Atomic<bool>,
}

impl_has_work! {
    impl HasWork<Self> for Notifier { self.work }
}

// SAFETY: the block belongs to the network stack while it is registered; the device may be used on any thread.
unsafe impl Send for Notifier {}
// SAFETY: as above; all that changes has a lock or is atomic.
unsafe impl Sync for Notifier {}

/// What the driver has not been told yet.
#[derive(Default)]
struct News {
    /// How the port is now.
    settings: Option<PortSettings>,
    /// Whether it was closed meanwhile, if only for a moment.
    closed: bool,
    /// Whether the Ethernet device may have addresses that the core has not seen.
    addresses: bool,
}

/// Tells the driver what the Ethernet device says of the port.
///
/// # Safety
///
/// To be called with the RDMA device of a registration whose data is alive.
pub(super) type PortChanged = unsafe fn(*mut bindings::ib_device, &PortSettings);

impl Pairing {
    /// Starts pairing; an Ethernet device that is there already is found, and the driver told of it, before this
    /// returns.
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
        let notifier = Arc::pin_init(
            try_pin_init!(Notifier {
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
                news <- new_spinlock!(News::default(), "rdma::Pairing"),
                work <- new_work!("rdma::Pairing"),
                queue: OrderedQueue::new(c"rdma-pairing")?,
                ending: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        // Until an Ethernet device is there.
        notifier.tell(&PortSettings::CLOSED);
        // SAFETY: the block is pinned and lives until `drop` unregisters it.
        to_result(unsafe { bindings::register_netdevice_notifier(notifier.block.get()) })?;
        notifier.queue.flush();
        Ok(Self(notifier))
    }

    /// Tells the clients of the port's state if they do not know it.
    pub(super) fn report(&self) {
        if let Some(netdev) = self.0.paired() {
            self.0.report(&netdev);
        }
    }
}

impl Drop for Pairing {
    fn drop(&mut self) {
        self.0.ending.store(true, Relaxed);
        // SAFETY: registered by `new`. On return no notification is under way.
        unsafe { bindings::unregister_netdevice_notifier(self.0.block.get()) };
        self.0.queue.flush();
        self.0.pair(core::ptr::null_mut());
    }
}

impl Notifier {
    /// The Ethernet device that the port is paired with.
    fn paired(&self) -> Option<NetdevRef> {
        // SAFETY: the RDMA device is alive; the function returns a counted reference or null.
        let raw = unsafe { bindings::ib_device_get_netdev(self.device.as_ptr(), PORT) };
        // SAFETY: the reference is ours.
        NonNull::new(raw).map(|raw| unsafe { NetdevRef::from_raw(raw) })
    }

    /// Pairs with an Ethernet device that is alive, or with none.
    fn pair(&self, netdev: *mut bindings::net_device) {
        // SAFETY: the RDMA device is alive, with its port data allocated; the callee takes its own reference.
        let ret = unsafe { bindings::ib_device_set_netdev(self.device.as_ptr(), netdev, PORT) };
        if ret != 0 {
            // SAFETY: the RDMA device is alive, and made by this driver.
            let parent = unsafe { parent(self.device.as_ptr()) };
            dev_warn!(parent, "pairing with the Ethernet device failed: {ret}\n");
        }
    }

    /// Pairs with another Ethernet device in place of `leaving`, if there is one; whether there is.
    fn succeed(&self, leaving: *mut bindings::net_device) -> bool {
        // SAFETY: called under the RTNL, under which what is found stays alive; `mac` has 6 bytes.
        let next = unsafe { bindings::rdma_helper_find_card(self.mac.as_ptr(), leaving) };
        self.pair(next);
        !next.is_null()
    }

    /// Sees to it that the driver is told how the port is now.
    fn note(self: ArcBorrow<'_, Self>, addresses: bool) {
        let netdev = self.paired();
        let settings = netdev.as_ref().map_or(PortSettings::CLOSED, NetdevRef::settings);
        {
            let mut news = self.news.lock();
            news.settings = Some(settings);
            news.closed |= addresses || !settings.active;
            news.addresses |= addresses;
        }
        // That it is open is told when it is.
        if let Some(netdev) = netdev.filter(|_| !settings.active) {
            self.report(&netdev);
        }
        // It is enqueued already if others have not been told yet.
        let _ = self.queue.enqueue(Arc::from(self));
    }

    /// Tells the driver of the port.
    fn tell(&self, settings: &PortSettings) {
        // SAFETY: by the promise of `Pairing::new`: work has ended when `Pairing` has been dropped.
        unsafe { (self.port_changed)(self.device.as_ptr(), settings) };
    }

    /// Tells the clients of the port's state if they do not know it.
    fn report(&self, netdev: &NetdevRef) {
        // SAFETY: both devices are alive.
        unsafe { bindings::rdma_helper_report_port(self.device.as_ptr(), netdev.as_raw()) };
    }

    /// The notifier's callback; runs under the RTNL.
    ///
    /// # Safety
    ///
    /// `block` must be that of a `Notifier` in an `Arc`, `info` that of a netdevice notification.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: `block` is the first field of a `Notifier`, by the caller's promise; `Pairing` has a reference.
        let this = unsafe { ArcBorrow::from_raw(block.cast::<Self>().cast_const()) };
        if this.ending.load(Relaxed) {
            return bindings::NOTIFY_DONE as c_int;
        }
        // SAFETY: `info` comes from the network stack.
        let netdev = unsafe { bindings::rdma_helper_notifier_netdev(info) };
        let paired = this.paired().map(|paired| paired.as_raw());
        let is_paired = paired == Some(netdev);
        let mut addresses = false;
        // CAST: the event's numbers are those of `enum netdev_cmd`.
        match event as u32 {
            bindings::netdev_cmd_NETDEV_REGISTER
                // SAFETY: the device is alive during the notification; `mac` has 6 bytes.
                if paired.is_none()
                    && unsafe { bindings::rdma_helper_is_card(netdev, this.mac.as_ptr()) } =>
            {
                this.pair(netdev);
            }
            bindings::netdev_cmd_NETDEV_UNREGISTER if is_paired => {
                addresses = this.succeed(netdev);
            }
            bindings::netdev_cmd_NETDEV_UP
            | bindings::netdev_cmd_NETDEV_CHANGE
            | bindings::netdev_cmd_NETDEV_DOWN
            | bindings::netdev_cmd_NETDEV_CHANGEMTU
                if is_paired => {}
            _ => return bindings::NOTIFY_DONE as c_int,
        }
        this.note(addresses);
        bindings::NOTIFY_OK as c_int
    }
}

impl WorkItem for Notifier {
    type Pointer = Arc<Self>;

    /// Tells the driver, then the clients.
    fn run(this: Arc<Self>) {
        let news = core::mem::take(&mut *this.news.lock());
        let Some(settings) = news.settings else { return };
        if news.closed && settings.active {
            this.tell(&PortSettings::CLOSED);
        }
        this.tell(&settings);
        if news.addresses {
            // SAFETY: the RDMA device is alive.
            unsafe { bindings::rdma_helper_rescan_addresses(this.device.as_ptr()) };
        }
        if let Some(netdev) = this.paired() {
            this.report(&netdev);
        }
    }
}

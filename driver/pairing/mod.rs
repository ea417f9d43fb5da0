// SPDX-License-Identifier: GPL-2.0
//! Pairing of a port with the Ethernet device of the same adapter: the network card whose permanent
//! address is the port's MAC. It may appear, be removed and return at any time.
//!
//! Other devices have that address, too: macvlan, ipvlan and similar devices inherit it, and
//! unprivileged users can create them in network namespaces. The port is paired only with a network
//! card, and only with one at a time.
//!
//! The port is active for clients while the Ethernet device and the adapter's port have a link.
//!
//! Notifications are delivered under the RTNL, which blocks the whole network configuration of the
//! machine. So a work item passes them on to the adapter, because it may wait for the adapter.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`port`] | the adapter's port |
//! | [`macs`] | the MACs of the network card and of what is on top of it, for iWARP |
//! | [`neighbours`] | changes of the MACs of peers and gateways, for iWARP |

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    ffi::{c_int, c_ulong, c_void},
    new_mutex, new_spinlock_irq,
    prelude::*,
    sync::{
        Arc, ArcBorrow, Mutex, SpinLockIrq,
        atomic::{Atomic, Relaxed},
    },
    types::Opaque,
    workqueue::{Work, WorkItem, impl_has_work, new_work},
};

use self::{macs::Macs, port::Settings};
use crate::{
    bindings,
    port_link::LinkEvents,
    rdma::{event::DeviceLink, port::netdev::NetdevRef},
    workqueue::OwnQueue,
};

mod macs;
mod neighbours;
mod port;

pub(crate) use neighbours::Neighbours;
pub(crate) use port::Port;

/// The number of the one port.
pub(crate) const PORT: u32 = 1;

/// The maximum number of network devices of [`Pairing::stations`].
const STATIONS_MAX: usize = 256;

/// The callback of a notifier.
type NotifierCall =
    unsafe extern "C" fn(*mut bindings::notifier_block, c_ulong, *mut c_void) -> c_int;

/// Creates the block of a notifier. Those with a higher priority are called earlier.
fn notifier_block(
    call: NotifierCall,
    priority: c_int,
) -> impl PinInit<Opaque<bindings::notifier_block>> {
    Opaque::ffi_init(move |slot: *mut bindings::notifier_block| {
        let block = bindings::notifier_block {
            notifier_call: Some(call),
            next: core::ptr::null_mut(),
            priority,
        };
        // SAFETY: `slot` is the memory of the block.
        unsafe { slot.write(block) };
    })
}

/// Keeps the RDMA device of a port registered only while the port is paired.
pub(crate) trait Follow: Send + Sync {
    /// Starts to do so, in the background, after [`Pairing::is_paired`], [`Pairing::has_ended`] or
    /// [`Pairing::stations`] has changed, or one of these stations. Called under the RTNL.
    fn follow(self: Arc<Self>);
}

/// Keeps a device's port paired; unpairs on drop.
pub(crate) struct Pairing(Arc<Notifier>);

/// The notifier of a pairing, and what its work needs.
///
/// # Invariants
///
/// `block` is the first field, and registered as long as there is the [`Pairing`].
#[pin_data]
#[repr(C)]
struct Notifier {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    device: DeviceLink,
    mac: [u8; 6],
    port: Port,
    #[pin]
    macs: Mutex<Macs>,
    #[pin]
    news: SpinLockIrq<News>,
    /// Held while clients are notified of the port's state. So of two reports that come at the same
    /// time, the later one has the later state.
    #[pin]
    reporting: Mutex<()>,
    #[pin]
    work: Work<Self>,
    queue: Arc<OwnQueue>,
    /// The object that is notified of the pairing and its end, if the port can be paired only once.
    follower: Option<Arc<dyn Follow>>,
    /// Set when such a port has lost its Ethernet device.
    ended: Atomic<bool>,
    /// Set when the pairing ends. This is not reported to the adapter, because clients may still
    /// have to disconnect.
    ending: Atomic<bool>,
}

const _: () = assert!(core::mem::offset_of!(Notifier, block) == 0);

impl_has_work! {
    impl HasWork<Self> for Notifier { self.work }
}

// SAFETY: the block belongs to the network stack while it is registered; all else is `Send`.
unsafe impl Send for Notifier {}
// SAFETY: the block belongs to the network stack while it is registered; all else that changes has
// a lock or is atomic.
unsafe impl Sync for Notifier {}

/// The changes that the adapter does not know yet.
#[derive(Default)]
struct News {
    /// The present state of the port.
    settings: Option<Settings>,
    /// True if it was closed in the meantime, even if only briefly.
    closed: bool,
    /// True if the Ethernet device may have addresses that the core has not seen.
    addresses: bool,
    /// True if the MACs of the Ethernet device, or of those on top of it, may have changed.
    macs: bool,
    /// True if the link of the adapter's port has changed, which the adapter itself knows.
    link: bool,
}

impl Pairing {
    /// Starts pairing the port of an RDMA device, which has this MAC; an Ethernet device that is
    /// there already is found, and the adapter is notified of it, before this returns. With a
    /// `follower` the port is paired only once: after its Ethernet device has been removed, it
    /// stays unpaired.
    pub(crate) fn new(
        device: DeviceLink,
        mac: [u8; 6],
        port: Port,
        follower: Option<Arc<dyn Follow>>,
    ) -> Result<Self> {
        let macs = Macs::new(port.macs())?;
        let notifier = Arc::pin_init(
            try_pin_init!(Notifier {
                // This notifier must run before the core's own, which queries the pairing.
                block <- notifier_block(Notifier::call, 1),
                device,
                mac,
                port,
                macs <- new_mutex!(macs, "vrnic::Pairing::macs"),
                news <- new_spinlock_irq!(News::default(), "vrnic::Pairing"),
                reporting <- new_mutex!((), "vrnic::Pairing::reporting"),
                work <- new_work!("vrnic::Pairing"),
                queue: OwnQueue::ordered(c"vrnic_pairing")?,
                follower,
                ended: Atomic::new(false),
                ending: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        // The port is closed until an Ethernet device is there.
        notifier.port.set(&Settings::CLOSED);
        // SAFETY: the block is pinned and lives until `drop` unregisters it.
        to_result(unsafe { bindings::register_netdevice_notifier(notifier.block.get()) })?;
        notifier.port.link().follow(notifier.clone());
        notifier.queue.flush();
        Ok(Self(notifier))
    }

    /// Returns whether the port is paired.
    pub(crate) fn is_paired(&self) -> bool {
        self.0.paired().is_some()
    }

    /// Returns whether a port that is paired only once has lost its Ethernet device.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Relaxed)
    }

    /// Returns the network card, if the port is paired.
    pub(crate) fn card(&self) -> Option<NetdevRef> {
        self.0.paired()
    }

    /// Returns the network devices directly on top of the network card that have addresses and MACs
    /// of their own and share its port: macvlan devices, bridges and bonds.
    pub(crate) fn stations(&self) -> Result<KVec<NetdevRef>> {
        let mut stations = KVec::new();
        let Some(card) = self.0.paired() else { return Ok(stations) };
        stations.reserve(STATIONS_MAX, GFP_KERNEL)?;
        let mut found = KVec::from_elem(core::ptr::null_mut(), STATIONS_MAX, GFP_KERNEL)?;
        // SAFETY: the card is alive, as it is referred to; there is room for this many pointers.
        let count =
            unsafe { bindings::pairing_stations(card.as_raw(), found.as_mut_ptr(), STATIONS_MAX) };
        for raw in found.iter().take(count).filter_map(|raw| NonNull::new(*raw)) {
            // SAFETY: the function has taken a reference to each device that it has written.
            let station = unsafe { NetdevRef::from_held(raw) };
            // There is room.
            let _ = stations.push(station, GFP_KERNEL);
        }
        Ok(stations)
    }

    /// Tells the clients of the port's state if they do not know it.
    pub(crate) fn report(&self) {
        self.0.report();
    }
}

impl Drop for Pairing {
    fn drop(&mut self) {
        self.0.ending.store(true, Relaxed);
        // SAFETY: registered by `new`. On return no notification is under way.
        unsafe { bindings::unregister_netdevice_notifier(self.0.block.get()) };
        self.0.port.link().unfollow();
        self.0.queue.flush();
        self.0.pair(None);
    }
}

impl Notifier {
    /// Returns the Ethernet device that the port is paired with.
    fn paired(&self) -> Option<NetdevRef> {
        self.device.netdev(PORT)
    }

    /// Pairs with an Ethernet device, or with none.
    fn pair(&self, netdev: Option<&NetdevRef>) {
        if let Err(error) = self.device.set_netdev(PORT, netdev) {
            self.port.warn(error);
        }
    }

    /// Returns whether an Ethernet device is the port's network card.
    fn is_card(&self, netdev: &NetdevRef) -> bool {
        // SAFETY: the device is alive, as it is referred to; `mac` has 6 bytes.
        unsafe { bindings::pairing_is_card(netdev.as_raw(), self.mac.as_ptr()) }
    }

    /// Reports to the clients whether the port is active, unless they know it.
    fn report(&self) {
        let Some(netdev) = self.paired() else { return };
        let _reporting = self.reporting.lock();
        self.device.report_port_state(PORT, self.port.is_active(&netdev));
    }

    /// Tells the follower, if there is one.
    fn tell_follower(&self) {
        if let Some(follower) = &self.follower {
            follower.clone().follow();
        }
    }

    /// Pairs with another network card in place of `leaving`, if there is one. Returns whether
    /// there is. To be called under the RTNL.
    fn succeed(&self, leaving: &NetdevRef) -> bool {
        // SAFETY: the caller holds the RTNL; `mac` has 6 bytes.
        let next = unsafe { bindings::pairing_find_card(self.mac.as_ptr(), leaving.as_raw()) };
        // SAFETY: devices that are found stay alive under the RTNL.
        let next = NonNull::new(next).map(|next| unsafe { NetdevRef::new(next) });
        self.pair(next.as_ref());
        next.is_some()
    }

    /// Enqueues the work that tells the adapter the present state of the port.
    fn note(self: ArcBorrow<'_, Self>, addresses: bool) {
        let netdev = self.paired();
        let settings = netdev.as_ref().map_or(Settings::CLOSED, Settings::of);
        {
            let mut news = self.news.lock();
            news.settings = Some(settings);
            news.closed |= addresses || !settings.active;
            news.addresses |= addresses;
            // An adapter of RoCE has them by its GIDs.
            news.macs = self.port.macs() != 0;
        }
        // Clients are notified that it is open when the adapter has opened it.
        if netdev.is_some() && !settings.active {
            self.report();
        }
        // The work item is enqueued already if the adapter does not know other changes yet.
        let _ = self.queue.enqueue(Arc::from(self));
    }

    /// Tells the adapter of the present MACs, and then the follower, whose connections may have
    /// other MACs, too.
    fn tell_macs(&self) {
        let card = self.paired();
        let followed = self.macs.lock().follow(card.as_ref(), &self.port);
        match followed {
            Ok(()) => self.tell_follower(),
            Err(error) => self.port.warn(error),
        }
    }

    /// Enqueues the work that tells the adapter of MACs, if a notification about `netdev` may mean
    /// that there are others.
    fn note_macs(self: ArcBorrow<'_, Self>, event: u32, netdev: &NetdevRef) {
        if self.port.macs() == 0 {
            return;
        }
        // A device that goes is not on top of the card any more.
        let goes = event == bindings::netdev_cmd_NETDEV_UNREGISTER;
        let carries = |card: &NetdevRef| card == netdev || is_above(netdev, card);
        if goes || self.paired().is_some_and(|card| carries(&card)) {
            self.news.lock().macs = true;
            let _ = self.queue.enqueue(Arc::from(self));
        }
    }

    /// Handles a notification about `netdev`, under the RTNL. Returns whether it concerns the port.
    fn notified(self: ArcBorrow<'_, Self>, event: u32, netdev: &NetdevRef) -> bool {
        let paired = self.paired();
        let is_paired = paired.as_ref() == Some(netdev);
        let mut addresses = false;
        match event {
            bindings::netdev_cmd_NETDEV_REGISTER
                if paired.is_none() && !self.ended.load(Relaxed) && self.is_card(netdev) =>
            {
                self.pair(Some(netdev));
                self.tell_follower();
            }
            bindings::netdev_cmd_NETDEV_UNREGISTER if is_paired && self.follower.is_some() => {
                // The core has references to this one until the RDMA device is unregistered.
                self.ended.store(true, Relaxed);
                self.pair(None);
                self.tell_follower();
            }
            bindings::netdev_cmd_NETDEV_UNREGISTER if is_paired => {
                addresses = self.succeed(netdev);
            }
            bindings::netdev_cmd_NETDEV_CHANGEUPPER if is_paired => {
                self.tell_follower();
                return false;
            }
            bindings::netdev_cmd_NETDEV_UP
            | bindings::netdev_cmd_NETDEV_CHANGE
            | bindings::netdev_cmd_NETDEV_DOWN
            | bindings::netdev_cmd_NETDEV_CHANGEMTU
                if is_paired => {}
            _ => {
                // A device that goes is not on top of the card any more, and may still have an RDMA
                // device.
                let goes = event == bindings::netdev_cmd_NETDEV_UNREGISTER;
                if goes || paired.as_ref().is_some_and(|card| is_upper(netdev, card)) {
                    self.tell_follower();
                }
                return false;
            }
        }
        // The caller holds the RTNL and `netdev`, another reference, so no thread waits for this
        // one.
        drop(paired);
        self.note(addresses);
        true
    }

    /// The notifier's callback, which runs under the RTNL.
    ///
    /// # Safety
    ///
    /// `block` must point to the block of a `Notifier` in an `Arc`, and `info` to the information
    /// of a netdevice notification.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller passes the block of a `Notifier`, whose first field it is; the
        // `Pairing` has a reference as long as the block is registered.
        let this = unsafe { ArcBorrow::from_raw(block.cast::<Self>().cast_const()) };
        if this.ending.load(Relaxed) {
            return bindings::NOTIFY_DONE as c_int;
        }
        // SAFETY: the network stack passes the information of a notification.
        let netdev = unsafe { bindings::pairing_notifier_netdev(info) };
        let Some(netdev) = NonNull::new(netdev) else { return bindings::NOTIFY_DONE as c_int };
        // SAFETY: the network stack keeps the device alive during the notification.
        let netdev = unsafe { NetdevRef::new(netdev) };
        // CAST: the event is a value of `enum netdev_cmd`.
        let event = event as u32;
        this.note_macs(event, &netdev);
        let result = match this.notified(event, &netdev) {
            true => bindings::NOTIFY_OK,
            false => bindings::NOTIFY_DONE,
        };
        result as c_int
    }
}

/// Returns whether a network device is directly on top of a network card.
fn is_upper(netdev: &NetdevRef, card: &NetdevRef) -> bool {
    // SAFETY: both devices are alive, as they are referred to.
    unsafe { bindings::pairing_is_upper(netdev.as_raw(), card.as_raw()) }
}

/// Returns whether a network device is on top of a network card, directly or not. To be called
/// under the RTNL.
fn is_above(netdev: &NetdevRef, card: &NetdevRef) -> bool {
    // SAFETY: both devices are alive, as they are referred to.
    unsafe { bindings::pairing_is_above(netdev.as_raw(), card.as_raw()) }
}

impl LinkEvents for Notifier {
    fn link_changed(self: Arc<Self>) {
        self.news.lock().link = true;
        // Only the work sleeps. If it is enqueued already, it sees this change, too.
        let _ = self.queue.clone().enqueue(self);
    }
}

impl WorkItem for Notifier {
    type Pointer = Arc<Self>;

    /// Tells the adapter, then the clients.
    fn run(this: Arc<Self>) {
        let news = core::mem::take(&mut *this.news.lock());
        if news.macs {
            this.tell_macs();
        }
        if let Some(settings) = news.settings {
            if news.closed && settings.active {
                this.port.set(&Settings::CLOSED);
            }
            this.port.set(&settings);
            // The adapter has answered just now, unless it has died. The core holds the RTNL
            // meanwhile.
            if news.addresses {
                this.device.rescan_gids();
            }
        }
        if news.link {
            // RDMA devices of other network devices have the same port.
            this.tell_follower();
        }
        if news.link || news.settings.is_some() {
            this.report();
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Brings the adapter up, and brings it up again when it has died: its RDMA device is unregistered,
//! and the adapter is reset and registered again.
//!
//! Recovery does what unbinding and binding the driver would do, and under the same lock, that of
//! the PCI device: so it excludes probing, unbinding, suspending, and resets by others. It only
//! ever tries to get that lock, because unbinding holds it while it waits for the end of recovery.
//!
//! A device of iWARP is registered only while its port is paired with an Ethernet device: the core
//! keeps references to that one until the RDMA device is unregistered. When the Ethernet device has
//! been removed, the adapter is brought up again, as after its death. The RDMA devices of network
//! devices on top of it come and go with these ([`stations`]).

use kernel::{
    device::Bound,
    impl_has_work, new_mutex, new_work, pci,
    prelude::*,
    sync::{
        Arc, Mutex,
        atomic::{Acquire, Atomic, Release},
    },
    time::{Delta, Instant, Monotonic, delay::fsleep, msecs_to_jiffies},
    workqueue::{DelayedWork, Work, WorkItem, impl_has_delayed_work, new_delayed_work},
};

use crate::{
    adapter::Adapter,
    adapter_memory::AdapterMemory,
    hw::pci::DeviceLock,
    iwarp::{Connections, Ending},
    listeners::Listeners,
    methods,
    pairing::{Follow, Neighbours, PORT, Pairing},
    quiesce::{AfterDeath, Liveness, Restart},
    rdma::{
        port::attr::Protocol,
        port::netdev::NetdevRef,
        registration::{Config, Iwarp, Registration, Unregistered},
    },
    stations::{self, Station},
    verbs::{Ctx, Verbs},
    workqueue::{OwnQueue, flush, flush_delayed},
};

/// The number of attempts before recovery is given up.
const TRIES: u32 = 8;
/// An adapter that dies sooner than this, less [`LEAVE`], did not come up.
const STABLE: Delta = Delta::from_secs(15);
/// The time that kernel clients have to release a dead device by themselves. Clients that still use
/// it when it is unregistered may permanently end the objects that depend on it: nvme-rdma then
/// deletes its disks, but otherwise connects them again.
const LEAVE: Delta = Delta::from_secs(5);
/// The time after the first try; it doubles with each.
const PAUSE: Delta = Delta::from_millis(250);
/// The time between two checks for a reason to stop waiting.
const POLL: Delta = Delta::from_millis(50);

/// The work items: that which brings a dead adapter up again, and that which follows the pairing.
const RESTART: u64 = 0;
const FOLLOW: u64 = 1;

/// An adapter that is up.
struct Up {
    // The fields are dropped in this order.
    stations: KVec<Station>,
    ending: Option<Ending>,
    neighbours: Option<Neighbours>,
    pairing: Pairing,
    registration: Option<Registration<'static, Verbs>>,
    /// The RDMA device until it is registered.
    waiting: Option<Unregistered<'static, Verbs>>,
    listeners: Arc<Listeners>,
    liveness: Arc<Liveness>,
    since: Instant<Monotonic>,
    adapter: Arc<Adapter<'static>>,
}

impl Up {
    /// Registers the RDMA device of the network card, unless it is, and follows the devices on top
    /// of the card.
    fn register(&mut self, pdev: &'static pci::Device<Bound>) -> Result {
        if let Some(device) = self.waiting.take() {
            let link = device.link();
            self.registration = Some(Registration::new(device, pdev.as_ref())?);
            // The core reports changes of a state that it knows.
            self.pairing.report();
            self.listeners.add_device(link)?;
        }
        if self.adapter.protocol() == Protocol::Iwarp {
            self.follow_stations(pdev);
            self.follow_paths()?;
        }
        Ok(())
    }

    /// Makes connections follow changes of the MACs of their network devices and next hops.
    fn follow_paths(&mut self) -> Result {
        if let (None, Some(card)) = (&self.neighbours, self.pairing.card()) {
            self.neighbours = Some(Neighbours::new(card, self.listeners.clone())?);
        }
        self.listeners.tell_connections(|connections| connections.clone().rerouted());
        Ok(())
    }

    /// Registers and unregisters RDMA devices for the network devices on top of the network card.
    fn follow_stations(&mut self, pdev: &'static pci::Device<Bound>) {
        if let Some(ending) = &self.ending {
            ending.connections().check_listeners();
        }
        let Self { stations, pairing, listeners, adapter, .. } = self;
        let add = |netdev: NetdevRef| {
            // SAFETY: the registration made of it goes into `Up`, and so into `State::up`, from
            // which `Recovery::end` takes it.
            let made = unsafe { allocate(pdev, adapter, netdev.mac(), pairing.card()) }?;
            let (device, connections) = (made.0, made.1.ok_or(EOPNOTSUPP)?);
            Station::new(netdev, device, pdev.as_ref(), listeners.clone(), connections)
        };
        let followed = pairing.stations().and_then(|now| stations::follow(stations, now, add));
        if let Err(error) = followed {
            dev_warn!(
                pdev,
                "a network device on top of the network card has no RDMA device: {error:?}\n"
            );
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.liveness.leave();
    }
}

/// Allocates an RDMA device of an adapter, for the network card or for a device on top of `card`,
/// which has this MAC. Returns also its connections, if it is one of iWARP.
///
/// # Safety
///
/// The device, or the registration made of it, must be dropped before the driver is unbound from
/// `pdev`.
unsafe fn allocate(
    pdev: &'static pci::Device<Bound>,
    adapter: &Arc<Adapter<'static>>,
    mac: [u8; 6],
    card: Option<NetdevRef>,
) -> Result<(Unregistered<'static, Verbs>, Option<Arc<Connections>>)> {
    let config = Config {
        // Connections have sockets of the kernel, so their ports need no mapping.
        iwarp: (adapter.protocol() == Protocol::Iwarp).then(|| Iwarp::new(PORT, false)),
        node_guid: node_guid(mac),
        num_comp_vectors: u32::try_from(adapter.handlers().len())?,
        use_cq_dim: true,
        methods: Some(methods::list()),
    };
    let ctx = Ctx::new(adapter.clone(), mac, card)?;
    let connections = ctx.connections().cloned();
    // SAFETY: the caller promises that the result is dropped while the driver is bound.
    let device = unsafe { Unregistered::new(pdev.as_ref(), &config, Ok(ctx)) }?;
    Ok((device, connections))
}

#[derive(Default)]
struct State {
    up: Option<Up>,
    /// Tries since the adapter was last up for some time.
    tries: u32,
}

/// Brings an adapter up, and up again.
#[pin_data]
pub(crate) struct Recovery {
    pdev: &'static pci::Device<Bound>,
    memory: AdapterMemory,
    queue: Arc<OwnQueue>,
    quiescing: Arc<OwnQueue>,
    ended: Atomic<bool>,
    #[pin]
    state: Mutex<State>,
    /// The work item that starts the device again. Pauses are delays of this item, because an item
    /// that sleeps keeps the machine from suspending.
    #[pin]
    restart: DelayedWork<Self, RESTART>,
    #[pin]
    follow: Work<Self, FOLLOW>,
}

impl_has_work! {
    impl HasWork<Self, FOLLOW> for Recovery { self.follow }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, RESTART> for Recovery { self.restart }
}

impl Recovery {
    /// Brings the adapter up for the first time. The PCI device is enabled, with a 64-bit DMA mask,
    /// and the kernel has page structs for `memory`.
    ///
    /// # Errors
    ///
    /// The error of the step that failed. It is not tried again.
    ///
    /// # Safety
    ///
    /// [`Recovery::end`] must be called before the driver is unbound from the device.
    pub(crate) unsafe fn start(
        pdev: &pci::Device<Bound>,
        memory: AdapterMemory,
    ) -> Result<Arc<Self>> {
        // SAFETY: the caller promises that the device is bound, and so alive, as long as this
        // reference is used: `end` drops the registration and waits for the work.
        let pdev: &'static pci::Device<Bound> = unsafe { &*core::ptr::from_ref(pdev) };
        let queue = OwnQueue::freezable(c"vrnic_recovery")?;
        let quiescing = OwnQueue::new(c"vrnic_quiescing")?;
        let this = Arc::pin_init(
            pin_init!(Self {
                pdev,
                memory,
                queue,
                quiescing,
                ended: Atomic::new(false),
                state <- new_mutex!(State::default(), "vrnic::Recovery"),
                restart <- new_delayed_work!("vrnic::Recovery::restart"),
                follow <- new_work!("vrnic::Recovery::follow"),
            }),
            GFP_KERNEL,
        )?;
        let up = this.bring_up().inspect_err(|_| this.end())?;
        this.state.lock().up = Some(up);
        Ok(this)
    }

    /// Unregisters the RDMA device and stops the adapter, for good.
    pub(crate) fn end(self: &Arc<Self>) {
        self.ended.store(true, Release);
        let up = self.state.lock().up.take();
        drop(up);
        // No adapter is left that could begin another one.
        flush_delayed::<Self, RESTART>(self);
        // One that ran during the first call may have enqueued itself; the next one does not.
        flush_delayed::<Self, RESTART>(self);
        flush::<Self, FOLLOW>(self);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    fn bring_up(self: &Arc<Self>) -> Result<Up> {
        let after_death = AfterDeath { queue: self.quiescing.clone(), restart: self.clone() };
        let adapter = Adapter::new(self.pdev, self.memory.clone(), after_death)?;
        let (mac, port, protocol) = (adapter.mac(), adapter.port(), adapter.protocol());
        let (liveness, listeners) = (adapter.liveness(), adapter.listeners());
        let adapter = Arc::new(adapter, GFP_KERNEL)?;
        // SAFETY: the registration made of it goes into `State::up`, from which `end` takes it.
        let (device, connections) = unsafe { allocate(self.pdev, &adapter, mac, None) }?;
        let follower = match protocol {
            Protocol::Roce => None,
            Protocol::Iwarp => Some(self.clone() as Arc<dyn Follow>),
        };
        let pairing = Pairing::new(device.link(), mac, port, follower)?;
        let mut up = Up {
            stations: KVec::new(),
            ending: connections.map(Ending::new),
            neighbours: None,
            pairing,
            registration: None,
            waiting: Some(device),
            listeners,
            liveness,
            since: Instant::now(),
            adapter,
        };
        if protocol == Protocol::Roce || up.pairing.is_paired() {
            up.register(self.pdev)?;
        } else {
            dev_info!(
                self.pdev,
                "the RDMA device is not registered until the network card of the adapter appears\n"
            );
        }
        Ok(up)
    }

    /// Registers an RDMA device that has been paired, or brings the adapter up again if the pairing
    /// has ended. Must be called under the device's lock.
    fn follow_pairing(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let Some(up) = state.up.as_mut().filter(|up| !up.liveness.is_dead()) else { return };
        let result = if up.pairing.has_ended() {
            state.up = None;
            self.bring_up().map(|up| state.up = Some(up))
        } else if up.pairing.is_paired() {
            up.register(self.pdev)
        } else {
            return;
        };
        if let Err(error) = result {
            dev_warn!(
                self.pdev,
                "the RDMA device could not be changed after a change of its network card: {error:?}\n"
            );
            state.up = None;
            self.clone().restart();
        }
    }

    /// Tries once, under the device's lock. Returns the time after which to try again, or `None` if
    /// no further attempt is needed or allowed.
    fn step(self: &Arc<Self>) -> Option<Delta> {
        let mut state = self.state.lock();
        if self.has_ended() || state.up.as_ref().is_some_and(|up| !up.liveness.is_dead()) {
            return None;
        }
        if state.up.take().is_some_and(|up| up.since.elapsed() > STABLE) {
            state.tries = 0;
        }
        if state.tries >= TRIES {
            dev_err!(
                self.pdev,
                "the adapter has not come up in {TRIES} tries; bind the driver again to make it try \
                 again\n"
            );
            return None;
        }
        let pause = PAUSE * (1 << state.tries);
        state.tries += 1;
        match self.bring_up() {
            Ok(up) => {
                dev_info!(self.pdev, "the adapter is up again\n");
                state.up = Some(up);
                None
            }
            Err(error) => {
                dev_warn!(
                    self.pdev,
                    "try {} to bring the adapter up failed: {error:?}\n",
                    state.tries
                );
                Some(pause)
            }
        }
    }

    /// Tries to bring the adapter up after this time.
    fn restart_after(self: &Arc<Self>, pause: Delta) {
        let jiffies = msecs_to_jiffies(u32::try_from(pause.as_millis()).unwrap_or(u32::MAX));
        let _ = self.queue.enqueue_delayed::<Arc<Self>, RESTART>(self.clone(), jiffies);
    }
}

/// Returns the GUID of a node with a port of this MAC (EUI-64).
fn node_guid(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

impl Restart for Recovery {
    fn restart(self: Arc<Self>) {
        self.restart_after(LEAVE);
    }
}

impl Follow for Recovery {
    fn follow(self: Arc<Self>) {
        let _ = self.queue.enqueue::<Arc<Self>, FOLLOW>(self.clone());
    }
}

impl WorkItem<FOLLOW> for Recovery {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while !this.has_ended() {
            if let Some(_lock) = DeviceLock::try_get(this.pdev) {
                return this.follow_pairing();
            }
            fsleep(POLL);
        }
    }
}

impl WorkItem<RESTART> for Recovery {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if this.has_ended() {
            return;
        }
        let pause = match DeviceLock::try_get(this.pdev) {
            Some(_lock) => this.step(),
            None => Some(POLL),
        };
        if let Some(pause) = pause.filter(|_| !this.has_ended()) {
            this.restart_after(pause);
        }
    }
}

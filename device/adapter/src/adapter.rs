//! An adapter: combines its registers, its objects and the work of its QPs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use vrnic_abi::admin::{DeviceFeatures, Transport};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, Type};
use vrnic_abi::{GuestAddr, Key, Qpn, doorbell, pci, regs};
use vrnic_packet::{MacAddr, Mtu, Rate, VlanMac};
use vrnic_roce::congestion::Parameters;
use vrnic_tcp::Budget;

use crate::datapath::transport::ingress;
use crate::datapath::transport::peers::{Fabric, Network};
use crate::datapath::transport::rules;
use crate::ethernet::{Frame, Offered};
use crate::host::{Host, Transfers};
use crate::limits::{self, Limits};
use crate::memory::pages::Paging;
use crate::memory::tpt::Tpt;
use crate::objects::Objects;
use crate::objects::core::{Core, Identity};
use crate::objects::pace::Ceilings;
use crate::objects::qp::Qp;
use crate::port::Change;
use crate::registers::Registers;
use crate::scheduling::worker_state::WorkerState;
use crate::stats::{Counter, Counters};
use crate::vlans::Vlans;

/// Maximum number of workers of an adapter. Each polls doorbell groups of its own.
pub const WORKERS_MAX: usize = 64;

/// An adapter.
#[derive(Debug)]
pub struct Adapter<H: Host> {
    core: Arc<Core<H>>,
    fabric: Arc<Fabric<H>>,
    pub(crate) registers: Registers,
    pub(crate) objects: Arc<Objects<H>>,
    /// The current table. Each QP keeps the one that existed when it was created.
    pub(crate) tpt: RwLock<Arc<Tpt>>,
    /// The adapter's own maximum of each resource.
    pub(crate) limits: RwLock<Limits>,
    vectors: AtomicU16,
    is_iwarp: AtomicBool,
    demands_crcs: AtomicBool,
    keepalive: RwLock<Option<Duration>>,
    heartbeat: AtomicU32,
    /// The state of each worker.
    pub(crate) workers: Box<[CachePadded<WorkerState<H>>]>,
    /// The number of workers that are awake. If it is zero, the guest wakes one by a register
    /// write.
    awake: Mutex<usize>,
}

impl<H: Host> Adapter<H> {
    /// Creates an adapter in its state after power-on, and adds it to `fabric`.
    #[must_use]
    pub fn new(
        name: &str,
        mac: MacAddr,
        host: H,
        fabric: &Arc<Fabric<H>>,
        workers: usize,
        limits: Limits,
    ) -> Arc<Self> {
        let workers = workers.clamp(1, WORKERS_MAX);
        let identity = Identity { name, mac, domain: fabric.new_domain() };
        let core = Arc::new(Core::new(identity, host, workers, &fabric.faults));
        let objects = Arc::new(Objects::new(&core, &limits));
        let tpt = Tpt::new(limits.mr, &objects.page_budget).of(core.domain());
        tpt.set_limits(limits.mr, limits.mw);
        let adapter = Arc::new(Self {
            core,
            fabric: Arc::clone(fabric),
            registers: Registers::default(),
            tpt: RwLock::new(Arc::new(tpt)),
            objects,
            limits: RwLock::new(limits),
            vectors: AtomicU16::new(pci::MSIX_VECTORS),
            is_iwarp: AtomicBool::new(false),
            demands_crcs: AtomicBool::new(true),
            keepalive: RwLock::default(),
            heartbeat: AtomicU32::new(0),
            workers: (0..workers).map(|nth| WorkerState::new(nth, workers).into()).collect(),
            awake: Mutex::new(workers),
        });
        fabric.join(&adapter.objects);
        adapter
    }

    /// Returns the part of the adapter that its objects share.
    #[must_use]
    pub fn core(&self) -> &Arc<Core<H>> {
        &self.core
    }

    /// Returns the name, for logs.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// Returns the MAC of its port.
    #[must_use]
    pub fn mac(&self) -> MacAddr {
        self.core.mac()
    }

    /// Returns the host.
    #[must_use]
    pub fn host(&self) -> &H {
        self.core.host()
    }

    /// Returns the number of its workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns the number of MSI-X vectors that it uses.
    #[must_use]
    pub fn vectors(&self) -> u16 {
        self.vectors.load(Ordering::Relaxed)
    }

    /// Limits the adapter to the first `vectors` vectors of its table. There must be at least two:
    /// one for asynchronous events and one for completions. Must be called before a driver is
    /// there.
    pub fn limit_vectors(&self, vectors: u16) {
        self.vectors.store(vectors.clamp(2, pci::MSIX_VECTORS), Ordering::Relaxed);
    }

    /// Returns the protocol of its QPs.
    #[must_use]
    pub fn transport(&self) -> Transport {
        let is_iwarp = self.is_iwarp.load(Ordering::Relaxed);
        if is_iwarp { Transport::Iwarp } else { Transport::Roce }
    }

    /// Returns whether QPs of this type have messages in TCP connections.
    #[must_use]
    pub fn has_messages_of_tcp(&self, kind: Type) -> bool {
        kind == Type::Rc && self.transport() == Transport::Iwarp
    }

    /// Sets the protocol of its QPs. Must be called before a driver is there.
    pub fn set_transport(&self, transport: Transport) {
        self.is_iwarp.store(transport == Transport::Iwarp, Ordering::Relaxed);
    }

    /// Sets the ceilings of what its send queues begin. Can be called at any time.
    pub fn limit_pace(&self, ceilings: Ceilings) {
        self.core.pace.set(ceilings);
        self.objects.all_qps().iter().for_each(|qp| qp.schedule(&self.core));
        self.wake_all();
    }

    /// Forgets what its send queues have begun, for a new guest.
    pub fn restart_pace(&self) {
        self.core.pace.restart();
    }

    /// Sets the VLANs of the port. Must be called before a driver is there.
    pub fn set_vlans(&self, vlans: Vlans) {
        self.core.port.set_vlans(vlans);
    }

    /// Returns whether messages of iWARP must have CRCs, even if the peer does not ask for them.
    #[must_use]
    pub fn demands_crcs(&self) -> bool {
        self.demands_crcs.load(Ordering::Relaxed)
    }

    /// Sets whether messages of iWARP must have CRCs. Open connections keep the setting that both
    /// ends have agreed on.
    pub fn demand_crcs(&self, demand: bool) {
        self.demands_crcs.store(demand, Ordering::Relaxed);
    }

    /// Returns the idle time after which TCP connections probe their peers, if they do so.
    #[must_use]
    pub fn keepalive(&self) -> Option<Duration> {
        *self.keepalive.read()
    }

    /// Sets the idle time after which TCP connections probe their peers, which they do not do
    /// before it is set. Open connections keep the time that they have.
    pub fn set_keepalive(&self, idle: Option<Duration>) {
        *self.keepalive.write() = idle;
    }

    /// Sets the rate of the link for which RoCE connections control their rates by DCQCN, which
    /// they do not do before it is set. Open connections keep their windows or rates.
    pub fn set_dcqcn(&self, line: Option<Rate>) {
        *self.core.dcqcn.write() = line.map(Parameters::for_threads);
    }

    /// Returns the objects that are needed to read a page table.
    pub(crate) fn paging(&self) -> Paging<'_, H> {
        Paging { host: self.host(), budget: &self.objects.page_budget }
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &Counters {
        self.core.stats()
    }

    /// Returns the memory for the buffers of TCP connections.
    #[must_use]
    pub fn connection_memory(&self) -> &Arc<Budget> {
        &self.objects.claims.memory
    }

    /// Returns the network of the daemon, with all its adapters.
    #[must_use]
    pub fn fabric(&self) -> &Fabric<H> {
        &self.fabric
    }

    /// Returns the adapter in its daemon's network.
    #[must_use]
    pub fn network(&self) -> Network<'_, H> {
        Network { own: &self.objects, fabric: &self.fabric }
    }

    /// Returns the current table of regions.
    #[must_use]
    pub fn tpt(&self) -> Arc<Tpt> {
        Arc::clone(&self.tpt.read())
    }

    /// Returns whether a MAC belongs to this adapter in its VLAN. Can be called from any thread.
    #[must_use]
    pub fn has_address(&self, at: VlanMac) -> bool {
        self.network().has_address(at)
    }

    /// Returns whether the driver has named a MAC as one of its addresses in some VLAN, even if the
    /// MAC belongs to another adapter. Can be called from any thread.
    #[must_use]
    pub fn claims(&self, mac: MacAddr) -> bool {
        self.network().claims(mac)
    }

    /// Takes a frame from the Ethernet if it is for this adapter; otherwise returns it. The caller
    /// has checked that its destination is a MAC of this adapter or a group. Can be called from any
    /// thread.
    pub fn offer(&self, frame: Frame) -> Offered {
        ingress::offer_last(&self.objects, frame)
    }

    /// Returns whether a frame that the guest's network card sends belongs to a TCP connection that
    /// the adapter has taken over. Can be called from any thread.
    #[must_use]
    pub fn has_taken_over(&self, frame: &[u8]) -> bool {
        ingress::has_taken_over(&self.objects, frame)
    }

    /// Returns whether QPs of raw packets have flow rules.
    #[inline]
    #[must_use]
    pub fn has_flows(&self) -> bool {
        self.objects.flows.any()
    }

    /// Returns the comment of captures on a frame of the Ethernet for a QP of this adapter, if the
    /// QP is traced. Can be called from any thread.
    #[must_use]
    pub fn note(&self, frame: &Frame) -> Option<String> {
        ingress::note(&self.objects, frame)
    }

    /// Returns whether QPs of raw packets get copies of all frames.
    #[inline]
    #[must_use]
    pub fn has_sniffers(&self) -> bool {
        self.objects.flows.has_sniffers()
    }

    /// Gives copies of a frame of the guest's network card, or of one for a station behind the
    /// card, to the sniffers. The frame is as in the network. Can be called from any thread.
    #[inline]
    pub fn sniff(&self, frame: &Frame) {
        let _copies = rules::sniff(&self.objects, frame);
    }

    /// Returns whether all workers keep up with the frames that arrive, so that more frames can be
    /// offered.
    #[must_use]
    pub fn has_frame_room(&self) -> bool {
        self.objects.core().frame_room() > 0
    }

    /// Returns the QP with this number.
    #[must_use]
    pub fn qp(&self, qpn: impl Into<Qpn>) -> Option<Arc<Qp<H>>> {
        self.objects.qp(qpn.into())
    }

    /// Records that the port's link is up or down.
    pub fn set_link(&self, up: bool) {
        let change = self.core.port.set_link(up);
        self.count_downed(change);
        if change.link {
            self.core.report(if up { Kind::PortUp } else { Kind::PortDown }, 1u32);
            self.wake_all();
        }
    }

    /// Takes the port's link away because of a rule for faults, or gives it back.
    pub(crate) fn set_fault_down(&self, down: bool) {
        let change = self.core.port.set_fault_down(down);
        self.count_downed(change);
        if change.link {
            self.core.report(if down { Kind::PortDown } else { Kind::PortUp }, 1u32);
            self.wake_all();
        }
    }

    /// Opens or closes the port for the driver. After it has been closed, no data moves to or from
    /// this guest's memory any more. The caller holds no guest memory.
    pub(crate) fn set_open(&self, open: bool) {
        let change = self.core.port.set_open(open);
        self.count_downed(change);
        if change.downed {
            self.drain(&Transfers::All);
        }
    }

    /// Waits until no thread accesses guest memory as was allowed earlier, and none of these
    /// transfers is in progress. The caller is the control thread, and holds no guest memory.
    pub(crate) fn drain(&self, of: &Transfers<'_>) {
        self.host().drain();
        self.host().wait_for_transfers(of);
    }

    /// Waits as [`Self::drain`] does until the memory of the region or window with this key, as it
    /// is now, is not used by it any more.
    pub(crate) fn drain_key(&self, key: Key) -> impl FnOnce() {
        let tpt = self.tpt();
        let contents = tpt.contents(key);
        move || {
            let parts = |each: &mut dyn FnMut(GuestAddr, u64)| {
                contents.iter().for_each(|mr| tpt.each_part(mr, each));
            };
            self.drain(&Transfers::In(&parts));
        }
    }

    fn count_downed(&self, change: Change) {
        if change.downed {
            self.stats().step(Counter::LinkDowned);
        }
    }

    /// Returns the maximum packet payload of the port, as `enum ib_mtu`.
    #[must_use]
    pub fn mtu(&self) -> u8 {
        self.core.mtu()
    }

    /// Sets the maximum packet payload. The caller has checked that it is a valid value.
    pub(crate) fn set_mtu(&self, mtu: u8) {
        self.core.port.set_mtu(mtu);
    }

    /// Limits the maximum packet payload of the port to what the network carries, whatever the
    /// driver sets. QPs that are connected keep their MTU.
    pub fn limit_mtu(&self, mtu: Mtu) {
        self.core.port.limit_mtu(mtu.code());
    }

    /// Steps the heartbeat, and fails direct transfers whose time limit is over. Must be called at
    /// least every [`regs::HEARTBEAT_PERIOD_MS`]. The heartbeat's copy in UAR 0 does not change
    /// while the adapter serves no driver, so that a driver notices a reset that it did not
    /// request.
    pub fn beat(&self) {
        self.expire_transfers();
        let beat = self.heartbeat.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let status = self.registers.status();
        if status.contains(regs::Status::ENABLED) && !status.contains(regs::Status::FATAL) {
            self.host().bar_store32(doorbell::HEARTBEAT, beat);
        }
    }

    /// Reads a register of BAR0.
    #[must_use]
    pub fn read_register(&self, offset: u32) -> u32 {
        let MacAddr([a, b, c, d, e, f]) = self.mac();
        match offset {
            regs::MAGIC => regs::MAGIC_VALUE,
            regs::VERSION => vrnic_abi::ABI_VERSION,
            regs::STATUS => {
                let mut status = self.registers.status();
                status.set(regs::Status::LINK_UP, self.core.port.link());
                status.bits()
            }
            regs::HEARTBEAT => self.heartbeat.load(Ordering::Relaxed),
            regs::FATAL_CODE => self.registers.fatal_code(),
            regs::MAC_LO => u32::from_le_bytes([a, b, c, d]),
            regs::MAC_HI => u32::from_le_bytes([e, f, 0, 0]),
            regs::UAR_COUNT => self.limits().uar,
            // CAST: takes each half of the number.
            regs::CLOCK_LO => self.host().now().0 as u32,
            regs::CLOCK_HI => (self.host().now().0 >> 32) as u32,
            regs::VECTOR_COUNT => u32::from(self.vectors()),
            regs::DEVICE_MEMORY => self.limits().device_memory,
            _ => 0,
        }
    }

    /// Writes a register of BAR0, without waiting for the work that this starts. Returns true if
    /// [`Self::control`] must be called to do the work; otherwise a worker does it.
    #[must_use]
    pub fn write_register(&self, offset: u32, value: u32) -> bool {
        if (regs::KICK..regs::KICK + regs::KICK_LEN).contains(&offset) {
            self.stats().step(Counter::Kicks);
            self.wake_all();
            return false;
        }
        if offset == regs::RANGE_DONE {
            self.finish_range(value.into());
            return false;
        }
        let work = self.registers.write(offset, value).unwrap_or_else(|why| {
            self.core.warn(|name| {
                tracing::warn!(
                    function = name,
                    "a write of {value:#x} to register {offset:#x} was ignored: {why}"
                );
            });
            false
        });
        if work && self.is_resetting() {
            // A command that waits for them must not delay the reset.
            self.host().interrupt_transfers();
        }
        work
    }

    /// Wakes all workers.
    pub fn wake_all(&self) {
        (0..self.workers()).for_each(|worker| self.host().wake(worker));
    }

    /// Records that a worker is about to sleep, or has woken. While all workers sleep, the guest
    /// must wake one by a register write. While one is awake, it wakes the others when their
    /// doorbells are rung.
    pub fn set_asleep(&self, asleep: bool) {
        let mut awake = self.awake.lock();
        *awake = if asleep { awake.saturating_sub(1) } else { *awake + 1 };
        let changed = if asleep { *awake == 0 } else { *awake == 1 };
        if changed {
            for uar in self.objects.active_uars.read().iter() {
                self.host().bar_store32(uar.number.armed(), u32::from(asleep));
            }
        }
    }

    /// Returns the present attributes of a QP.
    #[must_use]
    pub fn query_qp(&self, qp: &Qp<H>) -> Attr {
        let mut attr = *qp.attr.lock();
        attr.state = qp.state() as u8;
        attr.cur_state = attr.state;
        attr
    }

    /// Returns the reply to QUERY_DEVICE.
    #[must_use]
    pub fn caps(&self) -> vrnic_abi::admin::DeviceCaps {
        let mut caps = limits::caps(&self.limits(), self.transport());
        if self.permits_faults() {
            caps.features |= DeviceFeatures::FAULTS.bits();
        }
        caps
    }

    /// Sets whether the guest may set rules for faults of its own function (docs/faults.md).
    pub fn permit_faults(&self, permits: bool) {
        self.core.injection.permit(permits);
    }

    /// Returns whether the guest may set rules for faults of its own function.
    #[must_use]
    pub fn permits_faults(&self) -> bool {
        self.core.injection.permits()
    }
}

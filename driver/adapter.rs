// SPDX-License-Identifier: GPL-2.0
//! The adapter as the verbs use it: [`Adapter::new`] brings it up, and dropping it resets it.

use abi::{
    Cqn, Qpn, RangeNumber, Srqn, UarIndex,
    admin::{Command, DeviceCaps, DeviceFeatures, QueryParams, Transport, command},
    direct::{RANGE_LEN, RANGES, WINDOW_LEN},
    pci::{BAR_REGS, BAR_UAR, BAR_WINDOW},
    regs::{self, Status},
    uar::{SQ_MEMORY_LEN, SQ_MEMORY_OFFSET, UAR_LEN},
};
use kernel::{
    cpu::nr_cpu_ids,
    device,
    dma::Coherent,
    ffi::c_void,
    io::Io,
    new_mutex, pci,
    prelude::*,
    sync::{Arc, Mutex},
    time::hrtimer::ArcHrTimerHandle,
};

use crate::{
    adapter_memory::{self, AdapterMemory},
    comp_vectors::{Handlers, cpuhp::Following},
    debugfs::{DebugFiles, DirectLists, Tree, query::Inspector},
    direct::quota::Quotas,
    direct::ranges::Ranges,
    events::{self, AsyncHandler},
    health::Health,
    hw::{
        admin::Admin, eq::EventQueue, irq::Interrupts, p2p::PeerMemory, pci::start_dma,
        regs::Registers, uar::Doorbells,
    },
    listeners::Listeners,
    module_parameters,
    paging::Paging,
    pairing::Port,
    quiesce::{AfterDeath, Liveness, QuiesceGuard},
    rdma::{
        event::{CqLink, QpLink, SrqLink},
        memory::paged_umem,
        port::attr::Protocol,
        user::mmap::IoArea,
    },
    workqueue::OwnQueue,
};

/// A running adapter.
pub(crate) struct Adapter<'a> {
    // The fields are dropped in this order: the adapter stops before its rings are freed.
    liveness: QuiesceGuard,
    _health: ArcHrTimerHandle<Health>,
    _files: DebugFiles,
    inspector: Arc<Inspector>,
    _following: Following,
    _interrupts: Interrupts<'a>,
    paging: Option<Arc<Paging>>,
    handlers: Arc<Handlers>,
    listeners: Arc<Listeners>,
    ranges: Arc<Ranges>,
    quotas: Pin<KBox<Quotas>>,
    doorbells: Arc<Doorbells>,
    regs: Arc<Registers>,
    caps: DeviceCaps,
    protocol: Protocol,
    memory: AdapterMemory,
    /// The blocks of the window.
    blocks: Option<PeerMemory>,
    pdev: &'a pci::Device<device::Bound>,
    /// Memory of objects that the adapter refused to destroy. It is dropped after the adapter was
    /// reset.
    pub(crate) held: Pin<KBox<Mutex<KVec<KBox<dyn Send>>>>>,
}

/// The parts of an adapter that is enabled and has no objects yet.
struct Enabled<'a> {
    // The fields are dropped in this order: the adapter stops before its rings are freed.
    liveness: QuiesceGuard,
    pages: Arc<OwnQueue>,
    admin: Arc<Admin>,
    listeners: Arc<Listeners>,
    interrupts: Interrupts<'a>,
}

impl<'a> Enabled<'a> {
    /// Resets the adapter, sets its asynchronous event handler, and enables it.
    fn new(
        pdev: &'a pci::Device<device::Bound>,
        regs: &Arc<Registers>,
        doorbells: &Arc<Doorbells>,
        after_death: AfterDeath,
    ) -> Result<Self> {
        let device: &device::Device<device::Bound> = pdev.as_ref();
        regs.reset()?;
        start_dma(pdev);

        let mut interrupts = Interrupts::allocate(pdev, completion_vectors(regs))?;
        let listeners = Listeners::new(interrupts.completion_vectors())?;
        let admin = Admin::new(device, regs.clone())?;
        let liveness = Liveness::new(
            pdev,
            regs.clone(),
            doorbells.clone(),
            admin.clone(),
            listeners.clone(),
            after_death,
        )?;
        let queue = EventQueue::new(device, doorbells.clone(), events::ASYNC)?;
        let pages = OwnQueue::unbound(c"vrnic_pages")?;
        let handler = AsyncHandler {
            queue,
            admin: admin.clone(),
            listeners: listeners.clone(),
            liveness: liveness.clone(),
            pages: pages.clone(),
        };
        events::set_async_handler(regs, &mut interrupts, handler)?;
        // From here on, a failure resets the adapter before the rings above are freed.
        let liveness = QuiesceGuard::new(liveness);
        regs.enable(pdev)?;
        listeners.link.begin(regs.status().contains(Status::LINK_UP));
        Ok(Self { liveness, pages, admin, listeners, interrupts })
    }
}

impl<'a> Adapter<'a> {
    /// Brings the adapter up. The PCI device must be enabled, with a 64-bit DMA mask. The kernel
    /// has page structs for `memory`.
    pub(crate) fn new(
        pdev: &'a pci::Device<device::Bound>,
        memory: AdapterMemory,
        after_death: AfterDeath,
    ) -> Result<Self> {
        let device: &device::Device<device::Bound> = pdev.as_ref();
        let regs = Arc::new(Registers::map(pdev)?, GFP_KERNEL)?;
        let doorbells = Arc::new(Doorbells::map(pdev, regs.clone())?, GFP_KERNEL)?;
        // A failure resets the adapter, by dropping `liveness`, before it frees the other parts.
        let Enabled { mut interrupts, listeners, admin, pages, liveness } =
            Enabled::new(pdev, &regs, &doorbells, after_death)?;
        let health = Health::start(doorbells.clone(), admin.clone(), liveness.clone())?;

        let caps = query(device, &liveness)?;
        let protocol = protocol(&caps)?;
        let handlers = events::completion_handlers(
            device,
            &liveness,
            &mut interrupts,
            &doorbells,
            &listeners,
        )?;
        let paging = (caps.has(DeviceFeatures::PAGED) && paged_umem::is_available())
            .then(|| Paging::new(device, pages))
            .transpose()?;
        let inspector = Inspector::new(device, liveness.clone())?;
        let ranges = Ranges::new()?;
        let blocks = adapter_memory::set_window(pdev, &liveness)?;
        let tree = Tree::new(handlers.clone(), listeners.clone());
        let lists = DirectLists { ranges: ranges.clone(), liveness: liveness.clone() };
        let mut files = DebugFiles::new(device, tree, admin, lists, &inspector)?;
        if caps.has(DeviceFeatures::FAULTS) {
            files.add_faults(device, liveness.clone())?;
        }
        Ok(Self {
            liveness,
            _health: health,
            _files: files,
            inspector,
            _following: Following::new(handlers.clone())?,
            _interrupts: interrupts,
            paging,
            handlers,
            listeners,
            ranges,
            quotas: Quotas::new(memory.of_programs(blocks.as_ref()))?,
            doorbells,
            regs,
            caps,
            protocol,
            memory,
            blocks,
            pdev,
            held: KBox::pin_init(new_mutex!(KVec::new(), "vrnic::Adapter::held"), GFP_KERNEL)?,
        })
    }

    /// Returns the device that does the DMA.
    pub(crate) fn dma(&self) -> &device::Device<device::Bound> {
        self.pdev.as_ref()
    }

    /// Runs an admin command by [`Liveness::execute`].
    pub(crate) fn execute<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        self.liveness.execute::<C>(params)
    }

    /// Runs an admin command by [`Liveness::execute_briefly`].
    pub(crate) fn execute_briefly<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        self.liveness.execute_briefly::<C>(params)
    }

    /// Returns the means to ask the adapter about its objects.
    pub(crate) fn inspector(&self) -> &Inspector {
        &self.inspector
    }

    /// Returns the state of the adapter, which is shared with objects that live longer than this.
    pub(crate) fn liveness(&self) -> Arc<Liveness> {
        self.liveness.clone()
    }

    /// Returns whether the adapter has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.liveness.is_dead()
    }

    /// Returns whether the adapter has died and touches no memory any more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.liveness.is_quiet()
    }

    /// Calls handlers in place of a quiet adapter, by [`Liveness::call_handlers`].
    pub(crate) fn call_handlers(&self) {
        self.liveness.call_handlers();
    }

    /// Returns whether the port has a link. It is active if its Ethernet device is, too.
    pub(crate) fn has_link(&self) -> bool {
        self.listeners.link.is_up()
    }

    /// Returns the limits that the adapter reports.
    pub(crate) fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// Returns the protocol of its queue pairs.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the version of its interface.
    pub(crate) fn abi_version(&self) -> u32 {
        self.regs.version()
    }

    /// Returns the port, for its pairing.
    pub(crate) fn port(&self) -> Port {
        let macs = match self.protocol {
            Protocol::Roce => 0,
            Protocol::Iwarp => self.caps.max_gid.get().min(1 << 16),
        };
        let (liveness, listeners) = (self.liveness.clone(), self.listeners.clone());
        Port::new(liveness, listeners, self.doorbells.clone(), self.mac(), macs)
    }

    /// Returns the MAC of the port.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.regs.mac()
    }

    /// Returns the completion event handlers.
    pub(crate) fn handlers(&self) -> &Handlers {
        &self.handlers
    }

    /// Sends events of this completion queue to `link` from now on, by the handler that it is bound
    /// to.
    pub(crate) fn add_cq(&self, handler: u32, cqn: Cqn, link: CqLink) -> Result {
        self.listeners.cqs(handler as usize)?.add(cqn, link)?;
        self.handlers.get(handler)?.handler.bind();
        Ok(())
    }

    /// Stops the events of this completion queue.
    pub(crate) fn remove_cq(&self, handler: u32, cqn: Cqn, link: &CqLink) {
        if let Ok(cqs) = self.listeners.cqs(handler as usize) {
            cqs.remove(cqn, link);
        }
        if let Ok(descriptor) = self.handlers.get(handler) {
            descriptor.handler.unbind();
        }
    }

    /// Sends events of this queue pair to `link` from now on.
    pub(crate) fn add_qp(&self, qpn: Qpn, link: QpLink) -> Result {
        self.listeners.qps.add(qpn, link)
    }

    /// Returns the reference that events of this queue pair are sent to.
    pub(crate) fn find_qp(&self, qpn: Qpn) -> Option<QpLink> {
        self.listeners.qps.get(qpn)
    }

    /// Stops the events of this queue pair.
    pub(crate) fn remove_qp(&self, qpn: Qpn, link: &QpLink) {
        self.listeners.qps.remove(qpn, link);
    }

    /// Sends events of this shared receive queue to `link` from now on.
    pub(crate) fn add_srq(&self, srqn: Srqn, link: SrqLink) -> Result {
        self.listeners.srqs.add(srqn, link)
    }

    /// Stops the events of this shared receive queue.
    pub(crate) fn remove_srq(&self, srqn: Srqn, link: &SrqLink) {
        self.listeners.srqs.remove(srqn, link);
    }

    /// Returns the objects that events are reported to.
    pub(crate) fn listeners(&self) -> Arc<Listeners> {
        self.listeners.clone()
    }

    /// Returns what the regions share whose pages come and go, if it has such regions.
    pub(crate) fn paging(&self) -> Option<&Arc<Paging>> {
        self.paging.as_ref()
    }

    /// Returns the owners of address ranges.
    pub(crate) fn ranges(&self) -> &Arc<Ranges> {
        &self.ranges
    }

    /// Tells the adapter that the controller has moved all bytes of a range.
    pub(crate) fn set_range_done(&self, range: RangeNumber) {
        self.regs.write(regs::RANGE_DONE, range.get());
    }

    /// Returns the place of a range in the window, for mmap.
    pub(crate) fn range_area(&self, range: RangeNumber) -> Result<IoArea<'_>> {
        let offset = u64::from(range.get()) * u64::from(RANGE_LEN);
        if offset >= WINDOW_LEN.into() {
            return Err(EINVAL);
        }
        IoArea::new(self.pdev, BAR_WINDOW, offset, RANGE_LEN.into())
    }

    /// Returns the kernel's address of a range in the window, whose page has a page struct.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the kernel has not accepted the window.
    pub(crate) fn range_page(&self, range: RangeNumber) -> Result<*mut c_void> {
        let window = self.memory.window.as_ref().ok_or(EOPNOTSUPP)?;
        if range.get() >= RANGES {
            return Err(EINVAL);
        }
        // CAST: to the wider type.
        Ok(window.start().as_ptr().wrapping_byte_add((range.get() * RANGE_LEN) as usize))
    }

    /// Returns the doorbells of kernel clients.
    pub(crate) fn doorbells(&self) -> &Doorbells {
        &self.doorbells
    }

    /// Returns a doorbell page, for mmap.
    pub(crate) fn uar_area(&self, uar: UarIndex) -> Result<IoArea<'_>> {
        self.uar_bar_area(uar.offset(), UAR_LEN.into(), SQ_MEMORY_OFFSET)
    }

    /// Returns a send queue in device memory, for mmap.
    pub(crate) fn sq_area(&self, offset: u64, length: u64) -> Result<IoArea<'_>> {
        if offset < SQ_MEMORY_OFFSET {
            return Err(EIO);
        }
        self.uar_bar_area(offset, length, SQ_MEMORY_OFFSET + SQ_MEMORY_LEN)
    }

    /// Returns whether the adapter has blocks of packet memory.
    pub(crate) fn has_blocks(&self) -> bool {
        self.blocks.is_some()
    }

    /// Returns the limits of processes.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Allocates `length` bytes of device memory, which are whole pages; returns also where to map
    /// them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn take_device_memory(&self, length: usize) -> Result<(PeerMemory, IoArea<'_>)> {
        let memory = PeerMemory::alloc(self.pdev, length)?;
        let area = IoArea::new(self.pdev, BAR_UAR, memory.offset(BAR_UAR)?, length.try_into()?)?;
        Ok((memory, area))
    }

    /// Returns the page by which a process kicks the adapter, for mmap.
    pub(crate) fn kick_area(&self) -> Result<IoArea<'_>> {
        IoArea::new(self.pdev, BAR_REGS, regs::KICK.into(), regs::KICK_LEN.into())
    }

    /// Returns a part of BAR2 below `end`. Offset and length may be the adapter's, so they are
    /// checked.
    fn uar_bar_area(&self, offset: u64, length: u64, end: u64) -> Result<IoArea<'_>> {
        if offset.checked_add(length).is_none_or(|area_end| area_end > end) {
            return Err(EIO);
        }
        IoArea::new(self.pdev, BAR_UAR, offset, length).map_err(|_| EIO)
    }
}

/// Queries the limits and features of the adapter.
fn query(device: &device::Device<device::Bound>, liveness: &Liveness) -> Result<DeviceCaps> {
    let buffer = Coherent::<u8>::zeroed_slice(device, size_of::<DeviceCaps>(), GFP_KERNEL)?;
    let length = u32::try_from(buffer.size())?;
    liveness.execute::<command::QueryDevice>(&QueryParams::new(buffer.dma_address(), length))?;
    Ok((&buffer).try_cast::<DeviceCaps>()?.copy_read())
}

/// Returns the protocol that the adapter names.
fn protocol(caps: &DeviceCaps) -> Result<Protocol> {
    match Transport::from_raw(caps.transport.get()).ok_or(EPROTO)? {
        Transport::Roce => Ok(Protocol::Roce),
        Transport::Iwarp => Ok(Protocol::Iwarp),
    }
}

/// Returns the number of completion vectors to ask for: one for each processor, but no more than
/// the adapter has or the module parameter allows.
fn completion_vectors(regs: &Registers) -> u32 {
    let limit = match module_parameters::comp_vectors.value() {
        0 => u32::MAX,
        limit => limit,
    };
    regs.read(regs::VECTOR_COUNT).saturating_sub(1).min(nr_cpu_ids()).min(limit).max(1)
}

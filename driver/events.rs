// SPDX-License-Identifier: GPL-2.0
//! The handlers of the adapter's interrupts, and how they are set: the handlers take events from
//! event queues and report them to the objects that the events concern.

use abi::{
    Eqn, Qpn, SlotIndex, Srqn,
    admin::{CreateEq, Pages, command},
    eq::Kind,
    pci::VECTOR_ASYNC,
    regs,
    uar::ASYNC_EQ_SLOT,
};
use kernel::{cpu::CpuId, device, page::PAGE_SHIFT, prelude::*, sync::Arc};

use crate::{
    comp_vectors::{Descriptor, Handler, Handlers, balance::Rule},
    hw::{
        admin::Admin,
        eq::{self, EventQueue},
        irq::{self, Interrupts, Turn},
        regs::Registers,
        uar::Doorbells,
    },
    listeners::Listeners,
    module_parameters,
    quiesce::{Cause, Liveness},
    rdma::event::{QpEvent, SrqEvent},
    workqueue::OwnQueue,
};

/// The doorbell slot of the asynchronous event queue.
pub(crate) const ASYNC: SlotIndex = SlotIndex::new(ASYNC_EQ_SLOT);

/// Handles a completion vector's interrupt.
pub(crate) struct CompletionHandler {
    /// The event queue that the interrupt announces.
    pub(crate) queue: Arc<EventQueue>,
    /// The objects that events are reported to.
    pub(crate) listeners: Arc<Listeners>,
    /// The id and the counters of the handler.
    pub(crate) handler: Arc<Handler>,
    /// The state of the adapter.
    pub(crate) liveness: Arc<Liveness>,
}

impl irq::Handler for CompletionHandler {
    fn take(&self, turn: Turn) -> bool {
        let Ok(cqs) = self.listeners.cqs(self.handler.id as usize) else { return false };
        let mut events = 0;
        while events < turn.budget() {
            let Some(event) = self.queue.next() else { break };
            events += 1;
            if Kind::from_raw(event.kind) == Some(Kind::Completion) {
                if let Some(link) = cqs.get(event.id.get().into()) {
                    link.complete();
                }
            }
        }
        self.handler.count(turn, events);
        events == turn.budget()
    }

    fn is_over(&self) -> bool {
        self.liveness.is_dead()
    }
}

/// Handles the interrupt of admin completions and asynchronous events.
pub(crate) struct AsyncHandler {
    /// The queue of asynchronous events.
    pub(crate) queue: Arc<EventQueue>,
    /// The admin queue, whose completions share the interrupt.
    pub(crate) admin: Arc<Admin>,
    /// The objects that events are reported to.
    pub(crate) listeners: Arc<Listeners>,
    /// The liveness that ends when the adapter fails.
    pub(crate) liveness: Arc<Liveness>,
    /// The queue of work that finds pages of processes.
    pub(crate) pages: Arc<OwnQueue>,
}

impl irq::Handler for AsyncHandler {
    fn take(&self, turn: Turn) -> bool {
        let completions = self.admin.take(turn.budget()).unwrap_or_else(|error| {
            dev_err!(self.liveness.device(), "admin completions cannot be read: {error:?}\n");
            0
        });
        let mut events = 0;
        while events < turn.budget() {
            let Some(event) = self.queue.next() else { break };
            events += 1;
            self.deliver(Kind::from_raw(event.kind), event.id.get());
        }
        events.max(completions) == turn.budget()
    }

    fn is_over(&self) -> bool {
        self.liveness.is_dead()
    }
}

impl AsyncHandler {
    fn deliver(&self, kind: Option<Kind>, id: u32) {
        match kind {
            // The owner tells them apart by the state of the queue.
            Some(Kind::CqError | Kind::CqFull | Kind::CqFew) => {
                if let Some(link) = self.listeners.find_cq(id.into()) {
                    link.report_error();
                }
            }
            Some(Kind::QpFatal) => self.deliver_qp(id.into(), QpEvent::Fatal),
            Some(Kind::QpRequestError) => self.deliver_qp(id.into(), QpEvent::RequestError),
            Some(Kind::QpAccessError) => self.deliver_qp(id.into(), QpEvent::AccessError),
            Some(Kind::CommEstablished) => self.deliver_qp(id.into(), QpEvent::CommEstablished),
            Some(Kind::SqDrained) => self.deliver_qp(id.into(), QpEvent::SqDrained),
            Some(Kind::QpLastWqe) => self.deliver_qp(id.into(), QpEvent::LastWqeReached),
            Some(Kind::ConnectionChanged) => {
                self.listeners.tell_connections(|connections| connections.changed(id.into()));
            }
            Some(Kind::PageFault) => {
                if let Some(region) = self.listeners.regions.get(id.into()) {
                    region.0.requested(&self.pages);
                }
            }
            Some(Kind::SrqLimit) => self.deliver_srq(id.into(), SrqEvent::LimitReached),
            Some(Kind::SrqError) => self.deliver_srq(id.into(), SrqEvent::Error),
            Some(Kind::DeviceFatal) => {
                dev_err!(self.liveness.device(), "the adapter has failed: code {id}\n");
                self.liveness.die(Cause::Failed);
            }
            Some(Kind::PortUp) => self.listeners.link.change(true),
            Some(Kind::PortDown) => self.listeners.link.change(false),
            Some(Kind::Completion) | None => {}
        }
    }

    fn deliver_srq(&self, srqn: Srqn, event: SrqEvent) {
        if let Some(link) = self.listeners.srqs.get(srqn) {
            link.report(event);
        }
    }

    fn deliver_qp(&self, qpn: Qpn, event: QpEvent) {
        if let Some(link) = self.listeners.qps.get(qpn) {
            link.report(event);
        }
    }
}

/// Sets the asynchronous event handler: an interrupt, and the event queue that raises it.
pub(crate) fn set_async_handler(
    regs: &Registers,
    interrupts: &mut Interrupts<'_>,
    handler: AsyncHandler,
) -> Result {
    regs.write_pair(regs::ASYNC_EQ_LO, handler.queue.dma_address());
    regs.write(regs::ASYNC_EQ_LOG_SIZE, eq::LOG_SIZE.into());
    interrupts.register(VECTOR_ASYNC.into(), fmt!("async"), None, handler)?;
    Ok(())
}

/// Sets a completion event handler for each interrupt of completions.
pub(crate) fn completion_handlers(
    device: &device::Device<device::Bound>,
    liveness: &Arc<Liveness>,
    interrupts: &mut Interrupts<'_>,
    doorbells: &Arc<Doorbells>,
    listeners: &Arc<Listeners>,
) -> Result<Arc<Handlers>> {
    let mut descriptors = KVec::new();
    for id in 0..u32::try_from(interrupts.completion_vectors())? {
        let queue = EventQueue::new(device, doorbells.clone(), ASYNC)?;
        let descriptor = set_handler(liveness, interrupts, id, queue, listeners)?;
        descriptors.push(descriptor, GFP_KERNEL)?;
    }
    let rule = Rule::from_raw(module_parameters::balance.value())?;
    Handlers::new(device, descriptors, rule)
}

/// Sets a completion event handler (RDMA verbs, "Set Completion Event Handler"): an interrupt, and
/// an event queue that raises it. Completion queues are bound to it by its id.
fn set_handler(
    liveness: &Arc<Liveness>,
    interrupts: &mut Interrupts<'_>,
    id: u32,
    queue: Arc<EventQueue>,
    listeners: &Arc<Listeners>,
) -> Result<Descriptor> {
    let handler = Handler::new(id)?;
    // The handler must be registered before the first event.
    let handle = CompletionHandler {
        queue: queue.clone(),
        listeners: listeners.clone(),
        handler: handler.clone(),
        liveness: liveness.clone(),
    };
    let cpu = CpuId::from_u32(id);
    let line = interrupts.register(1 + id as usize, fmt!("comp{id}"), cpu, handle)?;
    let eqn = create_eq(liveness, &queue, id as usize)?;
    Ok(Descriptor { handler, eqn, line })
}

/// Creates an event queue in the adapter.
fn create_eq(liveness: &Liveness, queue: &EventQueue, vector: usize) -> Result<Eqn> {
    // CAST: small constants.
    let pages = Pages::new(queue.dma_address(), PAGE_SHIFT as u8, 0);
    let msix = u16::try_from(1 + vector)?;
    let result =
        liveness.execute::<command::CreateEq>(&CreateEq::new(pages, msix, eq::LOG_SIZE))?;
    queue.set_doorbell(result.slot);
    Ok(result.eqn)
}

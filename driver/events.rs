// SPDX-License-Identifier: GPL-2.0
//! Who hears of events: objects by number, and the handlers that find them.

use abi::eq::Kind;
use kernel::{
    new_spinlock_irq,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{Arc, SpinLockIrq},
};

use crate::{
    admin::Admin,
    eq::EventQueue,
    handlers::Handler,
    life::{Death, Life},
    rdma::event::{CqLink, DeviceEvent, DeviceLink, QpEvent, QpLink, SrqEvent, SrqLink},
};

/// Objects of a kind, by number.
#[pin_data]
pub(crate) struct LinkTable<L> {
    #[pin]
    links: SpinLockIrq<KBox<RBTree<u32, L>>>,
}

impl<L: Clone + PartialEq> LinkTable<L> {
    fn new() -> impl PinInit<Self, Error> {
        let links = KBox::new(RBTree::new(), GFP_KERNEL);
        try_pin_init!(Self { links <- new_spinlock_irq!(links?, "vrnic::LinkTable") })
    }

    /// Adds an object, in place of a forgotten one of the same number.
    pub(crate) fn add(&self, number: u32, link: L) -> Result {
        let node = RBTreeNode::new(number, link, GFP_KERNEL)?;
        let old = self.links.lock().insert(node);
        drop(old);
        Ok(())
    }

    /// Removes an object, unless another has got its number since.
    pub(crate) fn remove(&self, number: u32, link: &L) {
        let mut links = self.links.lock();
        if links.get(&number).is_none_or(|current| current != link) {
            return;
        }
        let old = links.remove_node(&number);
        // Freed with the lock released.
        drop(links);
        drop(old);
    }

    fn get(&self, number: u32) -> Option<L> {
        self.links.lock().get(&number).cloned()
    }

    /// The object that follows `number`, by number.
    pub(crate) fn next(&self, number: Option<u32>) -> Option<(u32, L)> {
        let links = self.links.lock();
        let from = match number {
            Some(number) => number.checked_add(1)?,
            None => 0,
        };
        let cursor = links.cursor_lower_bound(&from)?;
        let (number, link) = cursor.current();
        Some((*number, link.clone()))
    }
}

/// All who hear of events.
#[pin_data]
pub(crate) struct Listeners {
    /// Completion queues, by completion vector.
    cqs: KVec<Pin<KBox<LinkTable<CqLink>>>>,
    /// Queue pairs.
    #[pin]
    pub(crate) qps: LinkTable<QpLink>,
    /// Shared receive queues.
    #[pin]
    pub(crate) srqs: LinkTable<SrqLink>,
    #[pin]
    device: SpinLockIrq<Audience>,
}

/// Who hears of the device itself.
#[derive(Default)]
struct Audience {
    link: Option<DeviceLink>,
    /// The adapter died before anybody could be told.
    died: bool,
}

impl Listeners {
    /// Nobody yet, on this number of completion vectors.
    pub(crate) fn new(vectors: usize) -> Result<Arc<Self>> {
        let mut cqs = KVec::with_capacity(vectors, GFP_KERNEL)?;
        for _ in 0..vectors {
            cqs.push(KBox::pin_init(LinkTable::new(), GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Arc::pin_init(
            try_pin_init!(Self {
                cqs,
                qps <- LinkTable::new(),
                srqs <- LinkTable::new(),
                device <- new_spinlock_irq!(Audience::default(), "vrnic::Listeners"),
            }),
            GFP_KERNEL,
        )
    }

    /// The completion queues of a vector.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a vector that does not exist.
    pub(crate) fn cqs(&self, vector: usize) -> Result<&LinkTable<CqLink>> {
        self.cqs.get(vector).map(|table| &**table).ok_or(EINVAL)
    }

    /// Whom to tell of events of the device itself. If the adapter has died before, that is told now.
    pub(crate) fn set_device(&self, link: DeviceLink) {
        let died = {
            let mut device = self.device.lock();
            device.link = Some(link.clone());
            device.died
        };
        if died {
            link.report(DeviceEvent::Fatal);
        }
    }

    /// Tells the kernel clients that wait for completions to look for them.
    pub(crate) fn complete_armed(&self) {
        self.each_cq(CqLink::complete_if_armed);
    }

    /// Tells all processes to look for completions.
    pub(crate) fn complete_users(&self) {
        self.each_cq(CqLink::complete_if_users);
    }

    fn each_cq(&self, call: impl Fn(&CqLink)) {
        for table in &self.cqs {
            let mut last = None;
            while let Some((number, link)) = table.next(last) {
                call(&link);
                last = Some(number);
            }
        }
    }

    /// Tells those who wait for it that nothing is taken from a shared receive queue any more.
    pub(crate) fn report_last_wqes(&self) {
        let mut last = None;
        while let Some((number, link)) = self.qps.next(last) {
            link.report_last_wqe_if_due();
            last = Some(number);
        }
    }

    /// Tells the device's clients of an event.
    pub(crate) fn report(&self, event: DeviceEvent) {
        let link = {
            let mut device = self.device.lock();
            device.died |= device.link.is_none() && event == DeviceEvent::Fatal;
            device.link.clone()
        };
        if let Some(link) = link {
            link.report(event);
        }
    }
}

/// Where events are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// In an interrupt.
    Interrupt,
    /// In its thread.
    Thread,
}

impl Turn {
    /// Events of a queue that are taken there at a time, at most.
    fn budget(self) -> u32 {
        match self {
            Self::Interrupt => 16,
            Self::Thread => 64,
        }
    }
}

/// Handles a completion vector's interrupt.
pub(crate) struct CompletionHandler {
    /// Its events.
    pub(crate) queue: Arc<EventQueue>,
    /// Whom to tell.
    pub(crate) listeners: Arc<Listeners>,
    /// Which handler it is, and what it counts.
    pub(crate) handler: Arc<Handler>,
}

impl CompletionHandler {
    /// Takes some events; whether there may be more.
    pub(crate) fn take(&self, turn: Turn) -> bool {
        let Ok(cqs) = self.listeners.cqs(self.handler.id as usize) else { return false };
        let mut events = 0;
        while events < turn.budget() {
            let Some(event) = self.queue.next() else { break };
            events += 1;
            if Kind::from_raw(event.kind) == Some(Kind::Completion) {
                if let Some(link) = cqs.get(event.id.get()) {
                    link.complete();
                }
            }
        }
        self.handler.count(turn, events);
        events == turn.budget()
    }
}

/// Handles the interrupt of admin completions and asynchronous events.
pub(crate) struct AsyncHandler {
    /// Its events.
    pub(crate) queue: Arc<EventQueue>,
    /// Whose completions share the interrupt.
    pub(crate) admin: Arc<Admin>,
    /// Whom to tell.
    pub(crate) listeners: Arc<Listeners>,
    /// What ends when the adapter fails.
    pub(crate) life: Arc<Life>,
}

impl AsyncHandler {
    /// Takes some completions and events; whether there may be more.
    pub(crate) fn take(&self, turn: Turn) -> bool {
        let completions = self.admin.take(turn.budget()).unwrap_or_else(|error| {
            dev_err!(self.life.device(), "admin completions cannot be read: {error:?}\n");
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

    fn deliver(&self, kind: Option<Kind>, id: u32) {
        match kind {
            Some(Kind::CqError) => {
                let link = self.listeners.cqs.iter().find_map(|table| table.get(id));
                if let Some(link) = link {
                    link.report_error();
                }
            }
            Some(Kind::QpFatal) => self.deliver_qp(id, QpEvent::Fatal),
            Some(Kind::QpRequestError) => self.deliver_qp(id, QpEvent::RequestError),
            Some(Kind::QpAccessError) => self.deliver_qp(id, QpEvent::AccessError),
            Some(Kind::CommEstablished) => self.deliver_qp(id, QpEvent::CommEstablished),
            Some(Kind::SqDrained) => self.deliver_qp(id, QpEvent::SqDrained),
            Some(Kind::QpLastWqe) => self.deliver_qp(id, QpEvent::LastWqeReached),
            Some(Kind::SrqLimit) => self.deliver_srq(id, SrqEvent::LimitReached),
            Some(Kind::SrqError) => self.deliver_srq(id, SrqEvent::Error),
            Some(Kind::DeviceFatal) => {
                dev_err!(self.life.device(), "the adapter has failed: code {id}\n");
                self.life.die(Death::Failed);
            }
            // The core reports the port's state, which is that of its Ethernet device.
            Some(Kind::PortUp | Kind::PortDown | Kind::Completion) | None => {}
        }
    }

    fn deliver_srq(&self, srqn: u32, event: SrqEvent) {
        if let Some(link) = self.listeners.srqs.get(srqn) {
            link.report(event);
        }
    }

    fn deliver_qp(&self, qpn: u32, event: QpEvent) {
        if let Some(link) = self.listeners.qps.get(qpn) {
            link.report(event);
        }
    }
}

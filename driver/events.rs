// SPDX-License-Identifier: GPL-2.0
//! The handlers of the adapter's interrupts: they take events from event queues and report them to
//! the objects that the events concern.

use abi::{Qpn, Srqn, eq::Kind};
use kernel::{prelude::*, sync::Arc};

use crate::{
    comp_vectors::Handler,
    hw::{
        admin::Admin,
        eq::EventQueue,
        irq::{self, Turn},
    },
    listeners::Listeners,
    quiesce::{Cause, Liveness},
    rdma::event::{QpEvent, SrqEvent},
    workqueue::OwnQueue,
};

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

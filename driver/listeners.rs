// SPDX-License-Identifier: GPL-2.0
//! The objects that events are reported to, by number.

use core::marker::PhantomData;

use abi::{Cqn, Key, Pdn, Qpn, Srqn};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::{Arc, SpinLockIrq},
};

use crate::{
    port_link::PortLink,
    rdma::event::{CqLink, DeviceEvent, DeviceLink, QpLink, SrqLink},
    workqueue::OwnQueue,
};

/// Objects of a kind, by their numbers `N`.
#[pin_data]
pub(crate) struct LinkTable<N, L> {
    #[pin]
    links: SpinLockIrq<KBox<RBTree<u32, L>>>,
    _number: PhantomData<N>,
}

impl<N: From<u32> + Into<u32>, L: Clone + PartialEq> LinkTable<N, L> {
    /// Creates a table without objects.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        let links = KBox::new(RBTree::new(), GFP_KERNEL);
        try_pin_init!(Self {
            links <- new_spinlock_irq!(links?, "vrnic::LinkTable"),
            _number: PhantomData,
        })
    }

    /// Adds an object. It replaces an earlier object of the same number.
    pub(crate) fn add(&self, number: N, link: L) -> Result {
        let node = RBTreeNode::new(number.into(), link, GFP_KERNEL)?;
        let old = self.links.lock().insert(node);
        drop(old);
        Ok(())
    }

    /// Adds an object in place of `old`, or of none. Returns false, and changes nothing, if another
    /// object has the number.
    pub(crate) fn replace(&self, number: N, old: Option<&L>, link: L) -> Result<bool> {
        let number = number.into();
        let node = RBTreeNode::new(number, link, GFP_KERNEL)?;
        let mut links = self.links.lock();
        if links.get(&number).is_some_and(|current| old != Some(current)) {
            return Ok(false);
        }
        let replaced = links.insert(node);
        // The replaced node is freed after the lock was released.
        drop(links);
        drop(replaced);
        Ok(true)
    }

    /// Removes an object, unless another object has got its number in the meantime.
    pub(crate) fn remove(&self, number: N, link: &L) {
        let number = number.into();
        let mut links = self.links.lock();
        if links.get(&number).is_none_or(|current| current != link) {
            return;
        }
        let old = links.remove_node(&number);
        // The old node is freed after the lock was released.
        drop(links);
        drop(old);
    }

    /// Returns the object of this number.
    pub(crate) fn get(&self, number: N) -> Option<L> {
        self.links.lock().get(&number.into()).cloned()
    }

    /// Returns the object that follows `number`, by number.
    pub(crate) fn next(&self, number: Option<N>) -> Option<(N, L)> {
        let links = self.links.lock();
        let from = match number {
            Some(number) => number.into().checked_add(1)?,
            None => 0,
        };
        let cursor = links.cursor_lower_bound(&from)?;
        let (number, link) = cursor.current();
        Some(((*number).into(), link.clone()))
    }
}

/// The object that events of TCP connections are reported to.
pub(crate) trait ConnectionEvents: Send + Sync {
    /// Called when the connection of a queue pair has changed, in interrupts and under a lock.
    fn changed(&self, qpn: Qpn);

    /// Called when the MACs of the frames of connections may have changed, in any context and under
    /// a lock.
    fn rerouted(self: Arc<Self>);

    /// Called when the adapter has died and reports no more changes, in any context and under a
    /// lock.
    fn died(self: Arc<Self>);
}

/// A region whose pages come and go.
pub(crate) trait PageEvents: Send + Sync {
    /// Called in interrupts when messages wait for pages. Work that finds them is enqueued in
    /// `queue`.
    fn requested(self: Arc<Self>, queue: &OwnQueue);

    /// Gives pages to the adapter before messages need them; sleeps.
    fn prefetch(&self, wanted: &Prefetch) -> Result;
}

/// The part of a region that a program expects to need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefetch {
    /// The PD.
    pub(crate) pdn: Pdn,
    /// The first address, as work requests name it.
    pub(crate) address: u64,
    /// Number of bytes.
    pub(crate) length: u64,
    /// True if it must be writable.
    pub(crate) write: bool,
    /// True if pages that are absent in the process are wanted, too.
    pub(crate) fault: bool,
    /// True if the caller wants to know whether all pages could be had.
    pub(crate) waits: bool,
}

/// A reference to such a region.
#[derive(Clone)]
pub(crate) struct PageLink(pub(crate) Arc<dyn PageEvents>);

impl PartialEq for PageLink {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The objects that events are reported to.
#[pin_data]
pub(crate) struct Listeners {
    /// Completion queues, by completion vector.
    cqs: KVec<Pin<KBox<LinkTable<Cqn, CqLink>>>>,
    /// Queue pairs.
    #[pin]
    pub(crate) qps: LinkTable<Qpn, QpLink>,
    /// Shared receive queues.
    #[pin]
    pub(crate) srqs: LinkTable<Srqn, SrqLink>,
    /// Regions whose pages come and go.
    #[pin]
    pub(crate) regions: LinkTable<Key, PageLink>,
    /// The connections of each RDMA device of an iWARP adapter.
    #[pin]
    connections: SpinLockIrq<KVec<Arc<dyn ConnectionEvents>>>,
    /// The link of the port.
    #[pin]
    pub(crate) link: PortLink,
    #[pin]
    device: SpinLockIrq<Audience>,
}

/// The references that events of the adapter itself are reported to, one for each RDMA device.
struct Audience {
    links: KVec<DeviceLink>,
    /// True if the adapter has died.
    died: bool,
}

impl Listeners {
    /// Creates listeners without objects, for this number of completion vectors.
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
                regions <- LinkTable::new(),
                connections <- new_spinlock_irq!(KVec::new(), "vrnic::Listeners::connections"),
                link <- PortLink::new(),
                device <- new_spinlock_irq!(
                    Audience { links: KVec::new(), died: false },
                    "vrnic::Listeners"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the completion queues of a vector.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a vector that does not exist.
    pub(crate) fn cqs(&self, vector: usize) -> Result<&LinkTable<Cqn, CqLink>> {
        self.cqs.get(vector).map(|table| &**table).ok_or(EINVAL)
    }

    /// Adds a reference that events of the adapter itself are reported to. If the adapter has died
    /// before, this reports that.
    pub(crate) fn add_device(&self, link: DeviceLink) -> Result {
        let died = {
            let mut device = self.device.lock();
            device.links.push(link.clone(), GFP_ATOMIC)?;
            device.died
        };
        if died {
            link.report(DeviceEvent::Fatal);
        }
        Ok(())
    }

    /// Removes such a reference.
    pub(crate) fn remove_device(&self, link: &DeviceLink) {
        self.device.lock().links.retain(|other| other != link);
    }

    /// Adds connections that events of TCP connections are reported to.
    pub(crate) fn add_connections(&self, connections: Arc<dyn ConnectionEvents>) -> Result {
        Ok(self.connections.lock().push(connections, GFP_ATOMIC)?)
    }

    /// Removes such connections, of which the caller has another reference. After the return no
    /// event is reported to them.
    pub(crate) fn remove_connections(&self, connections: &Arc<dyn ConnectionEvents>) {
        self.connections.lock().retain(|other| !Arc::ptr_eq(other, connections));
    }

    /// Calls `call`, which must not sleep, with all connections. They are not removed meanwhile.
    pub(crate) fn tell_connections(&self, call: impl Fn(&Arc<dyn ConnectionEvents>)) {
        self.connections.lock().iter().for_each(call);
    }

    /// Returns the completion queue of this number, on whichever vector it is.
    pub(crate) fn find_cq(&self, cqn: Cqn) -> Option<CqLink> {
        self.cqs.iter().find_map(|table| table.get(cqn))
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

    /// Reports the event of the last WQE where it is due: the queue pair takes nothing from its
    /// shared receive queue any more.
    pub(crate) fn report_last_wqes(&self) {
        let mut last = None;
        while let Some((number, link)) = self.qps.next(last) {
            link.report_last_wqe_if_due();
            last = Some(number);
        }
    }

    /// Tells the clients of all RDMA devices of an event.
    pub(crate) fn report(&self, event: DeviceEvent) {
        let mut device = self.device.lock();
        device.died |= event == DeviceEvent::Fatal;
        device.links.iter().for_each(|link| link.report(event));
    }
}

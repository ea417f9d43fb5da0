// SPDX-License-Identifier: GPL-2.0
//! The context of all operations, and creation of objects that undoes itself.

use core::fmt::Debug;

use abi::{
    ContextId, UarIndex,
    admin::{Command, DeviceFeatures},
};
use kernel::{
    device,
    prelude::*,
    sync::{Arc, atomic::Atomic},
};

use crate::{
    adapter::Adapter,
    iwarp::{Connections, Kept, Owner},
    rdma::{port::attr::Protocol, port::netdev::NetdevRef},
};

/// The context number of the kernel's own objects.
pub(super) const KERNEL_CONTEXT: ContextId = ContextId::new(0);
/// The UAR of the kernel's own objects.
pub(super) const KERNEL_UAR: UarIndex = UarIndex::new(0);

/// The driver as the RDMA core's abstractions know it: the `T` of `Qp<T>` and `Device<T>`.
pub(crate) struct Verbs;

/// The context in which operations run: the data of a registration. User contexts are in
/// [`context`](super::context).
pub(crate) struct Ctx<'a> {
    /// The connections of a device of iWARP, which end on drop. Dropped before `adapter`, which
    /// they use.
    connections: Option<Owner>,
    /// The same connections. The last work item that refers to them has ended when this has been
    /// dropped.
    _connections: Option<Kept>,
    /// The adapter, which all RDMA devices of it share.
    pub(super) adapter: Arc<Adapter<'a>>,
    /// The MAC of the Ethernet device that the RDMA device belongs to.
    pub(super) mac: [u8; 6],
    /// True if this is the RDMA device of the network card, and not of a device on top of it.
    pub(super) is_of_card: bool,
    /// The optional counters that are on, as bits.
    pub(super) optional: Atomic<u32>,
}

impl<'a> Ctx<'a> {
    /// Creates a context for operations of an RDMA device of this adapter. `card` is the network
    /// card if the RDMA device belongs to another Ethernet device, which has this MAC.
    pub(crate) fn new(
        adapter: Arc<Adapter<'a>>,
        mac: [u8; 6],
        card: Option<NetdevRef>,
    ) -> Result<Self> {
        let is_of_card = card.is_none();
        let connections = match adapter.protocol() {
            Protocol::Iwarp => {
                let max_depth = u8::try_from(adapter.caps().max_rd_atomic.get()).unwrap_or(u8::MAX);
                let liveness = adapter.liveness();
                let connections = Connections::new(adapter.dma(), liveness, max_depth, card)?;
                Some(Owner::new(connections, adapter.listeners())?)
            }
            Protocol::Roce => None,
        };
        let kept = connections.as_ref().map(|owner| Kept::new(owner.connections().clone()));
        let optional = Atomic::new(0);
        Ok(Self { connections, _connections: kept, adapter, mac, is_of_card, optional })
    }

    /// Returns the connections, if the adapter is one of iWARP.
    pub(crate) fn connections(&self) -> Option<&Arc<Connections>> {
        self.connections.as_ref().map(Owner::connections)
    }

    /// Returns whether the adapter has work queues, and queue pairs that spread frames over them.
    pub(super) fn has_work_queues(&self) -> bool {
        self.adapter.caps().has(DeviceFeatures::RAW_PACKET.union(DeviceFeatures::SPREADS))
    }

    /// Returns the device that does the DMA.
    pub(super) fn dma(&self) -> &device::Device<device::Bound> {
        self.adapter.dma()
    }

    /// Runs an admin command.
    pub(super) fn execute<C: Command>(&self, params: &C::Params) -> Result<C::Reply> {
        self.adapter.execute::<C>(params)
    }

    /// Destroys an object of the adapter. A quiet adapter has no objects any more, so this then
    /// succeeds.
    pub(super) fn destroy<C: Command>(&self, object: &C::Params) -> Result {
        match self.execute::<C>(object) {
            Err(error) if !self.adapter.is_quiet() => Err(error),
            _ => Ok(()),
        }
    }

    /// Completes the creation of an object, for which the adapter uses `memory` from now on. If
    /// `rest` fails the object is destroyed again, by the command `C`, before the memory goes.
    pub(super) fn complete<C: Command<Params: Debug>, M: Send + 'static>(
        &self,
        object: C::Params,
        mut memory: M,
        rest: impl FnOnce(&mut M) -> Result,
    ) -> Result<M> {
        match rest(&mut memory) {
            Ok(()) => Ok(memory),
            Err(error) => {
                if let Err(refusal) = self.destroy::<C>(&object) {
                    self.hold::<C, M>(&object, refusal, memory);
                }
                Err(error)
            }
        }
    }

    /// Keeps the memory of an object, which the adapter refused to destroy by the command `C`,
    /// until the adapter is reset.
    pub(super) fn hold<C: Command<Params: Debug>, M: Send + 'static>(
        &self,
        object: &C::Params,
        refusal: Error,
        memory: M,
    ) {
        dev_err!(
            self.dma(),
            "the adapter refuses {:?} of {object:?}: {refusal:?}; its memory is held\n",
            C::OPCODE
        );
        let mut held = self.adapter.held.lock();
        match (held.reserve(1, GFP_KERNEL), KBox::<M>::new_uninit(GFP_KERNEL)) {
            (Ok(()), Ok(room)) => {
                let memory = KBox::write(room, memory);
                // There is room.
                let _ = held.push(memory as KBox<dyn Send>, GFP_KERNEL);
            }
            // Without a place to keep it, it is never freed.
            _ => core::mem::forget(memory),
        }
    }
}

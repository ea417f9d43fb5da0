// SPDX-License-Identifier: GPL-2.0
//! The data that all operations get, and creation of objects that undoes itself.

use abi::admin::{ObjectId, Opcode, Request};
use kernel::{device, new_mutex, prelude::*, sync::Mutex};

use crate::adapter::Adapter;

/// The context number of the kernel's own objects.
pub(super) const KERNEL_CONTEXT: u32 = 0;
/// The UAR of the kernel's own objects.
pub(super) const KERNEL_UAR: u32 = 0;

/// The adapter's verbs.
pub(crate) struct Verbs;

/// The data of a registration.
pub(crate) struct Hca<'a> {
    /// The adapter itself.
    pub(super) adapter: Adapter<'a>,
    /// Memory that the adapter did not let go of. Dropped after `adapter`, which resets the
    /// adapter.
    held: Pin<KBox<Mutex<KVec<KBox<dyn Send>>>>>,
}

impl<'a> Hca<'a> {
    /// Verbs on this adapter.
    pub(crate) fn new(adapter: Adapter<'a>) -> Result<Self> {
        let held = KBox::pin_init(new_mutex!(KVec::new(), "vrnic::Hca::held"), GFP_KERNEL)?;
        Ok(Self { adapter, held })
    }

    /// The device that does the DMA.
    pub(super) fn dma(&self) -> &device::Device<device::Bound> {
        self.adapter.dma()
    }

    /// Runs an admin command.
    pub(super) fn execute<P: Request>(&self, opcode: Opcode, params: &P) -> Result<P::Result> {
        self.adapter.execute(opcode, params)
    }

    /// Destroys an object of the adapter. One that is quiet after its death has none any more.
    pub(super) fn destroy(&self, opcode: Opcode, id: u32) -> Result {
        match self.execute(opcode, &ObjectId::new(id)) {
            Err(error) if !self.adapter.is_quiet() => Err(error),
            _ => Ok(()),
        }
    }

    /// Completes the creation of an object, for which the adapter uses `memory` from now on. If
    /// `rest` fails the object is destroyed again, before the memory goes.
    pub(super) fn complete<M: Send + 'static>(
        &self,
        object: Object,
        mut memory: M,
        rest: impl FnOnce(&mut M) -> Result,
    ) -> Result<M> {
        match rest(&mut memory) {
            Ok(()) => Ok(memory),
            Err(error) => {
                if let Err(refusal) = self.destroy(object.destroy, object.id) {
                    self.hold(object, refusal, memory);
                }
                Err(error)
            }
        }
    }

    /// Keeps the memory of an object that the adapter refused to destroy until the adapter is
    /// reset.
    pub(super) fn hold<M: Send + 'static>(&self, object: Object, refusal: Error, memory: M) {
        dev_err!(self.dma(), "the adapter refuses {object:?}: {refusal:?}; its memory is held\n");
        let mut held = self.held.lock();
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

/// An object of the adapter, and what destroys it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    /// The command.
    pub(super) destroy: Opcode,
    /// The object's number.
    pub(super) id: u32,
}

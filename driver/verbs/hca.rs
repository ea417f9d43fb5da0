// SPDX-License-Identifier: GPL-2.0
//! What all operations work on.

use abi::admin::{ObjectId, Opcode, Request};
use kernel::{device, prelude::*};

use crate::nic::Nic;

/// The context number of the kernel's own objects.
pub(super) const KERNEL_CONTEXT: u32 = 0;
/// The UAR of the kernel's own objects.
pub(super) const KERNEL_UAR: u32 = 0;

/// The data of a registration.
pub(crate) struct Hca<'a> {
    /// The adapter itself.
    pub(super) nic: Nic<'a>,
}

impl<'a> Hca<'a> {
    /// Verbs on this adapter.
    pub(crate) fn new(nic: Nic<'a>) -> Self {
        Self { nic }
    }

    /// The device that does the DMA.
    pub(super) fn dma(&self) -> &device::Device<device::Bound> {
        self.nic.dma()
    }

    /// Runs an admin command.
    pub(super) fn execute<P: Request>(&self, opcode: Opcode, params: &P) -> Result<P::Result> {
        self.nic.execute(opcode, params)
    }

    /// Destroys an object of the adapter. On an adapter that has died the object is gone already.
    pub(super) fn destroy(&self, opcode: Opcode, id: u32) -> Result {
        match self.execute(opcode, &ObjectId::new(id)) {
            Err(error) if !self.nic.is_dead() => Err(error),
            _ => Ok(()),
        }
    }

    /// An object just created, destroyed again unless kept.
    pub(super) fn created(&self, destroy: Opcode, id: u32) -> Created<'_, 'a> {
        Created { hca: self, destroy, id, kept: false }
    }
}

/// See [`Hca::created`].
pub(super) struct Created<'h, 'a> {
    hca: &'h Hca<'a>,
    destroy: Opcode,
    id: u32,
    kept: bool,
}

impl Created<'_, '_> {
    /// The object's number.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Creation is complete.
    pub(super) fn keep(mut self) -> u32 {
        self.kept = true;
        self.id
    }
}

impl Drop for Created<'_, '_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = self.hca.destroy(self.destroy, self.id) {
            dev_err!(
                self.hca.dma(),
                "{:?} of object {} failed: {error:?}\n",
                self.destroy,
                self.id
            );
        }
    }
}

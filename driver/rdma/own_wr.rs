// SPDX-License-Identifier: GPL-2.0
//! Send work requests that a driver has in addition to the ones that verbs define.

/// A kind of send work request that verbs have no number for: the driver gives it one of those that
/// the core reserves for drivers (`IB_WR_RESERVED1` and so on).
///
/// # Invariants
///
/// If `is_rdma`, the driver's kernel clients post requests of this opcode as `struct ib_rdma_wr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnWr {
    opcode: u32,
    is_rdma: bool,
}

impl OwnWr {
    /// Returns a kind of requests with a word in `ex.invalidate_rkey`: `Operands::Key`.
    pub(crate) const fn with_key(opcode: u32) -> Self {
        // INVARIANT: requires nothing of requests.
        Self { opcode, is_rdma: false }
    }

    /// Returns a kind of requests with a number of 64 bits and one of 32: `Operands::Remote`.
    ///
    /// # Safety
    ///
    /// The documents for kernel clients must ask them to post them as `struct ib_rdma_wr`.
    pub(crate) const unsafe fn with_remote(opcode: u32) -> Self {
        // INVARIANT: the caller promises that the documents ask so.
        Self { opcode, is_rdma: true }
    }

    /// Returns the number of the operation.
    pub(super) fn opcode(&self) -> u32 {
        self.opcode
    }

    /// Returns whether requests of this kind are `struct ib_rdma_wr`.
    pub(super) fn is_rdma(&self) -> bool {
        self.is_rdma
    }
}

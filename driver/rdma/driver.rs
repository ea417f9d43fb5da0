// SPDX-License-Identifier: GPL-2.0
//! The types that a driver gives to an RDMA device.

use super::own_wr::OwnWr;

/// A driver: its parts of the core's objects.
///
/// A creating operation returns the driver's part of an object, later operations see it through the
/// object's wrapper (`&Qp<Self>` derefs to `Self::Qp`), and it is dropped after the destroying
/// operation has returned `Ok`. So whatever it owns (pinned memory, rings) is freed after the
/// device has let go of it. A kind of object that the device does not have gets `()`.
pub(crate) trait Driver: Sized + 'static {
    /// The data that all operations get; may borrow what is bound to the parent device.
    type Data<'a>: Send + Sync + 'a;
    /// The driver's part of a user context.
    type Ucontext: Send + Sync;
    /// The driver's part of a protection domain.
    type Pd: Send + Sync;
    /// The driver's part of a completion queue.
    type Cq: Send + Sync;
    /// The driver's part of an XRC domain.
    type Xrcd: Send + Sync;
    /// The driver's part of a shared receive queue.
    type Srq: Send + Sync;
    /// The driver's part of a queue pair.
    type Qp: Send + Sync;
    /// The driver's part of device memory.
    type Dm: Send + Sync;
    /// The driver's part of a memory region.
    type Mr: Send + Sync;
    /// The driver's part of an address handle, which lives only in memory: the device does not
    /// know it, and it may be dropped in any context.
    type Ah: Send + Sync;
    /// The driver's part of a memory window.
    type Mw: Send + Sync;
    /// The driver's part of a flow.
    type Flow: Send + Sync;
    /// The driver's part of a work queue.
    type Wq: Send + Sync;

    /// The work requests of kernel clients that verbs have no numbers for.
    const OWN_WRS: &'static [OwnWr] = &[];
}

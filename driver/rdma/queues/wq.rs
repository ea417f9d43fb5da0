// SPDX-License-Identifier: GPL-2.0
//! Work queues: receive queues without a queue pair, and tables of them, over which a queue pair
//! spreads frames (receive side scaling). The driver allocates work queues, the core tables, of
//! which it keeps the contents, too. Only processes have them.

use core::marker::PhantomData;

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{
    device::Device,
    driver::Driver,
    object::{Object, Wrapper},
    pd::Pd,
    queues::cq::Cq,
    user::ucontext::User,
};

/// The operations of work queues.
#[vtable]
pub(crate) trait WqOperations: Driver {
    /// Creates a work queue.
    fn create_wq(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _pd: &Pd<Self>,
        _init: &mut WqInit<'_, Self>,
        _user: &User<'_, Self>,
    ) -> Result<NewWq<Self::Wq>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes the state of a work queue. Calls `done` with the new state, before the next change
    /// of the work queue begins.
    fn modify_wq(
        _data: &Self::Data<'_>,
        _wq: &Wq<Self>,
        _change: WqChange,
        _done: impl FnOnce(WqState),
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys a work queue, which is in no table.
    fn destroy_wq(_data: &Self::Data<'_>, _wq: &Wq<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Checks a new table with this log2 of the number of its entries.
    fn create_wq_table(_data: &Self::Data<'_>, _log_entries: u32) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A work queue, which [`Object::allocate`] has made; derefs to the driver's part.
pub(crate) type Wq<T> = Object<bindings::ib_wq, <T as Driver>::Wq>;

/// A new work queue.
pub(crate) struct NewWq<D> {
    /// The number of the work queue.
    pub(crate) number: u32,
    /// The driver's part.
    pub(crate) driver: D,
}

/// The state of a work queue.
///
/// C: `enum ib_wq_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WqState {
    Reset = bindings::ib_wq_state_IB_WQS_RESET,
    Ready = bindings::ib_wq_state_IB_WQS_RDY,
    Error = bindings::ib_wq_state_IB_WQS_ERR,
}

impl WqState {
    fn from_raw(raw: u32) -> Result<Self> {
        Ok(match raw {
            bindings::ib_wq_state_IB_WQS_RESET => Self::Reset,
            bindings::ib_wq_state_IB_WQS_RDY => Self::Ready,
            bindings::ib_wq_state_IB_WQS_ERR => Self::Error,
            _ => return Err(EINVAL),
        })
    }
}

/// The attributes of a new work queue.
///
/// C: `struct ib_wq_init_attr`.
///
/// # Invariants
///
/// The completion queue in `raw` is a live one of driver `T`, for `'a`.
pub(crate) struct WqInit<'a, T: Driver> {
    raw: &'a mut bindings::ib_wq_init_attr,
    _driver: PhantomData<T>,
}

impl<'a, T: Driver> WqInit<'a, T> {
    /// # Safety
    ///
    /// The completion queue in `raw` must be a live one of driver `T`, for `'a`.
    pub(in crate::rdma) unsafe fn new(raw: &'a mut bindings::ib_wq_init_attr) -> Self {
        // INVARIANT: the caller passes attributes whose queue is a live one of driver `T`.
        Self { raw, _driver: PhantomData }
    }

    /// Returns whether it is a queue of receives, the only type that there is.
    pub(crate) fn is_of_receives(&self) -> bool {
        self.raw.wq_type == bindings::ib_wq_type_IB_WQT_RQ
    }

    /// Returns the creation flags (`enum ib_wq_flags`).
    pub(crate) fn flags(&self) -> u32 {
        self.raw.create_flags
    }

    /// Returns the number of work requests that it must have room for.
    pub(crate) fn max_wr(&self) -> u32 {
        self.raw.max_wr
    }

    /// Returns the scatter/gather entries of a work request.
    pub(crate) fn max_sge(&self) -> u32 {
        self.raw.max_sge
    }

    /// Reports the number of work requests that it has room for.
    pub(crate) fn set_max_wr(&mut self, max_wr: u32) {
        self.raw.max_wr = max_wr;
    }

    /// Returns its completion queue.
    pub(crate) fn cq(&self) -> &'a Cq<T> {
        // SAFETY: by the type's invariants the queue is a live one of driver `T`.
        unsafe { Cq::<T>::from_raw(self.raw.cq) }
    }
}

/// A change of a work queue.
///
/// C: `struct ib_wq_attr`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WqChange {
    /// The present state, if the caller names it.
    pub(crate) from: Option<WqState>,
    /// The next state, if it changes.
    pub(crate) to: Option<WqState>,
    /// True if flags change, too (`enum ib_wq_flags`).
    pub(crate) changes_flags: bool,
}

impl WqChange {
    /// Reads the attributes that a mask names.
    pub(in crate::rdma) fn from_raw(attr: &bindings::ib_wq_attr, mask: u32) -> Result<Self> {
        let named = |attribute, state| match mask & attribute {
            0 => Ok(None),
            _ => WqState::from_raw(state).map(Some),
        };
        Ok(Self {
            from: named(bindings::ib_wq_attr_mask_IB_WQ_CUR_STATE, attr.curr_wq_state)?,
            to: named(bindings::ib_wq_attr_mask_IB_WQ_STATE, attr.wq_state)?,
            changes_flags: mask & bindings::ib_wq_attr_mask_IB_WQ_FLAGS != 0,
        })
    }
}

/// A table of work queues.
///
/// # Invariants
///
/// `raw` is a table that the core has filled in, whose work queues are live ones of driver `T`, for
/// `'a`.
pub(crate) struct WqTable<'a, T: Driver> {
    raw: &'a bindings::ib_rwq_ind_table,
    _driver: PhantomData<T>,
}

impl<'a, T: Driver> WqTable<'a, T> {
    /// # Safety
    ///
    /// `raw` must be a table that the core has filled in, whose work queues are live ones of driver
    /// `T`, for `'a`.
    pub(in crate::rdma) unsafe fn new(raw: &'a bindings::ib_rwq_ind_table) -> Self {
        // INVARIANT: the caller passes a table of live work queues of driver `T`.
        Self { raw, _driver: PhantomData }
    }

    /// Returns log2 of the number of entries.
    pub(crate) fn log_entries(&self) -> u32 {
        self.raw.log_ind_tbl_size
    }

    /// Returns the entries, each a work queue with its completion queue.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a Wq<T>, &'a Cq<T>)> {
        let raw = self.raw;
        (0..1 << raw.log_ind_tbl_size).map(move |index| {
            // SAFETY: by the type's invariants the core has filled in this many entries.
            let wq = unsafe { *raw.ind_tbl.add(index) };
            // SAFETY: by the type's invariants the work queue is alive. The core has set the field
            // after its creation, and does not change it.
            let cq = unsafe { (*wq).cq };
            // SAFETY: by the type's invariants the work queue is a live one of driver `T`.
            let wq = unsafe { Wq::<T>::from_raw(wq) };
            // SAFETY: the work queue, which is alive, holds its completion queue.
            (wq, unsafe { Cq::<T>::from_raw(cq) })
        })
    }
}

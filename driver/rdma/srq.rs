// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.

use core::marker::PhantomData;

use kernel::prelude::*;

use super::{
    bindings,
    cq::Cq,
    driver::Driver,
    event::SrqLink,
    object::{Linked, Xrcd},
};

/// A shared receive queue; derefs to the driver's part.
pub(crate) type Srq<T> = Linked<bindings::ib_srq, <T as Driver>::Srq>;

/// The users of a queue.
pub(crate) enum SrqKind<'a, T: Driver> {
    /// The queue pairs that are created with it.
    Basic,
    /// The targets of an XRC domain.
    Xrc {
        /// The domain.
        xrcd: &'a Xrcd<T>,
        /// The queue that its receives complete to.
        cq: &'a Cq<T>,
    },
}

/// A new queue.
pub(crate) struct NewSrq<D> {
    /// Its number.
    pub(crate) number: u32,
    /// The driver's part.
    pub(crate) driver: D,
}

/// The attributes of a new queue.
///
/// # Invariants
///
/// The completion queue and the XRC domain in `raw` are live ones of driver `T` where its type
/// calls for them.
pub(crate) struct SrqInit<'a, T: Driver> {
    raw: &'a mut bindings::ib_srq_init_attr,
    /// To be kept by the handler of the device's events.
    pub(crate) link: &'a SrqLink,
    _driver: PhantomData<T>,
}

impl<'a, T: Driver> SrqInit<'a, T> {
    /// # Safety
    ///
    /// The completion queue and the XRC domain in `raw`, where its type calls for them, must be
    /// live ones of driver `T`.
    pub(super) unsafe fn new(raw: &'a mut bindings::ib_srq_init_attr, link: &'a SrqLink) -> Self {
        // INVARIANT: the caller passes attributes whose objects are live ones of driver `T`.
        Self { raw, link, _driver: PhantomData }
    }

    /// Returns its users.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a kind that this abstraction does not know.
    pub(crate) fn kind(&self) -> Result<SrqKind<'a, T>> {
        match self.raw.srq_type {
            bindings::ib_srq_type_IB_SRQT_BASIC => Ok(SrqKind::Basic),
            bindings::ib_srq_type_IB_SRQT_XRC => {
                // SAFETY: the type says that this view of the union is valid.
                let xrcd = unsafe { self.raw.ext.__bindgen_anon_1.xrc.xrcd };
                let cq = self.raw.ext.cq;
                if xrcd.is_null() || cq.is_null() {
                    return Err(EINVAL);
                }
                // SAFETY: by the type's invariants the domain is a live one of driver `T`.
                let xrcd = unsafe { Xrcd::<T>::from_raw(xrcd) };
                // SAFETY: by the type's invariants the queue is a live one of driver `T`.
                Ok(SrqKind::Xrc { xrcd, cq: unsafe { Cq::<T>::from_raw(cq) } })
            }
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Returns the sizes that it must have.
    pub(crate) fn size(&self) -> SrqSize {
        SrqSize { max_wr: self.raw.attr.max_wr, max_sge: self.raw.attr.max_sge }
    }

    /// Reports the sizes that it gets.
    pub(crate) fn set_size(&mut self, size: SrqSize) {
        self.raw.attr.max_wr = size.max_wr;
        self.raw.attr.max_sge = size.max_sge;
    }
}

/// The sizes of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqSize {
    /// Work requests that it has room for.
    pub(crate) max_wr: u32,
    /// Segments of each.
    pub(crate) max_sge: u32,
}

/// The changes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqChange {
    /// Work requests that it must have room for, if that changes.
    pub(crate) max_wr: Option<u32>,
    /// Arms the limit event (`IB_EVENT_SRQ_LIMIT_REACHED`), if that is wanted.
    pub(crate) limit: Option<u32>,
}

impl SrqChange {
    /// From attributes and `enum ib_srq_attr_mask`.
    pub(super) fn from_raw(attr: &bindings::ib_srq_attr, mask: u32) -> Self {
        let wants = |bit: u32| mask & bit != 0;
        Self {
            max_wr: wants(bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR).then_some(attr.max_wr),
            limit: wants(bindings::ib_srq_attr_mask_IB_SRQ_LIMIT).then_some(attr.srq_limit),
        }
    }
}

/// The answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqQuery {
    /// Its sizes.
    pub(crate) size: SrqSize,
    /// The limit that is armed, or zero.
    pub(crate) limit: u32,
}

impl SrqQuery {
    /// Fills the core's struct.
    pub(super) fn write_to(&self, out: &mut bindings::ib_srq_attr) {
        out.max_wr = self.size.max_wr;
        out.max_sge = self.size.max_sge;
        out.srq_limit = self.limit;
    }
}

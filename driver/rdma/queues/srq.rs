// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues.

use core::{marker::PhantomData, ptr::NonNull};

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{
    device::Device,
    driver::Driver,
    event::SrqLink,
    object::{Linked, Wrapper},
    pd::Pd,
    queues::cq::Cq,
    queues::xrcd::Xrcd,
    requests::recv_wr::RecvWrs,
    user::ucontext::User,
};

/// A shared receive queue; derefs to the driver's part.
pub(crate) type Srq<T> = Linked<bindings::ib_srq, <T as Driver>::Srq>;

/// The operations of shared receive queues.
#[vtable]
pub(crate) trait SrqOperations: Driver {
    /// Creates a shared receive queue.
    fn create_srq(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _pd: &Pd<Self>,
        _init: &mut SrqInit<'_, Self>,
        _user: Option<&User<'_, Self>>,
    ) -> Result<NewSrq<Self::Srq>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes a shared receive queue.
    fn modify_srq(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _srq: &Srq<Self>,
        _change: SrqChange,
        _user: Option<&User<'_, Self>>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the sizes and the limit of a shared receive queue.
    fn query_srq(_data: &Self::Data<'_>, _srq: &Srq<Self>) -> Result<SrqQuery> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys a shared receive queue, which no queue pair uses.
    fn destroy_srq(_data: &Self::Data<'_>, _srq: &Srq<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts a kernel client's receive work requests, up to the first that is refused; any context.
    fn post_srq_recv(_data: &Self::Data<'_>, _srq: &Srq<Self>, _wrs: &mut RecvWrs<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

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
    /// The number of the queue.
    pub(crate) number: u32,
    /// The driver's part.
    pub(crate) driver: D,
}

/// The attributes of a new queue.
///
/// C: `struct ib_srq_init_attr`, of which the core leaves what the type has no use for
/// uninitialised (`__uverbs_create_xsrq` in `drivers/infiniband/core/uverbs_cmd.c`).
///
/// # Invariants
///
/// `raw` is this call's alone for `'a`. Type and sizes in it are initialised, and where the type
/// calls for them, completion queue and XRC domain are live ones of driver `T`.
pub(crate) struct SrqInit<'a, T: Driver> {
    raw: NonNull<bindings::ib_srq_init_attr>,
    /// To be kept by the handler of the device's events.
    pub(crate) link: &'a SrqLink,
    _driver: PhantomData<(&'a mut bindings::ib_srq_init_attr, T)>,
}

impl<'a, T: Driver> SrqInit<'a, T> {
    /// # Safety
    ///
    /// `raw` must be the caller's alone for `'a`. Type and sizes in it must be initialised, and
    /// where the type calls for them, completion queue and XRC domain must be live ones of driver
    /// `T`.
    pub(in crate::rdma) unsafe fn new(
        raw: NonNull<bindings::ib_srq_init_attr>,
        link: &'a SrqLink,
    ) -> Self {
        // INVARIANT: the caller passes attributes of its own, with the objects of their type.
        Self { raw, link, _driver: PhantomData }
    }

    /// Returns its users.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a kind that this abstraction does not know.
    pub(crate) fn kind(&self) -> Result<SrqKind<'a, T>> {
        let raw = self.raw.as_ptr();
        // SAFETY: by the type's invariants the field is initialised.
        match unsafe { (*raw).srq_type } {
            bindings::ib_srq_type_IB_SRQT_BASIC => Ok(SrqKind::Basic),
            bindings::ib_srq_type_IB_SRQT_XRC => {
                // SAFETY: by the type's invariants the domain is there with this type, which also
                // says that this view of the union is valid.
                let xrcd = unsafe { (*raw).ext.__bindgen_anon_1.xrc.xrcd };
                // SAFETY: by the type's invariants the queue is there with this type.
                let cq = unsafe { (*raw).ext.cq };
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
        // SAFETY: by the type's invariants the field is initialised.
        let max_wr = unsafe { (*self.raw.as_ptr()).attr.max_wr };
        // SAFETY: by the type's invariants the field is initialised.
        let max_sge = unsafe { (*self.raw.as_ptr()).attr.max_sge };
        SrqSize { max_wr, max_sge }
    }

    /// Reports the sizes that it gets.
    pub(crate) fn set_size(&mut self, size: SrqSize) {
        // SAFETY: by the type's invariants the struct is this call's alone.
        unsafe { (*self.raw.as_ptr()).attr.max_wr = size.max_wr };
        // SAFETY: by the type's invariants the struct is this call's alone.
        unsafe { (*self.raw.as_ptr()).attr.max_sge = size.max_sge };
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
    /// Converts attributes, of which `mask` (`enum ib_srq_attr_mask`) names the valid ones.
    ///
    /// # Safety
    ///
    /// `attr` must point to a struct that does not change during the call, and whose fields that
    /// `mask` names are initialised.
    pub(in crate::rdma) unsafe fn from_raw(attr: *const bindings::ib_srq_attr, mask: u32) -> Self {
        let wants = |bit: u32| mask & bit != 0;
        Self {
            // SAFETY: the caller passes a struct in which this is initialised if the mask names it.
            max_wr: wants(bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR)
                .then(|| unsafe { (*attr).max_wr }),
            // SAFETY: the caller passes a struct in which this is initialised if the mask names it.
            limit: wants(bindings::ib_srq_attr_mask_IB_SRQ_LIMIT)
                .then(|| unsafe { (*attr).srq_limit }),
        }
    }
}

/// The answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SrqQuery {
    /// The sizes of the queue.
    pub(crate) size: SrqSize,
    /// The limit that is armed, or zero.
    pub(crate) limit: u32,
}

impl SrqQuery {
    /// Returns the core's struct.
    pub(in crate::rdma) fn to_raw(self) -> bindings::ib_srq_attr {
        let SrqSize { max_wr, max_sge } = self.size;
        bindings::ib_srq_attr { max_wr, max_sge, srq_limit: self.limit }
    }
}

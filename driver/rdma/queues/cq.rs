// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{
    device::Device, driver::Driver, event::CqLink, object::Linked, requests::wc::Completions,
    user::ucontext::User,
};

/// A completion queue; derefs to the driver's part.
pub(crate) type Cq<T> = Linked<bindings::ib_cq, <T as Driver>::Cq>;

/// The operations of completion queues.
#[vtable]
pub(crate) trait CqOperations: Driver {
    /// Creates a completion queue.
    fn create_cq(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        init: &mut CqInit<'_>,
        user: Option<&User<'_, Self>>,
    ) -> Result<Self::Cq>;

    /// Destroys a completion queue.
    fn destroy_cq(data: &Self::Data<'_>, cq: &Cq<Self>) -> Result;

    /// Takes completions of a kernel client's queue; any context.
    fn poll_cq(data: &Self::Data<'_>, cq: &Cq<Self>, out: &mut Completions<'_>) -> Result;

    /// Arms a kernel client's queue; any context. Returns whether completions may already be
    /// there, if [`Notify::report_missed`] asks for it.
    fn req_notify_cq(data: &Self::Data<'_>, cq: &Cq<Self>, notify: Notify) -> Result<bool>;

    /// Sets how events of a completion queue are moderated. Process context.
    fn modify_cq(_data: &Self::Data<'_>, _cq: &Cq<Self>, _moderation: Moderation) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives a process' completion queue room for at least `entries`; returns for how many. Calls
    /// for one queue may come at the same time.
    fn resize_user_cq(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _cq: &Cq<Self>,
        _entries: u32,
        _user: &User<'_, Self>,
    ) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A creation flag: completions have timestamps (`enum ib_uverbs_ex_create_cq_flags`).
pub(crate) const TIMESTAMPS: u32 =
    bindings::ib_uverbs_ex_create_cq_flags_IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;

/// A creation flag: the queue may overrun (`enum ib_uverbs_ex_create_cq_flags`).
pub(crate) const IGNORE_OVERRUN: u32 =
    bindings::ib_uverbs_ex_create_cq_flags_IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;

/// The attributes of a new completion queue.
pub(crate) struct CqInit<'a> {
    /// Entries that it must have room for.
    pub(crate) entries: u32,
    /// The completion vector, below the device's number of them.
    pub(crate) comp_vector: u32,
    /// Creation flags (`enum ib_uverbs_ex_create_cq_flags`).
    pub(crate) flags: u32,
    /// To be kept by the handler of the device's events.
    pub(crate) link: &'a CqLink,
    /// Entries that it will have, if more than asked for.
    pub(crate) granted: u32,
}

/// The conditions under which an event that is due is reported: the first that is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moderation {
    /// Completions that have come for it; below 2 at once.
    pub(crate) count: u16,
    /// Microseconds since the first; zero at once.
    pub(crate) period: u16,
}

/// The next completion that a client wants to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notify {
    /// Only solicited completions and errors.
    pub(crate) solicited_only: bool,
    /// Returns whether completions are there already.
    pub(crate) report_missed: bool,
}

impl Notify {
    /// Converts `enum ib_cq_notify_flags`.
    pub(in crate::rdma) fn from_raw(flags: bindings::ib_cq_notify_flags) -> Self {
        let mask = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
        Self {
            solicited_only: mask == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
            report_missed: flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Completion queues.

use core::ops::Deref;

use super::{bindings, driver::Driver, event::CqLink, object::Object};

/// The driver's part of a completion queue and its link, behind `struct ib_cq`.
pub(super) struct Parts<T: Driver> {
    pub(super) link: CqLink,
    pub(super) driver: T::Cq,
}

/// A completion queue; derefs to the driver's part.
#[repr(transparent)]
pub(crate) struct Cq<T: Driver>(Object<bindings::ib_cq, Parts<T>>);

impl<T: Driver> Cq<T> {
    pub(super) const SIZE: usize = Object::<bindings::ib_cq, Parts<T>>::SIZE;

    /// # Safety
    ///
    /// As for [`Object::from_raw`].
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::ib_cq) -> &'a Self {
        // SAFETY: the caller passes a completion queue that is initialised; the wrapper is
        // transparent.
        unsafe { &*core::ptr::from_ref(Object::<_, Parts<T>>::from_raw(raw)).cast() }
    }

    /// Returns the link that completions are reported through.
    pub(crate) fn link(&self) -> &CqLink {
        &self.0.link
    }
}

impl<T: Driver> Deref for Cq<T> {
    type Target = T::Cq;

    fn deref(&self) -> &T::Cq {
        &self.0.driver
    }
}

/// A creation flag: completions have timestamps (`enum ib_uverbs_ex_create_cq_flags`).
pub(crate) const TIMESTAMPS: u32 =
    bindings::ib_uverbs_ex_create_cq_flags_IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;

/// The attributes of a new completion queue.
pub(crate) struct CqInit<'a> {
    /// Entries that it must have room for.
    pub(crate) entries: u32,
    /// The completion vector, below the device's number of them.
    pub(crate) comp_vector: u32,
    /// Creation flags (`enum ib_uverbs_ex_create_cq_flags`).
    pub(crate) flags: u32,
    /// To be kept by whoever handles the device's events.
    pub(crate) link: &'a CqLink,
    /// Entries that it will have, if more than asked for.
    pub(crate) granted: u32,
}

/// When an event that is due is reported: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moderation {
    /// Completions that have come for it; below 2 at once.
    pub(crate) count: u16,
    /// Microseconds since the first; zero at once.
    pub(crate) period: u16,
}

/// Which completion a client wants to hear of next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notify {
    /// Only solicited completions and errors.
    pub(crate) solicited_only: bool,
    /// Say whether completions are there already.
    pub(crate) report_missed: bool,
}

impl Notify {
    /// From `enum ib_cq_notify_flags`.
    pub(super) fn from_raw(flags: bindings::ib_cq_notify_flags) -> Self {
        let mask = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
        Self {
            solicited_only: mask == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
            report_missed: flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0,
        }
    }
}

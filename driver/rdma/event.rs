// SPDX-License-Identifier: GPL-2.0
//! Asynchronous events (IBTA volume 1, 11.6.3).

use core::mem::ManuallyDrop;

use super::revocable::Link;
use crate::bindings;

pub(crate) use super::revocable::Identity;

/// Events of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum QpEvent {
    /// Went to the error state by itself.
    Fatal = bindings::ib_event_type_IB_EVENT_QP_FATAL,
    /// A malformed request.
    RequestError = bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
    /// The peer broke an access right.
    AccessError = bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
    /// The first message arrived in state RTR.
    CommEstablished = bindings::ib_event_type_IB_EVENT_COMM_EST,
    /// The send queue is drained.
    SqDrained = bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
    /// Nothing is taken from the shared receive queue any more.
    LastWqeReached = bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
}

/// Events of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum SrqEvent {
    /// The queue holds fewer work requests than its limit.
    LimitReached = bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
    /// The queue has failed.
    Error = bindings::ib_event_type_IB_EVENT_SRQ_ERR,
}

/// Events of the device. [`DeviceLink::report_port_state`] reports the events of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum DeviceEvent {
    /// The device has failed.
    Fatal = bindings::ib_event_type_IB_EVENT_DEVICE_FATAL,
}

/// Reports events of a queue pair.
pub(crate) type QpLink = Link<bindings::ib_qp>;

/// Reports events of a shared receive queue.
pub(crate) type SrqLink = Link<bindings::ib_srq>;

/// Reports completions and errors of a completion queue.
pub(crate) type CqLink = Link<bindings::ib_cq>;

/// Reports events of a device.
pub(crate) type DeviceLink = Link<bindings::ib_device>;

impl QpLink {
    /// Returns the completion queues of its send and of its receive queue, unless it has gone.
    pub(crate) fn cqs(&self) -> Option<(Identity, Identity)> {
        self.with(|qp| {
            let qp = qp.as_ptr();
            // SAFETY: `with` keeps the queue pair alive. The core has set the field before it let
            // the driver create the queue pair.
            let send = unsafe { (*qp).send_cq };
            // SAFETY: `with` keeps the queue pair alive. The core has set the field before it let
            // the driver create the queue pair.
            let recv = unsafe { (*qp).recv_cq };
            (Identity::of(send), Identity::of(recv))
        })
    }

    /// Makes [`Self::report_last_wqe_if_due`] report the event.
    pub(crate) fn set_last_wqe_due(&self) {
        self.arm();
    }

    /// Reports [`QpEvent::LastWqeReached`] if that is due.
    pub(crate) fn report_last_wqe_if_due(&self) {
        if self.disarm() {
            self.report(QpEvent::LastWqeReached);
        }
    }

    /// Tells the owner of the queue pair about `event`; callable in interrupts. Nothing is reported
    /// for an XRC target whose state was never changed: the core sets its handler when the driver
    /// has created it (`create_xrc_qp_user` in `verbs.c`).
    pub(crate) fn report(&self, event: QpEvent) {
        if !self.is_open() {
            return;
        }
        // CAST: the enum's values are those of `enum ib_event_type`.
        self.report_raw(event as u32);
    }
}

impl SrqLink {
    /// Tells the owner of the queue about `event`; callable in interrupts.
    pub(crate) fn report(&self, event: SrqEvent) {
        // CAST: the enum's values are those of `enum ib_event_type`.
        self.report_raw(event as u32);
    }
}

impl CqLink {
    /// Tells the owner of the completion queue that there are completions; callable in interrupts,
    /// but not from within the device's methods. Only one handler of a queue runs at a time
    /// (core_locking.rst).
    pub(crate) fn complete(&self) {
        self.disarm();
        self.count();
        self.one_at_a_time(|cq| {
            let cq = cq.as_ptr();
            // SAFETY: the queue is alive while this closure runs. The core has set the field before
            // it let the driver create the queue.
            let Some(handler) = (unsafe { (*cq).comp_handler }) else { return };
            // SAFETY: the queue is alive while this closure runs. The core has set the field before
            // it let the driver create the queue.
            let context = unsafe { (*cq).cq_context };
            // SAFETY: the handler is the one that came with this context, and the queue is alive;
            // completion handlers may be called in hard interrupts.
            unsafe { handler(cq, context) };
        });
    }

    /// As [`Self::complete`], if a kernel client has asked for a notification and got none since.
    /// Users ask the device directly.
    pub(crate) fn complete_if_armed(&self) {
        if self.disarm() {
            self.complete();
        }
    }

    /// As [`Self::complete`], if the queue is a process', whose arm requests only the device
    /// knows.
    pub(crate) fn complete_if_users(&self) {
        // SAFETY: `cq` is alive while `with` runs its closure; the core has set the field before it
        // let the driver create the queue.
        let users = self.with(|cq| unsafe { !(*cq.as_ptr()).uobject.is_null() });
        if users == Some(true) {
            self.complete();
        }
    }

    /// Tells the owner that the completion queue is unusable; callable in interrupts.
    pub(crate) fn report_error(&self) {
        self.report_raw(bindings::ib_event_type_IB_EVENT_CQ_ERR);
    }
}

/// Declares how events of objects are reported: by the object's field with the context of its event
/// handler, and the event's field with the object.
macro_rules! reports {
    ($($object:ident: $context:ident, $element:ident;)*) => {$(
        impl Link<bindings::$object> {
            /// Calls the owner's event handler, if there is one; callable in interrupts.
            fn report_raw(&self, event: bindings::ib_event_type) {
                self.with(|object| {
                    let object = object.as_ptr();
                    // SAFETY: `with` keeps the object alive. The core has set the field before the
                    // driver knew the object, or, for an XRC target, before the link was opened. It
                    // does not change the field afterwards.
                    let Some(handler) = (unsafe { (*object).event_handler }) else { return };
                    // SAFETY: `with` keeps the object alive. The core has set the field before the
                    // driver knew the object, or, for an XRC target, before the link was opened. It
                    // does not change the field afterwards.
                    let context = unsafe { (*object).$context };
                    let mut record = empty_event(event);
                    // SAFETY: `with` keeps the object alive. The core has set the field before the
                    // driver knew the object, and does not change it.
                    record.device = unsafe { (*object).device };
                    record.element.$element = ManuallyDrop::new(object);
                    // SAFETY: the handler is the one that came with this context, and the object is
                    // alive; event handlers may be called in any context.
                    unsafe { handler(&mut record, context) };
                });
            }
        }
    )*};
}

reports! {
    ib_qp: qp_context, qp;
    ib_srq: srq_context, srq;
    ib_cq: cq_context, cq;
}

impl DeviceLink {
    /// Tells all clients of the device about `event`; callable in interrupts.
    pub(crate) fn report(&self, event: DeviceEvent) {
        self.with(|device| {
            // CAST: the enum's values are those of `enum ib_event_type`.
            let mut record = empty_event(event as u32);
            record.device = device.as_ptr();
            // SAFETY: the device is registered while the link is alive; the function copies
            // the record and may be called in any context.
            unsafe { bindings::ib_dispatch_event(&record) };
        });
    }
}

/// Returns a zeroed record of this kind.
fn empty_event(event: bindings::ib_event_type) -> bindings::ib_event {
    // SAFETY: a plain C struct of pointers and numbers, for which zero is a valid value.
    let mut record: bindings::ib_event = unsafe { core::mem::zeroed() };
    record.event = event;
    record
}

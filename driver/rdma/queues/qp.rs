// SPDX-License-Identifier: GPL-2.0
//! Queue pairs.

use core::{marker::PhantomData, ops::Deref, ptr::NonNull};

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

use crate::bindings;
use crate::rdma::{
    device::Device,
    driver::Driver,
    event::QpLink,
    object::{Linked, Wrapper},
    pd::Pd,
    port::gid::Gid,
    port::netdev::NetdevRef,
    qp_attr::{QpAttr, QpAttrMask, QpCap, QpQuery, QpType},
    queues::cq::Cq,
    queues::srq::Srq,
    queues::wq::WqTable,
    queues::xrcd::Xrcd,
    references::References,
    requests::recv_wr::RecvWrs,
    requests::wr::SendWrs,
    user::ucontext::User,
};

/// The operations of queue pairs.
#[vtable]
pub(crate) trait QpOperations: Driver {
    /// Creates a queue pair. Only an XRC target has no protection domain; it belongs to the kernel,
    /// even if a process creates it.
    fn create_qp(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: Option<&Pd<Self>>,
        init: &mut QpInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewQp<Self::Qp>>;

    /// Changes the attributes that `mask` names; the core serialises this for one queue pair
    /// only for users.
    fn modify_qp(
        data: &Self::Data<'_>,
        qp: &Qp<Self>,
        attr: &QpAttr<'_>,
        mask: QpAttrMask,
    ) -> Result;

    /// Destroys a queue pair.
    fn destroy_qp(data: &Self::Data<'_>, qp: &Qp<Self>, user: Option<&User<'_, Self>>) -> Result;

    /// Posts a kernel client's send work requests, up to the first that is refused; any context.
    fn post_send(data: &Self::Data<'_>, qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result;

    /// Posts a kernel client's receive work requests, up to the first that is refused; any context.
    fn post_recv(data: &Self::Data<'_>, qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Returns all attributes of a queue pair.
    fn query_qp(_data: &Self::Data<'_>, _qp: &Qp<Self>) -> Result<QpQuery> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes a datagram queue pair a member of a multicast group.
    fn attach_mcast(_data: &Self::Data<'_>, _qp: &Qp<Self>, _group: Gid) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Ends the membership of a datagram queue pair in a multicast group.
    fn detach_mcast(_data: &Self::Data<'_>, _qp: &Qp<Self>, _group: Gid) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A queue pair; derefs to the driver's part.
///
/// # Invariants
///
/// The core has set the type and the completion queues of its struct, which do not change. It holds
/// references to those completion queues that are not null; they are driver `T`'s.
#[repr(transparent)]
pub(crate) struct Qp<T: Driver>(Linked<bindings::ib_qp, Parts<T>>);

/// The references of the connection manager to a queue pair, and the driver's part.
struct Parts<T: Driver> {
    references: References,
    driver: T::Qp,
}

impl<T: Driver> Qp<T> {
    pub(in crate::rdma) const SIZE: usize = Linked::<bindings::ib_qp, Parts<T>>::SIZE;

    /// Stores the link and the driver's part of a new queue pair.
    ///
    /// # Safety
    ///
    /// As for [`Linked::init`].
    pub(in crate::rdma) unsafe fn init(raw: *mut bindings::ib_qp, link: QpLink, driver: T::Qp) {
        let parts = Parts::<T> { references: References::new(), driver };
        // SAFETY: the caller promises what the callee asks for.
        unsafe { Linked::init(raw, link, parts) };
    }

    /// Returns the references of the connection manager.
    pub(in crate::rdma) fn references(&self) -> &References {
        &self.0.references
    }

    /// Lets the connection manager take no more references, and waits until it has given all of
    /// them back. Calls `close` repeatedly, which has to end its use of the queue pair. No queue
    /// pair is destroyed before: if the driver does not call this, the abstraction waits for it.
    pub(crate) fn end_references(&self, close: impl Fn()) {
        self.references().end(close);
    }

    /// Lets the connection manager take references again, because the queue pair stays.
    pub(crate) fn resume_references(&self) {
        self.references().resume();
    }

    /// Returns the queue pair of a handle. For an XRC target the core gives out handles that are
    /// structs of their own, without a driver's part: to the process or client that creates it, and
    /// to each that opens it (`__ib_open_qp` in `drivers/infiniband/core/verbs.c`). Its own
    /// functions pass on the queue pair behind them (`real_qp`) where a target has that operation.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an XRC target.
    ///
    /// # Safety
    ///
    /// `raw` must be a queue pair of a device of driver `T` that the core has created or opened for
    /// a process or a client, and stay so for `'a`.
    pub(in crate::rdma) unsafe fn from_handle<'a>(raw: *mut bindings::ib_qp) -> Result<&'a Self> {
        // SAFETY: the caller passes a live queue pair. The core has set the field before it gave
        // the handle out, and does not change it.
        let real = unsafe { (*raw).real_qp };
        // SAFETY: the caller passes a live queue pair. The core has set the field before it gave
        // the handle out, and does not change it.
        let kind = QpType(unsafe { (*raw).qp_type });
        if real != raw || kind == QpType::XRC_TGT {
            return Err(EINVAL);
        }
        // SAFETY: it is its own real queue pair: one that the core has allocated for the device,
        // and given out after `create_qp` had set it up.
        Ok(unsafe { Self::from_raw(raw) })
    }

    /// Returns the link that its events are reported through.
    pub(crate) fn link(&self) -> &QpLink {
        self.0.link()
    }

    /// Returns the type of the QP.
    pub(crate) fn kind(&self) -> QpType {
        // SAFETY: the queue pair is alive, as it is borrowed; by the type's invariants the field
        // does not change.
        QpType(unsafe { (*self.0.as_raw()).qp_type })
    }

    /// Returns the Ethernet device that a port of its device is paired with, if it is there.
    pub(crate) fn netdev(&self, port: u32) -> Option<NetdevRef> {
        // SAFETY: the queue pair is alive, as it is borrowed; its device does not change.
        let device = NonNull::new(unsafe { (*self.0.as_raw()).device })?;
        // SAFETY: the device of a queue pair is alive as long as the queue pair is.
        unsafe { NetdevRef::of_port(device, port) }
    }

    /// Fills in the attributes of its creation that the core knows.
    pub(in crate::rdma) fn describe(&self, init: &mut bindings::ib_qp_init_attr) {
        macro_rules! copy {
            ($($to:ident: $from:ident),*) => {$(
                // SAFETY: the queue pair is alive, as it is borrowed. The core sets this field when
                // it creates the queue pair; the port changes only while nothing else is called
                // for it.
                init.$to = unsafe { (&raw const (*self.0.as_raw()).$from).read() };
            )*};
        }
        copy!(qp_type: qp_type, send_cq: send_cq, recv_cq: recv_cq, srq: srq, port_num: port);
    }

    /// Returns the completion queue of its send queue, if it has one.
    pub(crate) fn send_cq(&self) -> Option<&Cq<T>> {
        // SAFETY: the queue pair is alive, as it is borrowed; by the type's invariants the field
        // does not change.
        let cq = unsafe { (*self.0.as_raw()).send_cq };
        // SAFETY: by the type's invariants it is null or a queue of driver `T` that is alive as
        // long as the queue pair.
        unsafe { cq_from_raw::<T>(cq) }
    }

    /// Returns the completion queue of its receive queue, if it has one.
    pub(crate) fn recv_cq(&self) -> Option<&Cq<T>> {
        // SAFETY: the queue pair is alive, as it is borrowed; by the type's invariants the field
        // does not change.
        let cq = unsafe { (*self.0.as_raw()).recv_cq };
        // SAFETY: by the type's invariants it is null or a queue of driver `T` that is alive as
        // long as the queue pair.
        unsafe { cq_from_raw::<T>(cq) }
    }
}

impl<T: Driver> Wrapper for Qp<T> {
    type Core = bindings::ib_qp;

    unsafe fn from_raw<'a>(raw: *mut bindings::ib_qp) -> &'a Self {
        // SAFETY: the caller passes a queue pair that is initialised: the first field of a
        // `Linked`, of which this is a transparent wrapper.
        // INVARIANT: the core sets these fields before it has a queue pair created.
        unsafe { &*raw.cast() }
    }

    /// Waits until no references are left.
    unsafe fn destroy(raw: *mut bindings::ib_qp) {
        // SAFETY: the caller passes a queue pair that is initialised.
        unsafe { Self::from_raw(raw) }.references().end(|| {});
        // SAFETY: the caller promises what the callee asks for.
        unsafe { Linked::<_, Parts<T>>::destroy(raw) };
    }
}

impl<T: Driver> Deref for Qp<T> {
    type Target = T::Qp;

    fn deref(&self) -> &T::Qp {
        &self.0.driver
    }
}

/// # Safety
///
/// `raw` must be null or a live completion queue of driver `T`, for `'a`.
unsafe fn cq_from_raw<'a, T: Driver>(raw: *mut bindings::ib_cq) -> Option<&'a Cq<T>> {
    // SAFETY: the caller passes a live completion queue if it is not null.
    (!raw.is_null()).then(|| unsafe { Cq::<T>::from_raw(raw) })
}

/// A new queue pair.
pub(crate) struct NewQp<D> {
    /// The number of the queue pair.
    pub(crate) number: u32,
    /// The port, if the queue pair is on one from the beginning. If someone asks for the queue
    /// pairs of a port (`rdma resource show qp link NAME/1`), those without one are left out.
    pub(crate) port: Option<u32>,
    /// The driver's part.
    pub(crate) driver: D,
}

/// The attributes of a new queue pair.
///
/// C: `struct ib_qp_init_attr`.
///
/// # Invariants
///
/// The completion queues, the shared receive queue, the table of work queues and the XRC domain in
/// `raw` are null or live ones of driver `T`, for `'a`.
pub(crate) struct QpInit<'a, T: Driver> {
    raw: &'a mut bindings::ib_qp_init_attr,
    /// To be kept by the handler of the device's events.
    pub(crate) link: &'a QpLink,
    _driver: PhantomData<T>,
}

impl<'a, T: Driver> QpInit<'a, T> {
    /// # Safety
    ///
    /// The completion queues, the shared receive queue, the table of work queues and the XRC domain
    /// in `raw` must be null or live ones of driver `T`, for `'a`.
    pub(in crate::rdma) unsafe fn new(
        raw: &'a mut bindings::ib_qp_init_attr,
        link: &'a QpLink,
    ) -> Self {
        // INVARIANT: the caller passes attributes whose objects are null or live ones of driver
        // `T`.
        Self { raw, link, _driver: PhantomData }
    }

    /// Returns the type of the QP.
    pub(crate) fn kind(&self) -> QpType {
        QpType(self.raw.qp_type)
    }

    /// Returns the creation flags (`enum ib_qp_create_flags`).
    pub(crate) fn flags(&self) -> u32 {
        self.raw.create_flags
    }

    /// Returns the shared receive queue that it takes receives from, unless it has a receive queue
    /// of its own.
    pub(crate) fn srq(&self) -> Option<&'a Srq<T>> {
        let raw = self.raw.srq;
        // SAFETY: by the type's invariants the queue is a live one of driver `T`.
        (!raw.is_null()).then(|| unsafe { Srq::<T>::from_raw(raw) })
    }

    /// Returns the table of work queues over which it spreads frames, if it has no receive queue.
    pub(crate) fn wq_table(&self) -> Option<WqTable<'a, T>> {
        // SAFETY: by the type's invariants the table is null or a live one.
        let raw = unsafe { self.raw.rwq_ind_tbl.as_ref() }?;
        // SAFETY: by the type's invariants the table is a live one, whose work queues are driver
        // `T`'s. The core fills a table in before others can name it, and keeps the work queues.
        Some(unsafe { WqTable::new(raw) })
    }

    /// Returns the XRC domain of a target.
    pub(crate) fn xrcd(&self) -> Option<&'a Xrcd<T>> {
        let raw = self.raw.xrcd;
        // SAFETY: by the type's invariants the domain is a live one of driver `T`.
        (!raw.is_null()).then(|| unsafe { Xrcd::<T>::from_raw(raw) })
    }

    /// Returns whether all send work requests are signaled.
    pub(crate) fn sq_sig_all(&self) -> bool {
        self.raw.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR
    }

    /// Returns the sizes asked for.
    pub(crate) fn cap(&self) -> QpCap {
        QpCap::from_raw(&self.raw.cap)
    }

    /// Reports the sizes it gets.
    pub(crate) fn set_cap(&mut self, cap: &QpCap) {
        cap.write_to(&mut self.raw.cap);
    }

    /// Returns both completion queues, as far as there are any.
    pub(crate) fn cqs(&self) -> [Option<&'a Cq<T>>; 2] {
        [self.send_cq().ok(), self.recv_cq().ok()]
    }

    /// Returns the completion queue for its send queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none.
    pub(crate) fn send_cq(&self) -> Result<&'a Cq<T>> {
        // SAFETY: by the type's invariants the queue is a live one of driver `T`.
        unsafe { cq_from_raw::<T>(self.raw.send_cq) }.ok_or(EINVAL)
    }

    /// Returns the completion queue for its receive queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none.
    pub(crate) fn recv_cq(&self) -> Result<&'a Cq<T>> {
        // SAFETY: by the type's invariants the queue is a live one of driver `T`.
        unsafe { cq_from_raw::<T>(self.raw.recv_cq) }.ok_or(EINVAL)
    }
}

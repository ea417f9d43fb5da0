// SPDX-License-Identifier: GPL-2.0
//! What a driver implements.

use kernel::{fmt, prelude::*};

use super::{
    ah::{AhAttr, AhValues},
    attr::{DeviceAttr, PortAttr},
    cq::{Cq, CqInit, Moderation, Notify},
    details::{Details, Raw},
    device::Device,
    gid::{Gid, GidAttr},
    mr::{NewMr, RegionChange, UserRegion},
    mw::{Mw, MwType, NewMw},
    netdev::PortSettings,
    pd::Pd,
    pma::PortCounters,
    qp::{NewQp, Qp, QpInit},
    qp_attr::{QpAttr, QpAttrMask, QpQuery},
    srq::{NewSrq, Srq, SrqChange, SrqInit, SrqQuery},
    stats::StatDesc,
    ucontext::{NewUcontext, Ucontext},
    udata::{Udata, User},
    wc::Completions,
    wr::{RecvWrs, SendWrs},
    xrcd::Xrcd,
};

/// The operations of an RDMA device with one Ethernet port that speaks RoCE v2.
///
/// The associated types are the driver's parts of the core's objects: a creating operation
/// returns one, later operations see it through the object's wrapper (`&Qp<Self>` derefs to
/// `Self::Qp`), and it is dropped after the destroying operation has returned `Ok`. Whatever the
/// driver's part owns (pinned memory, rings) is thus freed after the device has let go of it.
///
/// Each operation gets the data of the [`Registration`](super::Registration). Unless said otherwise it may
/// sleep, and the core serialises creation and destruction of one object but nothing else.
/// `user` is `None` for kernel clients. What the device cannot do gets `EOPNOTSUPP`.
///
/// C header: `struct ib_device_ops` in `include/rdma/ib_verbs.h`.
pub(crate) trait Operations: Sized + 'static {
    /// What all operations work on; may borrow what is bound to the parent device.
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
    /// The driver's part of a memory region.
    type Mr: Send + Sync;
    /// The driver's part of an address handle, which lives in memory alone: the device does not know it,
    /// and it may be dropped in any context.
    type Ah: Send + Sync;
    /// The driver's part of a memory window.
    type Mw: Send + Sync;

    /// Matched by the user-space half (`ib_device_ops::driver_id`).
    const DRIVER_ID: u32;
    /// Version of the private payloads (`ib_device_ops::uverbs_abi_ver`).
    const UVERBS_ABI_VERSION: u32;
    /// The counters that [`Operations::read_stats`] fills.
    const STATS: &'static [StatDesc];

    /// The device's limits.
    fn query_device(data: &Self::Data<'_>) -> Result<DeviceAttr>;

    /// The state of the port.
    fn query_port(data: &Self::Data<'_>, device: &Device<Self>) -> Result<PortAttr>;

    /// The port is now like this; also before the device is registered.
    fn set_port(data: &Self::Data<'_>, settings: &PortSettings) -> Result;

    /// Writes the version of the device's firmware, up to 31 characters.
    fn fw_version(data: &Self::Data<'_>, out: &mut dyn fmt::Write) -> fmt::Result;

    /// Reads the counters, in the order of [`Operations::STATS`].
    fn read_stats(data: &Self::Data<'_>, values: &mut [u64]) -> Result;

    /// What the port has carried.
    fn port_counters(data: &Self::Data<'_>) -> Result<PortCounters>;

    /// An entry was added to the GID table.
    fn add_gid(data: &Self::Data<'_>, gid: &GidAttr) -> Result;

    /// An entry of the GID table goes.
    fn del_gid(data: &Self::Data<'_>, gid: &GidAttr) -> Result;

    /// A process opens the device.
    fn alloc_ucontext(
        data: &Self::Data<'_>,
        context: &NewUcontext<'_, Self>,
        udata: &Udata<'_>,
    ) -> Result<Self::Ucontext>;

    /// A process is done with the device; its mmap keys are gone already.
    fn dealloc_ucontext(data: &Self::Data<'_>, context: &Ucontext<Self>);

    /// Creates a protection domain.
    fn alloc_pd(data: &Self::Data<'_>, user: Option<&User<'_, Self>>) -> Result<Self::Pd>;

    /// Frees a protection domain.
    fn dealloc_pd(data: &Self::Data<'_>, pd: &Pd<Self>) -> Result;

    /// Registers all of memory, addressed by DMA address, for kernel clients.
    fn get_dma_mr(data: &Self::Data<'_>, pd: &Pd<Self>, access: u32) -> Result<NewMr<Self::Mr>>;

    /// Registers memory of a process. `udata` is the payload of its provider; none comes from a kernel client.
    fn reg_user_mr(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        udata: Option<&Udata<'_>>,
    ) -> Result<NewMr<Self::Mr>>;

    /// As [`Self::reg_user_mr`], for the DMA buffer `fd`; `start` is the offset in it.
    fn reg_dmabuf_mr(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        fd: i32,
    ) -> Result<NewMr<Self::Mr>>;

    /// Changes a region of a process, which is as it was on an error. Returns its new key.
    fn rereg_user_mr(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        mr: &Self::Mr,
        change: &RegionChange<'_, Self>,
    ) -> Result<u32>;

    /// Allocates a region of up to `max_pages` pages for fast registration, with its page list.
    fn alloc_mr(data: &Self::Data<'_>, pd: &Pd<Self>, max_pages: u32) -> Result<NewMr<Self::Mr>>;

    /// Removes a region; on return the device no longer touches its memory.
    fn dereg_mr(data: &Self::Data<'_>, mr: &Self::Mr) -> Result;

    /// Creates an address handle; for kernel clients in any context.
    fn create_ah(
        data: &Self::Data<'_>,
        attr: &AhAttr,
        user: Option<&User<'_, Self>>,
    ) -> Result<Self::Ah>;

    /// What an address handle was created with.
    fn query_ah(ah: &Self::Ah) -> AhValues;

    /// Makes a datagram queue pair a member of a multicast group.
    fn attach_mcast(data: &Self::Data<'_>, qp: &Qp<Self>, group: Gid) -> Result;

    /// Ends that.
    fn detach_mcast(data: &Self::Data<'_>, qp: &Qp<Self>, group: Gid) -> Result;

    /// Allocates a window, which is bound by work requests.
    fn alloc_mw(data: &Self::Data<'_>, pd: &Pd<Self>, kind: MwType) -> Result<NewMw<Self::Mw>>;

    /// Removes a window; on return nobody reaches memory by it.
    fn dealloc_mw(data: &Self::Data<'_>, mw: &Mw<Self>) -> Result;

    /// Adds to what `rdma resource show mr` tells.
    fn describe_mr(data: &Self::Data<'_>, mr: &Self::Mr, details: &mut Details<'_>) -> Result;

    /// The same in the driver's own bytes, for `rdma resource show mr -r`.
    fn raw_mr(data: &Self::Data<'_>, mr: &Self::Mr, raw: Raw<'_>) -> Result;

    /// Adds to what `rdma resource show cq` tells.
    fn describe_cq(data: &Self::Data<'_>, cq: &Cq<Self>, details: &mut Details<'_>) -> Result;

    /// The same in the driver's own bytes, for `rdma resource show cq -r`.
    fn raw_cq(data: &Self::Data<'_>, cq: &Cq<Self>, raw: Raw<'_>) -> Result;

    /// Adds to what `rdma resource show srq` tells.
    fn describe_srq(data: &Self::Data<'_>, srq: &Srq<Self>, details: &mut Details<'_>) -> Result;

    /// The same in the driver's own bytes, for `rdma resource show srq -r`.
    fn raw_srq(data: &Self::Data<'_>, srq: &Srq<Self>, raw: Raw<'_>) -> Result;

    /// Adds to what `rdma resource show qp` tells.
    fn describe_qp(data: &Self::Data<'_>, qp: &Qp<Self>, details: &mut Details<'_>) -> Result;

    /// The same in the driver's own bytes, for `rdma resource show qp -r`.
    fn raw_qp(data: &Self::Data<'_>, qp: &Qp<Self>, raw: Raw<'_>) -> Result;

    /// Creates a completion queue.
    fn create_cq(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        init: &mut CqInit<'_>,
        user: Option<&User<'_, Self>>,
    ) -> Result<Self::Cq>;

    /// Sets how events of a completion queue are moderated. Process context.
    fn modify_cq(data: &Self::Data<'_>, cq: &Cq<Self>, moderation: Moderation) -> Result;

    /// Gives a process' completion queue room for at least `entries`; returns for how many. Calls for one queue may
    /// come at the same time.
    fn resize_cq(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        cq: &Cq<Self>,
        entries: u32,
        user: &User<'_, Self>,
    ) -> Result<u32>;

    /// Destroys a completion queue.
    fn destroy_cq(data: &Self::Data<'_>, cq: &Cq<Self>) -> Result;

    /// Takes completions of a kernel client's queue; any context.
    fn poll_cq(data: &Self::Data<'_>, cq: &Cq<Self>, out: &mut Completions<'_>) -> Result;

    /// Arms a kernel client's queue; any context. Returns whether completions may already be
    /// there, if [`Notify::report_missed`] asks for it.
    fn req_notify_cq(data: &Self::Data<'_>, cq: &Cq<Self>, notify: Notify) -> Result<bool>;

    /// Creates an XRC domain, which may outlive the process that asks for it.
    fn alloc_xrcd(data: &Self::Data<'_>) -> Result<Self::Xrcd>;

    /// Destroys an XRC domain, which nobody uses.
    fn dealloc_xrcd(data: &Self::Data<'_>, xrcd: &Xrcd<Self>) -> Result;

    /// Creates a shared receive queue.
    fn create_srq(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        init: &mut SrqInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewSrq<Self::Srq>>;

    /// Changes a shared receive queue.
    fn modify_srq(data: &Self::Data<'_>, srq: &Srq<Self>, change: SrqChange) -> Result;

    /// Reads what a shared receive queue is.
    fn query_srq(data: &Self::Data<'_>, srq: &Srq<Self>) -> Result<SrqQuery>;

    /// Destroys a shared receive queue, which no queue pair uses.
    fn destroy_srq(data: &Self::Data<'_>, srq: &Srq<Self>) -> Result;

    /// Posts a kernel client's receive work requests, up to the first that is refused; any context.
    fn post_srq_recv(data: &Self::Data<'_>, srq: &Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Creates a queue pair. Only an XRC target has no protection domain; it is the kernel's, whoever asked.
    fn create_qp(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: Option<&Pd<Self>>,
        init: &mut QpInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewQp<Self::Qp>>;

    /// Changes the attributes that `mask` names; the core serialises this for one queue pair
    /// only for users.
    fn modify_qp(data: &Self::Data<'_>, qp: &Qp<Self>, attr: &QpAttr, mask: QpAttrMask) -> Result;

    /// Reads all attributes.
    fn query_qp(data: &Self::Data<'_>, qp: &Qp<Self>) -> Result<QpQuery>;

    /// Destroys a queue pair.
    fn destroy_qp(data: &Self::Data<'_>, qp: &Qp<Self>, user: Option<&User<'_, Self>>) -> Result;

    /// Posts a kernel client's send work requests, up to the first that is refused; any context.
    fn post_send(data: &Self::Data<'_>, qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result;

    /// Posts a kernel client's receive work requests, up to the first that is refused; any context.
    fn post_recv(data: &Self::Data<'_>, qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result;
}

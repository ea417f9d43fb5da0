// SPDX-License-Identifier: GPL-2.0
//! The operations of an RDMA device.

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, fmt, prelude::*, str::CStr};

use super::{
    ah::{AhAttr, AhValues},
    attr::{DeviceAttr, LinkLayer, PortAttr, PortImmutable},
    cq::{Cq, CqInit, Moderation, Notify},
    device::{Device, DeviceChange},
    dm::{DmRegion, DmRequest},
    driver::Driver,
    gid::{Gid, GidAttr},
    mad::{Mad, MadResult},
    mr::{NewMr, RegionChange, UserRegion},
    mw::{Mw, MwType, NewMw},
    object::{Pd, Xrcd},
    qp::{NewQp, Qp, QpInit},
    qp_attr::{QpAttr, QpAttrMask, QpQuery},
    recv_wr::RecvWrs,
    restrack::{RawResEntry, ResEntry},
    srq::{NewSrq, Srq, SrqChange, SrqInit, SrqQuery},
    stats::StatDesc,
    ucontext::{NewUcontext, Ucontext},
    udata::{Udata, User},
    wc::Completions,
    wr::SendWrs,
};

/// The operations of an RDMA device, with the names of the C functions.
///
/// Those of the first group are required: without them the core takes a device for one that kernel
/// clients cannot use. All others are optional: the core finds null in their place. An operation
/// that creates objects comes with those without which the core could not use or destroy them: a
/// driver that has `create_srq` must have `destroy_srq` and `post_srq_recv`. It may still lack
/// `modify_srq` and `query_srq`.
///
/// Each operation gets the data of the [`Registration`](super::registration::Registration). Unless
/// said otherwise it may sleep, and the core serialises creation and destruction of one object but
/// nothing else. `user` is `None` for kernel clients.
///
/// C header: `struct ib_device_ops` in `include/rdma/ib_verbs.h`.
#[vtable]
pub(crate) trait Operations: Driver {
    /// The number by which the user-space half finds its devices (`ib_device_ops::driver_id`).
    const DRIVER_ID: u32;
    /// The names of devices, in which `%d` stands for a number. It must be the only conversion: the
    /// core takes this for a format of `sscanf` and `dev_set_name` (`alloc_name` in `device.c`).
    const NAMES: &'static CStr;
    /// Version of the private payloads (`ib_device_ops::uverbs_abi_ver`).
    const UVERBS_ABI_VERSION: u32;
    /// Number of ports; they are counted from 1.
    const PORTS: u32;
    /// The counters of a port that [`Operations::get_hw_stats`] fills.
    const STATS: &'static [StatDesc] = &[];

    /// Returns the limits of the device.
    fn query_device(data: &Self::Data<'_>) -> Result<DeviceAttr>;

    /// Returns the state of a port.
    fn query_port(data: &Self::Data<'_>, device: &Device<Self>, port: u32) -> Result<PortAttr>;

    /// Returns the properties of a port that never change.
    fn get_port_immutable(data: &Self::Data<'_>, port: u32) -> Result<PortImmutable>;

    /// Creates a protection domain.
    fn alloc_pd(data: &Self::Data<'_>, user: Option<&User<'_, Self>>) -> Result<Self::Pd>;

    /// Destroys a protection domain.
    fn dealloc_pd(data: &Self::Data<'_>, pd: &Pd<Self>) -> Result;

    /// Registers all of memory, addressed by DMA address, for kernel clients.
    fn get_dma_mr(data: &Self::Data<'_>, pd: &Pd<Self>, access: u32) -> Result<NewMr<Self::Mr>>;

    /// Registers memory of a process. `udata` is the payload of its provider; none comes from a
    /// kernel client.
    fn reg_user_mr(
        data: &Self::Data<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        udata: Option<&Udata<'_>>,
    ) -> Result<NewMr<Self::Mr>>;

    /// Removes a region; on return the device no longer touches its memory.
    fn dereg_mr(data: &Self::Data<'_>, mr: &Self::Mr) -> Result;

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

    // Ports of RoCE alone: link layer, partition keys, GID table, management datagrams.

    /// Returns the link layer of a port. The core may ask before the device is registered.
    fn get_link_layer(_port: u32) -> LinkLayer {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns an entry of the table of partition keys.
    fn query_pkey(_data: &Self::Data<'_>, _port: u32, _index: u16) -> Result<u16> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Tells the device that an entry was added to its GID table.
    fn add_gid(_data: &Self::Data<'_>, _gid: &GidAttr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Tells the device that an entry of its GID table goes.
    fn del_gid(_data: &Self::Data<'_>, _gid: &GidAttr) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Answers a management datagram for a port, or leaves it to the core. What follows the header
    /// of the answer goes to `answer`.
    fn process_mad(
        _data: &Self::Data<'_>,
        _port: u32,
        _mad: &Mad<'_>,
        _answer: &mut [u8],
    ) -> MadResult {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // Ports of iWARP alone.

    /// Returns an entry of the GID table of a port.
    fn query_gid(_data: &Self::Data<'_>, _port: u32, _index: u32) -> Result<Gid> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // Device and port: what an administrator changes, firmware version, events, counters.

    /// Changes the device as an administrator asks. On success the abstraction stores a new
    /// description of the node where the core looks for it.
    fn modify_device(_data: &Self::Data<'_>, _change: &DeviceChange) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Writes the version of the firmware, up to 31 characters.
    fn get_dev_fw_str(_data: &Self::Data<'_>, _out: &mut dyn fmt::Write) -> fmt::Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Reports an event (`enum netdev_cmd`) of the Ethernet device of a port to clients, in the
    /// core's place.
    fn report_port_event(_data: &Self::Data<'_>, _event: usize) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Reads the counters of a port, in the order of [`Operations::STATS`].
    fn get_hw_stats(_data: &Self::Data<'_>, _port: u32, _values: &mut [u64]) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // Processes.

    /// Opens the device for a process.
    fn alloc_ucontext(
        _data: &Self::Data<'_>,
        _context: &NewUcontext<'_, Self>,
        _udata: &Udata<'_>,
    ) -> Result<Self::Ucontext> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Closes the device for a process, whose mmap keys are gone already.
    fn dealloc_ucontext(_data: &Self::Data<'_>, _context: &Ucontext<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Answers a process that imports a context of another one.
    fn query_ucontext(
        _data: &Self::Data<'_>,
        _context: &Ucontext<Self>,
        _udata: &Udata<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // More of regions.

    /// Registers the DMA buffer `fd` as [`Self::reg_user_mr`] registers memory; `start` is the
    /// offset in it.
    fn reg_user_mr_dmabuf(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _pd: &Pd<Self>,
        _region: &UserRegion,
        _fd: i32,
    ) -> Result<NewMr<Self::Mr>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes a region of a process, which is as it was on an error. Returns its new key.
    fn rereg_user_mr(
        _data: &Self::Data<'_>,
        _device: &Device<Self>,
        _mr: &Self::Mr,
        _change: &RegionChange<'_, Self>,
    ) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Allocates a region of up to `max_pages` pages for fast registration, with its page list.
    fn alloc_mr(
        _data: &Self::Data<'_>,
        _pd: &Pd<Self>,
        _max_pages: u32,
    ) -> Result<NewMr<Self::Mr>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // More of completion queues and queue pairs.

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

    /// Returns all attributes of a queue pair.
    fn query_qp(_data: &Self::Data<'_>, _qp: &Qp<Self>) -> Result<QpQuery> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // Address handles and multicast groups.

    /// Creates an address handle; for kernel clients in any context.
    fn create_ah(
        _data: &Self::Data<'_>,
        _attr: &AhAttr,
        _user: Option<&User<'_, Self>>,
    ) -> Result<Self::Ah> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns what an address handle was created with.
    fn query_ah(_ah: &Self::Ah) -> AhValues {
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

    // Memory windows.

    /// Allocates a window, which is bound by work requests.
    fn alloc_mw(_data: &Self::Data<'_>, _pd: &Pd<Self>, _kind: MwType) -> Result<NewMw<Self::Mw>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Removes a window. On return no memory can be accessed by it.
    fn dealloc_mw(_data: &Self::Data<'_>, _mw: &Mw<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // Device memory.

    /// Allocates device memory for a process, which may map it at once.
    fn alloc_dm(
        _data: &Self::Data<'_>,
        _context: &Ucontext<Self>,
        _request: &DmRequest,
    ) -> Result<Self::Dm> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Frees device memory, of which no region is registered any more.
    fn dealloc_dm(_data: &Self::Data<'_>, _context: &Ucontext<Self>, _dm: &Self::Dm) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Registers a part of device memory.
    fn reg_dm_mr(
        _data: &Self::Data<'_>,
        _pd: &Pd<Self>,
        _dm: &Self::Dm,
        _region: &DmRegion,
    ) -> Result<NewMr<Self::Mr>> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // Shared receive queues.

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
    fn modify_srq(_data: &Self::Data<'_>, _srq: &Srq<Self>, _change: SrqChange) -> Result {
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

    // XRC domains.

    /// Creates an XRC domain, which may outlive the process that asks for it.
    fn alloc_xrcd(_data: &Self::Data<'_>) -> Result<Self::Xrcd> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Destroys an XRC domain, which no code uses.
    fn dealloc_xrcd(_data: &Self::Data<'_>, _xrcd: &Xrcd<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    // The driver's additions to the output of `rdma resource show` for an object: names and values,
    // or (`-r`) bytes in a format of the driver.

    /// Adds names and values of a memory region to an entry.
    fn fill_res_mr_entry(
        _data: &Self::Data<'_>,
        _mr: &Self::Mr,
        _entry: &mut ResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds a memory region in the driver's own bytes to an entry.
    fn fill_res_mr_entry_raw(
        _data: &Self::Data<'_>,
        _mr: &Self::Mr,
        _entry: RawResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds names and values of a completion queue to an entry.
    fn fill_res_cq_entry(
        _data: &Self::Data<'_>,
        _cq: &Cq<Self>,
        _entry: &mut ResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds a completion queue in the driver's own bytes to an entry.
    fn fill_res_cq_entry_raw(
        _data: &Self::Data<'_>,
        _cq: &Cq<Self>,
        _entry: RawResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds names and values of a shared receive queue to an entry.
    fn fill_res_srq_entry(
        _data: &Self::Data<'_>,
        _srq: &Srq<Self>,
        _entry: &mut ResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds a shared receive queue in the driver's own bytes to an entry.
    fn fill_res_srq_entry_raw(
        _data: &Self::Data<'_>,
        _srq: &Srq<Self>,
        _entry: RawResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds names and values of a queue pair to an entry.
    fn fill_res_qp_entry(
        _data: &Self::Data<'_>,
        _qp: &Qp<Self>,
        _entry: &mut ResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Adds a queue pair in the driver's own bytes to an entry.
    fn fill_res_qp_entry_raw(
        _data: &Self::Data<'_>,
        _qp: &Qp<Self>,
        _entry: RawResEntry<'_>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

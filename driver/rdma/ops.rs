// SPDX-License-Identifier: GPL-2.0
//! The operations of an RDMA device.

use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, fmt, prelude::*, str::CStr};

use super::{
    ah::AhOperations,
    counter::CounterOperations,
    device::{Device, DeviceChange},
    driver::Driver,
    memory::dm::DmOperations,
    memory::mr::{Mr, MrOperations},
    memory::mw::MwOperations,
    pd::PdOperations,
    port::attr::{DeviceAttr, LinkLayer, PortAttr, PortImmutable},
    port::gid::{Gid, GidAttr},
    port::mad::{Mad, MadResult},
    port::stats::StatDesc,
    queues::cq::{Cq, CqOperations},
    queues::flow::FlowOperations,
    queues::qp::{Qp, QpOperations},
    queues::srq::{Srq, SrqOperations},
    queues::wq::WqOperations,
    queues::xrcd::XrcdOperations,
    restrack::ResOperations,
    user::ucontext::UcontextOperations,
};

/// The operations of an RDMA device, with the names of the C functions: those of the device and its
/// ports here, and those of each kind of object in the trait that is next to the object.
///
/// Operations without a body are required: without them the core takes a device for one that kernel
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
pub(crate) trait Operations:
    UcontextOperations
    + PdOperations
    + MrOperations
    + MwOperations
    + DmOperations
    + AhOperations
    + CqOperations
    + SrqOperations
    + XrcdOperations
    + QpOperations
    + FlowOperations
    + CounterOperations
    + WqOperations
    + ResOperations<Cq<Self>>
    + ResOperations<Srq<Self>>
    + ResOperations<Qp<Self>>
    + ResOperations<Mr<<Self as Driver>::Mr>>
{
    /// The number by which the user-space half finds its devices (`ib_device_ops::driver_id`).
    const DRIVER_ID: u32;
    /// The names of devices, in which `%d` stands for a number. It must be the only conversion: the
    /// core takes this for a format of `sscanf` and `dev_set_name` (`alloc_name` in `device.c`).
    const NAMES: &'static CStr;
    /// Version of the private payloads (`ib_device_ops::uverbs_abi_ver`).
    const UVERBS_ABI_VERSION: u32;
    /// Number of ports; they are counted from 1.
    const PORTS: u32;
    /// The counters of a port that [`Operations::get_hw_stats`] fills. Optional ones need
    /// [`Operations::modify_hw_stat`].
    const STATS: &'static [StatDesc] = &[];

    /// Returns the limits of the device.
    fn query_device(data: &Self::Data<'_>) -> Result<DeviceAttr>;

    /// Returns the state of a port.
    fn query_port(data: &Self::Data<'_>, device: &Device<Self>, port: u32) -> Result<PortAttr>;

    /// Returns the properties of a port that never change.
    fn get_port_immutable(data: &Self::Data<'_>, port: u32) -> Result<PortImmutable>;

    // These are only for ports of RoCE: link layer, partition keys, GID table, management
    // datagrams.

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

    // These are only for ports of iWARP.

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

    /// Switches an optional counter of a port on or off. `index` is its place in
    /// [`Operations::STATS`]. One that is switched on counts from zero.
    fn modify_hw_stat(_data: &Self::Data<'_>, _port: u32, _index: usize, _on: bool) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

//! Guests as machines: processors, memory, devices, containers, the kernel module.

pub(crate) mod containers;
pub(crate) mod direct;
pub(crate) mod events;
pub(crate) mod hotplug;
pub(crate) mod iommu;
pub(crate) mod module;
pub(crate) mod paging;
pub(crate) mod smp;
pub(crate) mod snapshot;
pub(crate) mod vfio;

//! The resources that are assigned to an adapter: its own maximum of each, how many it uses, and
//! changes while it runs.

use std::fmt::{self, Display, Formatter};

use vrnic_abi::sq;

use crate::adapter::Adapter;
use crate::host::Host;
use crate::limits::Limits;
use crate::limits::resource::Resource;

/// The effect of lowering a maximum below the number in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrink {
    /// The change is refused.
    Refuse,
    /// Nothing more can be created until the number is below the maximum. What exists stays.
    Drain,
}

/// A maximum is below the number in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The resource that is in use.
    pub resource: Resource,
    /// The number in use.
    pub actual: u64,
    /// The function's maximum of the resource.
    pub maximum: u64,
}

impl Display for InUse {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { resource, actual, maximum } = self;
        write!(f, "{actual} of {} are in use, more than {maximum}", resource.name())
    }
}

impl std::error::Error for InUse {}

impl<H: Host> Adapter<H> {
    /// Returns its own maximum of each resource.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *self.limits.read()
    }

    /// Returns whether a work queue of this size is within the maximum.
    pub(crate) fn has_ring_size(&self, log_size: u8) -> bool {
        let maximum = u64::from(self.limits().wr.min(1 << sq::LOG_WQES_MAX));
        1u64.checked_shl(log_size.into()).is_some_and(|size| size <= maximum)
    }

    /// Returns the amount of a resource that it uses. All of its device memory is in use, because
    /// its driver divides the memory. Returns `None` if objects do not use the resource up.
    #[must_use]
    pub fn actual(&self, resource: Resource) -> Option<u64> {
        let objects = &self.objects;
        Some(match resource {
            // The kernel's context does not count.
            Resource::Contexts => objects.contexts.len().saturating_sub(1).into(),
            Resource::Pd => objects.pds.len().into(),
            Resource::Cq => objects.cqs.len().into(),
            Resource::Cqe => objects.cq_entries.used().into(),
            Resource::Srq => objects.srqs.len().into(),
            Resource::Qp => objects.qp_count().into(),
            Resource::Wr => return None,
            Resource::Mr => self.tpt().used(),
            Resource::Mw => self.tpt().windows().into(),
            Resource::DeviceMemory => self.limits().of(resource),
            Resource::Ranges => self.core().ranges.used() as u64,
            Resource::Mcast => objects.groups.count() as u64,
            Resource::Uar => objects.uars.len().into(),
            Resource::Flows => objects.flows.count() as u64,
        })
    }

    /// Changes its maxima, all of them or none. Device memory must stay the same, because the VMM
    /// maps it. A driver that is running keeps the numbers that it has queried.
    ///
    /// # Errors
    /// With [`Shrink::Refuse`], the first resource of which more is in use than a lowered maximum.
    pub fn set_limits(&self, new: &Limits, shrink: Shrink) -> Result<(), InUse> {
        // No admin command creates anything meanwhile.
        let _admin = self.objects.admin.lock();
        let old = self.limits();
        let lowered = Resource::ALL.iter().filter(|kind| new.of(**kind) < old.of(**kind));
        for &resource in lowered.filter(|_| shrink == Shrink::Refuse) {
            let maximum = new.of(resource);
            if let Some(actual) = self.actual(resource).filter(|actual| *actual > maximum) {
                return Err(InUse { resource, actual, maximum });
            }
        }
        *self.limits.write() = Limits { device_memory: old.device_memory, ..*new };
        self.objects.set_limits(new);
        self.tpt().set_limits(new.mr, new.mw);
        Ok(())
    }
}

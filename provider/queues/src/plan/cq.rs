// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The ring of a completion queue.

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::cq::{CQE_LEN, LOG_CQES_MAX};
use abi::uverbs::{CQ_ANY_VECTOR, CqReq};

use super::{Limits, VectorPolicy};
use crate::mapping::Mapping;
use crate::ring::Shape;

/// The memory of a completion queue, before the kernel knows it.
#[derive(Debug)]
pub struct CqRing {
    pub(crate) shape: Shape,
    pub(crate) memory: Mapping,
}

impl CqRing {
    /// Allocates a ring of at least `entries` entries.
    ///
    /// # Errors
    /// `EINVAL` when there are none or more than `limits` allows; `ENOMEM`.
    pub fn allocate(entries: u32, limits: &Limits) -> Result<Self, Errno> {
        if entries > limits.max_cqe {
            return Err(Errno::INVAL);
        }
        let shape = Shape::holding(entries, CQE_LEN, LOG_CQES_MAX).ok_or(Errno::INVAL)?;
        Ok(Self { shape, memory: Mapping::anonymous(shape.bytes())? })
    }

    /// What the kernel is asked for, for a queue on completion vector `vector`.
    #[must_use]
    pub fn request(&self, vector: u32, policy: VectorPolicy) -> CqReq {
        let any = policy == VectorPolicy::Any && vector == 0;
        CqReq {
            buf: self.memory.address().into(),
            log_size: self.shape.log_size,
            flags: if any { CQ_ANY_VECTOR } else { 0 },
            ..CqReq::default()
        }
    }
}

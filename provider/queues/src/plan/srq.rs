// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The ring of a shared receive queue.

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::uverbs::SrqReq;

use super::{Limits, ring_of};
use crate::mapping::Mapping;
use crate::ring::Shape;

/// The memory of a shared receive queue, before the kernel knows it.
#[derive(Debug)]
pub struct SrqRing {
    pub(crate) shape: Shape,
    pub(crate) max_sge: u32,
    pub(crate) memory: Mapping,
}

impl SrqRing {
    /// Allocates a ring of at least `entries` entries of up to `max_sge` segments.
    ///
    /// # Errors
    /// `EINVAL` when there are none or more than `limits` allows; `ENOMEM`.
    pub fn allocate(entries: u32, max_sge: u32, limits: &Limits) -> Result<Self, Errno> {
        if entries > limits.max_wr || max_sge > limits.max_sge {
            return Err(Errno::INVAL);
        }
        let shape = ring_of(entries, abi::rq::stride(max_sge))?.ok_or(Errno::INVAL)?;
        Ok(Self { shape, max_sge, memory: Mapping::anonymous(shape.bytes())? })
    }

    /// What the kernel is asked for.
    #[must_use]
    pub fn request(&self) -> SrqReq {
        SrqReq {
            buf: self.memory.address().into(),
            log_size: self.shape.log_size,
            log_stride: self.shape.log_stride,
            ..SrqReq::default()
        }
    }
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which rings a queue needs, and the request for them to the kernel.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `qp`, `cq`, `srq` | the rings of these queues |
//! | `form` | what sends name beside their data |
//! | `policy` | what the user may choose by the environment |

mod cq;
mod form;
mod policy;
mod qp;
mod srq;
#[cfg(test)]
mod tests;

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::sq::LOG_WQES_MAX;
use abi::uverbs::ContextResp;

pub use self::cq::CqRing;
pub use self::form::SendForm;
pub use self::policy::{PayloadPolicy, SqPolicy, VectorPolicy};
pub use self::qp::{CommandTag, QpCap, QpExtras, QpPlan, QpRings};
pub use self::srq::SrqRing;
use crate::ring::Shape;

/// What the adapter offers to a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work requests outstanding on a queue.
    pub max_wr: u32,
    /// Segments of a work request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
}

impl From<&ContextResp> for Limits {
    fn from(response: &ContextResp) -> Self {
        Self {
            max_wr: response.max_wr.get(),
            max_sge: response.max_sge.get(),
            max_inline: response.max_inline.get(),
            max_cqe: response.max_cqe.get(),
        }
    }
}

/// The ring of a work queue of so many entries; none for none.
fn ring_of(entries: u32, stride: Option<u32>) -> Result<Option<Shape>, Errno> {
    if entries == 0 {
        return Ok(None);
    }
    let shape = stride.and_then(|stride| Shape::holding(entries, stride, LOG_WQES_MAX));
    shape.ok_or(Errno::INVAL).map(Some)
}

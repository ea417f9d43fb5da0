//! Handles may be used by many threads: libibverbs and its plugins do their own locking
//! (`ibv_post_send(3)` and its kin: "all libibverbs verbs are thread safe"). Destroying a handle
//! consumes it here, so no thread can use it later.

use super::context::Context;
use super::cq::Cq;
use super::memory::{Mr, Pd};
use super::qp::Qp;
use super::srq::Srq;

/// Lets threads share and pass on handles.
macro_rules! shared_by_threads {
    ($($handle:ty),*) => {$(
        // SAFETY: as above: the handle is a pointer to an object that any thread may use.
        unsafe impl Send for $handle {}
        // SAFETY: as above, at the same time as others.
        unsafe impl Sync for $handle {}
    )*};
}

shared_by_threads!(Context, Pd, Mr, Cq, Qp, Srq);

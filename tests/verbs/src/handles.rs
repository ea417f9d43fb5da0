//! The common parts of all handles. Many threads may use a handle: libibverbs and its plugins have
//! their own locks (`ibv_post_send(3)` and similar pages: "all libibverbs verbs are thread safe").
//! Destroying a handle consumes it, so no thread can use it later.

use std::io;

use super::address::Ah;
use super::cm::Connection;
use super::context::Context;
use super::cq::{Channel, Cq};
use super::device_memory::DeviceMemory;
use super::memory::{Mr, Pd, Td};
use super::qp::Qp;
use super::rss::{Wq, WqTable};
use super::srq::Srq;
use super::window::Mw;
use super::{check, ffi};

/// Declares the pointers of handles, and the calls that destroy their objects.
macro_rules! handles {
    ($($handle:ty: $raw:ident, $destroy:ident;)*) => {$(
        impl $handle {
            pub(crate) fn raw(&self) -> *mut ffi::$raw {
                self.raw.as_ptr()
            }

            /// Destroys the object, or returns the handle with the error (EBUSY while other objects
            /// use it).
            pub fn destroy(self) -> Result<(), (Self, io::Error)> {
                // SAFETY: the handle is live; on success no reference to it is left. The kernel
                // refuses this while other objects refer to it.
                check(unsafe { ffi::$destroy(self.raw()) }).map_err(|error| (self, error))
            }
        }
    )*};
}

handles! {
    Ah: ibv_ah, ibv_destroy_ah;
    Channel: ibv_comp_channel, ibv_destroy_comp_channel;
    Cq: ibv_cq, ibv_destroy_cq;
    DeviceMemory: ibv_dm, free_dm;
    Mr: ibv_mr, ibv_dereg_mr;
    Mw: ibv_mw, dealloc_mw;
    Pd: ibv_pd, ibv_dealloc_pd;
    Qp: ibv_qp, ibv_destroy_qp;
    Srq: ibv_srq, ibv_destroy_srq;
    Td: ibv_td, dealloc_td;
    Wq: ibv_wq, destroy_wq;
    WqTable: ibv_rwq_ind_table, destroy_rwq_ind_table;
}

/// Lets threads share handles, and move them to other threads.
macro_rules! shared_by_threads {
    ($($handle:ty),*) => {$(
        // SAFETY: the handle is a pointer to an object that any thread may use.
        unsafe impl Send for $handle {}
        // SAFETY: several threads may use the object of the handle at the same time.
        unsafe impl Sync for $handle {}
    )*};
}

shared_by_threads!(Context, Pd, Mr, Cq, Qp, Srq, Connection);

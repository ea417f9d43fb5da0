//! Shared receive queues.

use std::io;
use std::mem;
use std::ptr::NonNull;

use super::memory::Pd;
use super::wr::{self, Refused};
use super::{check, ffi, object};
use crate::model::{RecvWr, SrqAttr};

/// A shared receive queue.
pub struct Srq {
    pub(crate) raw: NonNull<ffi::ibv_srq>,
}

impl Srq {
    /// Creates an SRQ. Also returns the granted sizes.
    pub fn new(pd: &Pd, max_wr: u32, max_sge: u32) -> io::Result<(Self, SrqAttr)> {
        // SAFETY: all-zero is valid for this struct of integers and a null pointer.
        let mut init: ffi::ibv_srq_init_attr = unsafe { mem::zeroed() };
        init.attr = ffi::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        // SAFETY: the PD is live, and `init` is complete.
        let raw = object(unsafe { ffi::ibv_create_srq(pd.raw(), &raw mut init) })?;
        Ok((Self { raw }, attributes(&init.attr)))
    }

    pub(crate) fn from_raw(raw: NonNull<ffi::ibv_srq>) -> Self {
        Self { raw }
    }

    /// Returns the identity that events of this SRQ contain.
    pub fn identity(&self) -> usize {
        self.raw() as usize
    }

    /// Changes the size, or arms the limit event.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> io::Result<()> {
        let mut attr = ffi::ibv_srq_attr {
            max_wr: max_wr.unwrap_or_default(),
            max_sge: 0,
            srq_limit: limit.unwrap_or_default(),
        };
        let mask =
            max_wr.map_or(0, |_| ffi::IBV_SRQ_MAX_WR) | limit.map_or(0, |_| ffi::IBV_SRQ_LIMIT);
        // SAFETY: the handle is live and the struct complete.
        check(unsafe { ffi::ibv_modify_srq(self.raw(), &raw mut attr, mask as i32) })
    }

    /// Queries the attributes.
    pub fn query(&self) -> io::Result<SrqAttr> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut attr: ffi::ibv_srq_attr = unsafe { mem::zeroed() };
        // SAFETY: the handle is live and the call fills the struct.
        check(unsafe { ffi::ibv_query_srq(self.raw(), &raw mut attr) })?;
        Ok(attributes(&attr))
    }

    /// Posts a list of receive work requests.
    pub fn post_recv(&self, requests: &[RecvWr]) -> Result<(), Refused> {
        wr::post_recv(requests, |first, bad| {
            // SAFETY: the handle is live; list and segments are valid during the call.
            unsafe { ffi::post_srq_recv(self.raw(), first, bad) }
        })
    }
}

pub(crate) fn attributes(attr: &ffi::ibv_srq_attr) -> SrqAttr {
    SrqAttr { max_wr: attr.max_wr, max_sge: attr.max_sge, limit: attr.srq_limit }
}

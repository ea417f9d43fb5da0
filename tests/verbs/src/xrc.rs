//! XRC: domains, the targets and shared receive queues in them.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use super::context::Context;
use super::cq::Cq;
use super::memory::Pd;
use super::qp::Qp;
use super::srq::{Srq, attributes};
use super::{check, ffi, missing, object};
use crate::model::SrqAttr;

/// An XRC domain.
pub struct Xrcd {
    raw: NonNull<ffi::ibv_xrcd>,
}

impl Xrcd {
    /// Opens the domain of a file, or a domain that no other process can open. `flags` are
    /// `O_CREAT` and `O_EXCL`.
    pub fn open(context: &Context, file: Option<&File>, flags: i32) -> io::Result<Self> {
        let mut attr = ffi::ibv_xrcd_init_attr {
            comp_mask: ffi::IBV_XRCD_INIT_ATTR_FD | ffi::IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.map_or(-1, AsRawFd::as_raw_fd),
            oflags: flags,
        };
        // SAFETY: the context is open, the descriptor too, and the struct complete.
        let raw = unsafe {
            let open = ffi::extended(context.raw()).open_xrcd.ok_or_else(missing)?;
            open(context.raw(), &raw mut attr)
        };
        Ok(Self { raw: object(raw)? })
    }

    fn raw(&self) -> *mut ffi::ibv_xrcd {
        self.raw.as_ptr()
    }

    fn context(&self) -> *mut ffi::ibv_context {
        // SAFETY: the handle is live.
        unsafe { (*self.raw()).context }
    }

    /// Closes the domain, or returns it with the error (EBUSY while this process has objects in
    /// it).
    pub fn close(self) -> Result<(), (Self, io::Error)> {
        // SAFETY: the handle is live; on success no reference to it is left.
        let closed = unsafe {
            match ffi::extended(self.context()).close_xrcd {
                Some(close) => check(close(self.raw())),
                None => Err(missing()),
            }
        };
        closed.map_err(|e| (self, e))
    }
}

impl Qp {
    /// Creates a target.
    pub fn target(xrcd: &Xrcd) -> io::Result<Self> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut attr: ffi::ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.qp_type = ffi::IBV_QPT_XRC_RECV;
        attr.comp_mask = ffi::IBV_QP_INIT_ATTR_XRCD;
        attr.xrcd = xrcd.raw();
        // SAFETY: the domain is live, and so is its context.
        let raw = unsafe {
            let create = ffi::extended(xrcd.context()).create_qp_ex.ok_or_else(missing)?;
            create(xrcd.context(), &raw mut attr)
        };
        Ok(Self::of_target(object(raw)?))
    }

    /// Opens a target of the domain that another process may have created.
    pub fn open(xrcd: &Xrcd, qpn: u32) -> io::Result<Self> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut attr: ffi::ibv_qp_open_attr = unsafe { mem::zeroed() };
        attr.comp_mask =
            ffi::IBV_QP_OPEN_ATTR_NUM | ffi::IBV_QP_OPEN_ATTR_XRCD | ffi::IBV_QP_OPEN_ATTR_TYPE;
        (attr.qp_num, attr.qp_type) = (qpn, ffi::IBV_QPT_XRC_RECV);
        attr.xrcd = xrcd.raw();
        // SAFETY: the domain is live, and so is its context.
        let raw = unsafe {
            let open = ffi::extended(xrcd.context()).open_qp.ok_or_else(missing)?;
            open(xrcd.context(), &raw mut attr)
        };
        Ok(Self::of_target(object(raw)?))
    }
}

impl Srq {
    /// Creates an SRQ from which the targets of a domain take receives. Its completions go to `cq`.
    /// Also returns the granted sizes.
    pub fn for_xrc(
        pd: &Pd,
        xrcd: &Xrcd,
        cq: &Cq,
        (max_wr, max_sge): (u32, u32),
    ) -> io::Result<(Self, SrqAttr)> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut init: ffi::ibv_srq_init_attr_ex = unsafe { mem::zeroed() };
        init.attr = ffi::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        init.comp_mask = ffi::IBV_SRQ_INIT_ATTR_TYPE
            | ffi::IBV_SRQ_INIT_ATTR_PD
            | ffi::IBV_SRQ_INIT_ATTR_XRCD
            | ffi::IBV_SRQ_INIT_ATTR_CQ;
        init.srq_type = ffi::IBV_SRQT_XRC;
        (init.pd, init.xrcd, init.cq) = (pd.raw(), xrcd.raw(), cq.raw());
        // SAFETY: PD, domain and CQ are live, and `init` is complete.
        let raw = unsafe {
            let create = ffi::extended(xrcd.context()).create_srq_ex.ok_or_else(missing)?;
            create(xrcd.context(), &raw mut init)
        };
        Ok((Self::from_raw(object(raw)?), attributes(&init.attr)))
    }

    /// Returns the number with which requests of initiators name the SRQ.
    pub fn number(&self) -> io::Result<u32> {
        let mut number = 0;
        // SAFETY: the handle is live, and so is its context.
        check(unsafe {
            let ask = ffi::extended((*self.raw()).context).get_srq_num.ok_or_else(missing)?;
            ask(self.raw(), &raw mut number)
        })?;
        Ok(number)
    }
}

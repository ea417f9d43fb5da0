//! Memory windows, and parameters of memory operations.

use std::io;
use std::mem;
use std::ptr::{self, NonNull};

use super::memory::{Mr, Pd};
use super::qp::Qp;
use super::{check, ffi, object};
use crate::model::Bind;

/// A memory window.
pub struct Mw {
    pub(crate) raw: NonNull<ffi::ibv_mw>,
}

impl Mw {
    /// Allocates a window of type 1 or 2.
    pub fn new(pd: &Pd, mw_type: u32) -> io::Result<Self> {
        // SAFETY: the PD is live.
        Ok(Self { raw: object(unsafe { ffi::alloc_mw(pd.raw(), mw_type) })? })
    }

    /// Returns the current key of the window.
    pub fn key(&self) -> u32 {
        // SAFETY: the handle is live; only `bind` changes the field, and that borrows mutably.
        unsafe { (*self.raw()).rkey }
    }

    /// Binds with the verb for windows of type 1. This changes the key.
    pub fn bind(&mut self, qp: &Qp, mr: Option<&Mr>, bind: &Bind) -> io::Result<()> {
        let mut wanted = wanted(mr, bind);
        let (qp, mw) = (qp.raw(), self.raw());
        // SAFETY: all handles are live and the struct complete.
        check(unsafe { ffi::bind_mw(qp, mw, &raw mut wanted) })
    }
}

impl Qp {
    /// Posts the binding of a window with a work request, with the key `rkey`.
    pub fn post_bind(&self, mw: &Mw, rkey: u32, mr: Option<&Mr>, bind: &Bind) -> io::Result<()> {
        self.post_bind_info(mw, rkey, info(mr, bind), bind)
    }

    /// Binds the window to the region that has this local key.
    pub fn post_bind_to_key(&self, mw: &Mw, rkey: u32, lkey: u32, bind: &Bind) -> io::Result<()> {
        // SAFETY: all-zero is valid for this struct of integers and pointers.
        let mut mr: ffi::ibv_mr = unsafe { mem::zeroed() };
        mr.lkey = lkey;
        let info = ffi::ibv_mw_bind_info { mr: &raw mut mr, ..info(None, bind) };
        self.post_bind_info(mw, rkey, info, bind)
    }

    fn post_bind_info(
        &self,
        mw: &Mw,
        rkey: u32,
        bind_info: ffi::ibv_mw_bind_info,
        bind: &Bind,
    ) -> io::Result<()> {
        // SAFETY: all-zero is valid for this struct of integers and null pointers.
        let mut wr: ffi::ibv_send_wr = unsafe { mem::zeroed() };
        wr.wr_id = bind.wr_id;
        wr.opcode = ffi::IBV_WR_BIND_MW;
        wr.send_flags = bind.flags;
        wr.__bindgen_anon_2.bind_mw =
            ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw: mw.raw(), rkey, bind_info };
        let mut bad = ptr::null_mut();
        // SAFETY: the handles are live; the chain is one complete work request, and the region is
        // alive during the call.
        check(unsafe { ffi::post_send(self.raw(), &raw mut wr, &raw mut bad) })
    }
}

/// Returns the parameters of the verb.
pub(crate) fn wanted(mr: Option<&Mr>, bind: &Bind) -> ffi::ibv_mw_bind {
    ffi::ibv_mw_bind { wr_id: bind.wr_id, send_flags: bind.flags, bind_info: info(mr, bind) }
}

fn info(mr: Option<&Mr>, bind: &Bind) -> ffi::ibv_mw_bind_info {
    ffi::ibv_mw_bind_info {
        mr: mr.map_or(ptr::null_mut(), Mr::raw),
        addr: bind.addr,
        length: bind.length,
        mw_access_flags: bind.access,
    }
}

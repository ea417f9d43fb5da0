//! Posting to QPs: lists of work requests, and work requests that are built call by call.

use std::io;
use std::ptr;

use super::address::Ah;
use super::qp::Qp;
use super::wr::{self, Refused, segments};
use super::{check, ffi, missing, object};
use crate::model::{Op, RecvWr, SendWr, flags};

impl Qp {
    /// Posts a list of send work requests.
    pub fn post_send(&self, requests: &[SendWr]) -> Result<(), Refused> {
        self.post_send_to(requests, &[])
    }

    /// Posts a list of send work requests with the address handles `paths`. A request without one
    /// has no destination.
    pub fn post_send_to(&self, requests: &[SendWr], paths: &[Option<&Ah>]) -> Result<(), Refused> {
        if self.extended {
            return self.build_and_post(requests, paths);
        }
        let mut sges: Vec<_> = requests.iter().map(|r| segments(&r.sges)).collect();
        let mut chain: Vec<_> =
            requests.iter().zip(&mut sges).map(|(r, s)| wr::send(r, s)).collect();
        for ((wr, request), path) in chain.iter_mut().zip(requests).zip(paths) {
            if let (Some(to), Some(path)) = (&request.to, path) {
                wr.wr.ud = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                    ah: path.raw(),
                    remote_qpn: to.qpn,
                    remote_qkey: to.qkey,
                };
            }
        }
        wr::post(chain, |first, bad| {
            // SAFETY: the handle is live; list and segments are valid during the call.
            unsafe { ffi::post_send(self.raw(), first, bad) }
        })
    }

    /// Posts a list of receive work requests.
    pub fn post_recv(&self, requests: &[RecvWr]) -> Result<(), Refused> {
        wr::post_recv(requests, |first, bad| {
            // SAFETY: the handle is live; list and segments are valid during the call.
            unsafe { ffi::post_recv(self.raw(), first, bad) }
        })
    }

    /// Builds requests and posts them together. If `abort` is true, drops them at the end instead.
    /// If there is an error, none is posted.
    pub fn post_together(&self, requests: &[SendWr], abort: bool) -> io::Result<()> {
        self.build_together(requests, &[], abort)
    }

    /// Builds requests. `paths` are the address handles of datagrams, if they have one.
    fn build_together(
        &self,
        requests: &[SendWr],
        paths: &[Option<&Ah>],
        abort: bool,
    ) -> io::Result<()> {
        let paths = paths.iter().copied().chain(std::iter::repeat(None));
        // SAFETY: the handle is live.
        let qp = object(unsafe { ffi::ibv_qp_to_qp_ex(self.raw()) })?.as_ptr();
        // SAFETY: the handle is live, and no other thread uses it; the memory that the requests
        // name outlives the calls.
        unsafe {
            (*qp).wr_start.ok_or_else(missing)?(qp);
            let built = requests.iter().zip(paths).try_for_each(|(wr, path)| build(qp, wr, path));
            if abort || built.is_err() {
                (*qp).wr_abort.ok_or_else(missing)?(qp);
                return built;
            }
            check((*qp).wr_complete.ok_or_else(missing)?(qp))
        }
    }

    /// Posts as `ibv_post_send` does, with the extended interface: requests before a refused one
    /// are posted.
    fn build_and_post(&self, requests: &[SendWr], paths: &[Option<&Ah>]) -> Result<(), Refused> {
        if self.build_together(requests, paths, false).is_ok() {
            return Ok(());
        }
        for (posted, request) in requests.iter().enumerate() {
            let path = paths.get(posted).copied().flatten();
            self.build_together(std::slice::from_ref(request), &[path], false)
                .map_err(|error| Refused { posted, error })?;
        }
        Ok(())
    }
}

/// Builds one request.
///
/// # Safety
/// `qp` must be live, after `wr_start`.
unsafe fn build(qp: *mut ffi::ibv_qp_ex, request: &SendWr, path: Option<&Ah>) -> io::Result<()> {
    let SendWr { rkey, raddr, imm, compare_add, .. } = *request;
    // SAFETY: as the caller promises.
    unsafe {
        (*qp).wr_id = request.wr_id;
        (*qp).wr_flags = request.flags & !flags::INLINE;
        match request.op {
            Op::Write => (*qp).wr_rdma_write.ok_or_else(missing)?(qp, rkey, raddr),
            Op::WriteImm => (*qp).wr_rdma_write_imm.ok_or_else(missing)?(qp, rkey, raddr, imm),
            Op::Send => (*qp).wr_send.ok_or_else(missing)?(qp),
            Op::SendImm => (*qp).wr_send_imm.ok_or_else(missing)?(qp, imm),
            Op::SendInv => (*qp).wr_send_inv.ok_or_else(missing)?(qp, rkey),
            Op::Read => (*qp).wr_rdma_read.ok_or_else(missing)?(qp, rkey, raddr),
            Op::CmpSwp => {
                let call = (*qp).wr_atomic_cmp_swp.ok_or_else(missing)?;
                call(qp, rkey, raddr, compare_add, request.swap);
            }
            Op::FetchAdd => {
                (*qp).wr_atomic_fetch_add.ok_or_else(missing)?(qp, rkey, raddr, compare_add);
            }
            Op::AtomicWrite => {
                let call = (*qp).wr_atomic_write.ok_or_else(missing)?;
                let word = request.sges.first().ok_or_else(missing)?.addr;
                call(qp, rkey, raddr, std::ptr::with_exposed_provenance(word as usize));
                return set_destination(qp, request, path);
            }
            Op::Flush => {
                let call = (*qp).wr_flush.ok_or_else(missing)?;
                let (placement, level) = (request.swap & 0xf, request.swap >> 4);
                call(qp, rkey, raddr, compare_add as usize, placement as u8, level as u8);
                return set_destination(qp, request, path);
            }
            Op::LocalInv => {
                (*qp).wr_local_inv.ok_or_else(missing)?(qp, rkey);
                return Ok(());
            }
            Op::Tso => {
                let call = (*qp).wr_send_tso.ok_or_else(missing)?;
                let headers = request.headers.as_ptr().cast_mut().cast();
                call(qp, headers, request.headers.len() as u16, request.mss);
            }
        }
        // These two may be in any order. Both orders are used.
        if request.wr_id.is_multiple_of(2) {
            set_destination(qp, request, path)?;
            set_data(qp, request)
        } else {
            set_data(qp, request)?;
            set_destination(qp, request, path)
        }
    }
}

/// Sets the destination of the request that was begun, if it has one.
///
/// # Safety
/// The conditions of [`build`] apply.
unsafe fn set_destination(
    qp: *mut ffi::ibv_qp_ex,
    request: &SendWr,
    path: Option<&Ah>,
) -> io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe {
        if let (Some(to), Some(path)) = (&request.to, path) {
            (*qp).wr_set_ud_addr.ok_or_else(missing)?(qp, path.raw(), to.qpn, to.qkey);
        }
        if let Some(number) = request.srq {
            (*qp).wr_set_xrc_srqn.ok_or_else(missing)?(qp, number);
        }
    }
    Ok(())
}

/// Sets the data of the request that was begun, with the function for one piece or several.
///
/// # Safety
/// The conditions of [`build`] apply.
unsafe fn set_data(qp: *mut ffi::ibv_qp_ex, request: &SendWr) -> io::Result<()> {
    let sges = segments(&request.sges);
    // SAFETY: as the caller promises; the pieces outlive the calls.
    unsafe {
        if request.flags & flags::INLINE == 0 {
            match sges.as_slice() {
                [one] => (*qp).wr_set_sge.ok_or_else(missing)?(qp, one.lkey, one.addr, one.length),
                many => {
                    (*qp).wr_set_sge_list.ok_or_else(missing)?(qp, many.len(), many.as_ptr());
                }
            }
            return Ok(());
        }
        let address = |sge: &ffi::ibv_sge| ptr::with_exposed_provenance_mut(sge.addr as usize);
        match sges.as_slice() {
            [one] => {
                let call = (*qp).wr_set_inline_data.ok_or_else(missing)?;
                call(qp, address(one), one.length as usize);
            }
            many => {
                let buffers: Vec<_> = many
                    .iter()
                    .map(|sge| ffi::ibv_data_buf {
                        addr: address(sge),
                        length: sge.length as usize,
                    })
                    .collect();
                let call = (*qp).wr_set_inline_data_list.ok_or_else(missing)?;
                call(qp, buffers.len(), buffers.as_ptr());
            }
        }
    }
    Ok(())
}

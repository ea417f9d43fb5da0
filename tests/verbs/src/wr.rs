//! Posting work requests: lists are built here, chained, and handed over in one call.

use std::io;
use std::mem;
use std::ptr;

use super::address::Ah;
use super::qp::Qp;
use super::{check, ffi};
use crate::model::{Op, RecvWr, SendWr, Sge};

/// A refused list: how many work requests were posted before the one at fault, and why.
#[derive(Debug)]
pub struct Refused {
    pub posted: usize,
    pub error: io::Error,
}

impl Qp {
    /// Posts a chain of send work requests.
    pub fn post_send(&self, requests: &[SendWr]) -> Result<(), Refused> {
        self.post_send_to(requests, &[])
    }

    /// Posts a chain of send work requests, whose address handles are `paths`; requests without one
    /// do not say where to.
    pub fn post_send_to(&self, requests: &[SendWr], paths: &[Option<&Ah>]) -> Result<(), Refused> {
        if self.extended {
            return self.build_and_post(requests, paths);
        }
        let mut sges: Vec<_> = requests.iter().map(|r| segments(&r.sges)).collect();
        let mut chain: Vec<_> =
            requests.iter().zip(&mut sges).map(|(r, s)| send_wr(r, s)).collect();
        for ((wr, request), path) in chain.iter_mut().zip(requests).zip(paths) {
            if let (Some(to), Some(path)) = (&request.to, path) {
                wr.wr.ud = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                    ah: path.raw(),
                    remote_qpn: to.qpn,
                    remote_qkey: to.qkey,
                };
            }
        }
        let base = chain.as_mut_ptr();
        for i in 1..chain.len() {
            // `wrapping_add` keeps the pointer's provenance over the whole chain.
            chain[i - 1].next = base.wrapping_add(i);
        }
        let mut bad = ptr::null_mut();
        if chain.is_empty() {
            return Ok(());
        }
        // SAFETY: the handle is live; the chain is not empty (checked), ends with a null `next`
        // and, like its segments, outlives the call.
        let done = unsafe { ffi::post_send(self.raw(), base, &raw mut bad) };
        refused(done, base as usize, bad as usize, size_of::<ffi::ibv_send_wr>())
    }

    /// Posts a chain of receive work requests.
    pub fn post_recv(&self, requests: &[RecvWr]) -> Result<(), Refused> {
        post_recvs(requests, |chain, bad| {
            // SAFETY: the handle is live; chain and segments are valid during the call.
            unsafe { ffi::post_recv(self.raw(), chain, bad) }
        })
    }
}

/// Hands a chain of receive work requests to `post`, which is not empty, and ends with a null
/// `next`.
pub(crate) fn post_recvs(
    requests: &[RecvWr],
    post: impl FnOnce(*mut ffi::ibv_recv_wr, *mut *mut ffi::ibv_recv_wr) -> i32,
) -> Result<(), Refused> {
    let mut sges: Vec<_> = requests.iter().map(|r| segments(&r.sges)).collect();
    let mut chain: Vec<_> = requests.iter().zip(&mut sges).map(|(r, s)| recv_wr(r, s)).collect();
    let base = chain.as_mut_ptr();
    for i in 1..chain.len() {
        chain[i - 1].next = base.wrapping_add(i);
    }
    let mut bad = ptr::null_mut();
    if chain.is_empty() {
        return Ok(());
    }
    let done = post(base, &raw mut bad);
    refused(done, base as usize, bad as usize, size_of::<ffi::ibv_recv_wr>())
}

fn refused(done: i32, base: usize, bad: usize, stride: usize) -> Result<(), Refused> {
    check(done).map_err(|error| Refused { posted: bad.saturating_sub(base) / stride, error })
}

pub(crate) fn segments(sges: &[Sge]) -> Vec<ffi::ibv_sge> {
    sges.iter().map(|s| ffi::ibv_sge { addr: s.addr, length: s.length, lkey: s.lkey }).collect()
}

fn send_wr(request: &SendWr, sges: &mut [ffi::ibv_sge]) -> ffi::ibv_send_wr {
    // SAFETY: all-zero is valid for this struct of integers and null pointers.
    let mut wr: ffi::ibv_send_wr = unsafe { mem::zeroed() };
    wr.wr_id = request.wr_id;
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = sges.len() as i32;
    wr.opcode = request.op as u32;
    wr.send_flags = request.flags;
    wr.__bindgen_anon_1.imm_data = request.imm;
    if let Some(number) = request.srq {
        wr.qp_type.xrc.remote_srqn = number;
    }
    match request.op {
        Op::SendInv | Op::LocalInv => wr.__bindgen_anon_1.invalidate_rkey = request.rkey,
        Op::CmpSwp | Op::FetchAdd => {
            wr.wr.atomic = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
                remote_addr: request.raddr,
                compare_add: request.compare_add,
                swap: request.swap,
                rkey: request.rkey,
            };
        }
        _ => {
            wr.wr.rdma = ffi::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
                remote_addr: request.raddr,
                rkey: request.rkey,
            };
        }
    }
    wr
}

fn recv_wr(request: &RecvWr, sges: &mut [ffi::ibv_sge]) -> ffi::ibv_recv_wr {
    ffi::ibv_recv_wr {
        wr_id: request.wr_id,
        next: ptr::null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as i32,
    }
}

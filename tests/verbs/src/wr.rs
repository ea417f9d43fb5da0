//! Lists of work requests in the form of libibverbs.

use std::io;
use std::mem;
use std::ptr;

use super::{check, ffi};
use crate::model::{Op, RecvWr, SendWr, Sge};

/// A refused list: the number of work requests that were posted before the refused one, and the
/// reason.
#[derive(Debug)]
pub struct Refused {
    pub posted: usize,
    pub error: io::Error,
}

/// A work request as an entry of a list.
pub(crate) trait Entry {
    /// Sets the pointer to the next entry.
    fn set_next(&mut self, next: *mut Self);
}

impl Entry for ffi::ibv_send_wr {
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
}

impl Entry for ffi::ibv_recv_wr {
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
}

/// Links the entries, and calls `post` with the first one and a place for the refused one, unless
/// there is no entry. The `next` of the last entry is null.
pub(crate) fn post<T: Entry>(
    mut list: Vec<T>,
    post: impl FnOnce(*mut T, *mut *mut T) -> i32,
) -> Result<(), Refused> {
    if list.is_empty() {
        return Ok(());
    }
    let base = list.as_mut_ptr();
    for i in 1..list.len() {
        // `wrapping_add` keeps the pointer's provenance over the whole list.
        list[i - 1].set_next(base.wrapping_add(i));
    }
    let mut bad = ptr::null_mut();
    check(post(base, &raw mut bad)).map_err(|error| {
        let posted = (bad as usize).saturating_sub(base as usize) / size_of::<T>();
        Refused { posted, error }
    })
}

/// Calls `post` with a list of receive work requests as [`post()`] does.
pub(crate) fn post_recv(
    requests: &[RecvWr],
    with: impl FnOnce(*mut ffi::ibv_recv_wr, *mut *mut ffi::ibv_recv_wr) -> i32,
) -> Result<(), Refused> {
    let mut sges: Vec<_> = requests.iter().map(|r| segments(&r.sges)).collect();
    let entries = requests.iter().zip(&mut sges).map(|(request, sges)| ffi::ibv_recv_wr {
        wr_id: request.wr_id,
        next: ptr::null_mut(),
        sg_list: sges.as_mut_ptr(),
        num_sge: sges.len() as i32,
    });
    post(entries.collect(), with)
}

/// Returns the segments in the form of libibverbs.
pub(crate) fn segments(sges: &[Sge]) -> Vec<ffi::ibv_sge> {
    sges.iter().map(|s| ffi::ibv_sge { addr: s.addr, length: s.length, lkey: s.lkey }).collect()
}

/// Returns the entry for a send work request, without its address handle.
pub(crate) fn send(request: &SendWr, sges: &mut [ffi::ibv_sge]) -> ffi::ibv_send_wr {
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
        Op::Tso => {
            wr.__bindgen_anon_2.tso = ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_2 {
                hdr: request.headers.as_ptr().cast_mut().cast(),
                hdr_sz: request.headers.len() as u16,
                mss: request.mss,
            };
        }
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

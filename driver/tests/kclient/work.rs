// SPDX-License-Identifier: GPL-2.0
//! Work requests as the core takes them.
//!
//! A work request made here points to a request and to a list of segments, and is to be posted
//! while both are there.

use core::{
    mem::{ManuallyDrop, offset_of},
    ptr,
};

use kernel::{ffi::c_int, prelude::*, sync::Arc};

use super::{mapped::Mapped, remote::Remote};
use crate::bindings;

/// Bytes of an address range of a vrnic adapter (`direct.h`), which are in its own memory.
#[derive(Clone, Copy)]
pub struct InRange {
    /// The number of the range.
    pub range: u32,
    /// The offset of the first byte in the range.
    pub within: u32,
    /// The number of bytes.
    pub length: u32,
}

impl InRange {
    /// Returns the segment of them. Its key leads to nothing but ranges.
    pub(super) fn segment(self) -> bindings::ib_sge {
        let Self { range, within, length } = self;
        let first = u64::from(range) * u64::from(bindings::VRNIC_RANGE_LEN);
        let (addr, lkey) = (first + u64::from(within), bindings::VRNIC_WINDOW_KEY);
        bindings::ib_sge { addr, length, lkey }
    }
}

/// The operation of a request of the send queue, without the place of its data.
pub enum Op {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidates this key of the peer.
    SendInv(u32),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA READ.
    Read(Remote),
    /// Atomic compare and swap.
    CompareSwap {
        /// The word.
        remote: Remote,
        /// The value that the word is compared with.
        compare: u64,
        /// The new value of the word if it is equal.
        swap: u64,
    },
    /// Atomic fetch and add.
    FetchAdd {
        /// The word.
        remote: Remote,
        /// The value that is added.
        add: u64,
    },
    /// Invalidates this key of the same side.
    Invalidate(u32),
    /// Ends when this address range of a vrnic adapter has been transferred (`direct.h`).
    Transfer(u32),
    /// Ends when a mark is in a word of the queue pair's doorbell (`direct.h`).
    Await {
        /// The number of the word.
        word: u32,
        /// The mark that the word must contain.
        mark: u32,
        /// Milliseconds until it fails.
        time_limit_ms: u32,
    },
}

impl Op {
    /// Returns the memory that it uses at the peer, with `length` bytes of this side, if that is of
    /// this machine and under a key of all memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is smaller.
    pub(super) fn memory(&self, length: usize) -> Result<Option<Arc<Mapped>>> {
        match self {
            Self::Write(remote) | Self::Read(remote) => remote.memory(length),
            Self::CompareSwap { remote, .. } | Self::FetchAdd { remote, .. } => {
                remote.memory(size_of::<u64>())
            }
            _ => Ok(None),
        }
    }

    fn opcode(&self) -> u32 {
        match self {
            Self::Send => bindings::ib_wr_opcode_IB_WR_SEND,
            Self::SendImm(_) => bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM,
            Self::SendInv(_) => bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV,
            Self::Write(_) => bindings::ib_wr_opcode_IB_WR_RDMA_WRITE,
            Self::Read(_) => bindings::ib_wr_opcode_IB_WR_RDMA_READ,
            Self::CompareSwap { .. } => bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP,
            Self::FetchAdd { .. } => bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD,
            Self::Invalidate(_) => bindings::ib_wr_opcode_IB_WR_LOCAL_INV,
            Self::Transfer(_) => bindings::VRNIC_WR_TRANSFER,
            Self::Await { .. } => bindings::VRNIC_WR_AWAIT,
        }
    }

    /// Returns the word of a request that is not about memory at the peer: in it, immediate data is
    /// big-endian.
    fn word(&self) -> u32 {
        match self {
            Self::SendImm(immediate) => immediate.to_be(),
            Self::SendInv(number) | Self::Invalidate(number) | Self::Transfer(number) => *number,
            _ => 0,
        }
    }

    /// Returns the core's struct of it.
    pub(super) fn to_wr(
        &self,
        cqe: *mut bindings::ib_cqe,
        list: &mut [bindings::ib_sge],
        flags: c_int,
    ) -> Result<Wr> {
        let wr = head(cqe, list, flags, self.opcode(), self.word())?;
        Ok(match self {
            Self::Write(remote) | Self::Read(remote) => {
                let (remote_addr, rkey) = (remote.address(), remote.key());
                Wr::Rdma(bindings::ib_rdma_wr { wr, remote_addr, rkey })
            }
            Self::Await { word, mark, time_limit_ms } => {
                // The same value as `vrnic_await_addr`.
                let remote_addr = u64::from(*word) << 32 | u64::from(*time_limit_ms);
                Wr::Rdma(bindings::ib_rdma_wr { wr, remote_addr, rkey: *mark })
            }
            Self::CompareSwap { remote, compare, swap } => {
                Wr::Atomic(atomic(wr, remote, *compare, *swap))
            }
            Self::FetchAdd { remote, add } => Wr::Atomic(atomic(wr, remote, *add, 0)),
            _ => Wr::Plain(wr),
        })
    }
}

// The core takes the first field of these structs, by which a driver finds the whole.
const _: () = assert!(offset_of!(bindings::ib_rdma_wr, wr) == 0);
const _: () = assert!(offset_of!(bindings::ib_atomic_wr, wr) == 0);
const _: () = assert!(offset_of!(bindings::ib_reg_wr, wr) == 0);

/// A request of the send queue, as long as the core has it by its first field.
pub(super) enum Wr {
    /// A request without further fields.
    Plain(bindings::ib_send_wr),
    /// READ and WRITE.
    Rdma(bindings::ib_rdma_wr),
    /// Atomics.
    Atomic(bindings::ib_atomic_wr),
    /// Fast registration.
    Reg(bindings::ib_reg_wr),
}

impl Wr {
    /// Returns the registration of a region, with `next` posted after it.
    pub(super) fn reg(
        cqe: *mut bindings::ib_cqe,
        mr: *mut bindings::ib_mr,
        key: u32,
        access: u32,
        next: Option<&Wr>,
    ) -> Result<Self> {
        // With one after it, that completes for both.
        let flags = if next.is_some() { 0 } else { SIGNALED };
        let mut wr = head(cqe, &mut [], flags, bindings::ib_wr_opcode_IB_WR_REG_MR, 0)?;
        wr.next = next.map_or(ptr::null_mut(), |next| next.as_raw().cast_mut());
        Ok(Self::Reg(bindings::ib_reg_wr { wr, mr, key, access: access.try_into()? }))
    }

    /// Returns the core's struct, to be posted.
    pub(super) fn as_raw(&self) -> *const bindings::ib_send_wr {
        match self {
            Self::Plain(wr) => wr,
            Self::Rdma(wr) => ptr::from_ref(wr).cast(),
            Self::Atomic(wr) => ptr::from_ref(wr).cast(),
            Self::Reg(wr) => ptr::from_ref(wr).cast(),
        }
    }
}

/// Asks for a completion on success as well.
pub(super) const SIGNALED: c_int = bindings::ib_send_flags_IB_SEND_SIGNALED;
/// Has the data copied when it is posted.
pub(super) const INLINE: c_int = bindings::ib_send_flags_IB_SEND_INLINE;

fn head(
    cqe: *mut bindings::ib_cqe,
    list: &mut [bindings::ib_sge],
    send_flags: c_int,
    opcode: u32,
    word: u32,
) -> Result<bindings::ib_send_wr> {
    Ok(bindings::ib_send_wr {
        next: ptr::null_mut(),
        __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 { wr_cqe: ManuallyDrop::new(cqe) },
        sg_list: list.as_mut_ptr(),
        num_sge: list.len().try_into()?,
        opcode,
        send_flags,
        // Both views of the union are 32 bits.
        ex: bindings::ib_send_wr__bindgen_ty_2 { invalidate_rkey: ManuallyDrop::new(word) },
    })
}

fn atomic(
    wr: bindings::ib_send_wr,
    remote: &Remote,
    compare_add: u64,
    swap: u64,
) -> bindings::ib_atomic_wr {
    bindings::ib_atomic_wr {
        wr,
        remote_addr: remote.address(),
        compare_add,
        swap,
        compare_add_mask: 0,
        swap_mask: 0,
        rkey: remote.key(),
    }
}

/// Returns a request of the receive queue.
pub(super) fn receive(
    cqe: *mut bindings::ib_cqe,
    list: &mut [bindings::ib_sge],
) -> Result<bindings::ib_recv_wr> {
    Ok(bindings::ib_recv_wr {
        next: ptr::null_mut(),
        __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 { wr_cqe: ManuallyDrop::new(cqe) },
        sg_list: list.as_mut_ptr(),
        num_sge: list.len().try_into()?,
    })
}

// SPDX-License-Identifier: GPL-2.0
//! Send and receive queues of kernel clients.

use abi::{
    rq::{self, RqWqe},
    sq::{self, AtomicSeg, Flags, Opcode, SqWqe},
};
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};
use zerocopy::IntoBytes;

use super::Hca;
use crate::rdma::wr::{RecvWr, RecvWrs, Remote, SendOp, SendWr, SendWrs, Sge};
use crate::ring::Ring;

/// How far the adapter has got with the queues of a queue pair: completions carry it.
pub(super) struct Credits {
    sq_tail: Atomic<u32>,
    rq_tail: Atomic<u32>,
}

impl Credits {
    /// All entries are free.
    pub(super) fn new() -> Self {
        Self { sq_tail: Atomic::new(0), rq_tail: Atomic::new(0) }
    }

    /// All entries up to and including `index` are free.
    pub(super) fn free(&self, is_recv: bool, index: u32) {
        let tail = if is_recv { &self.rq_tail } else { &self.sq_tail };
        tail.store(index.wrapping_add(1), Relaxed);
    }

    /// The queues start anew.
    pub(super) fn reset(&self) {
        self.sq_tail.store(0, Relaxed);
        self.rq_tail.store(0, Relaxed);
    }
}

/// A ring that we produce into.
pub(super) struct Producer {
    /// The ring; `None` for a queue that does not exist.
    ring: Option<Ring>,
    /// Producer index.
    pi: u32,
    max_sge: usize,
}

impl Producer {
    /// A producer at the start of its ring.
    pub(super) fn new(ring: Option<Ring>, max_sge: u32) -> Self {
        // CAST: to the wider type.
        Self { ring, pi: 0, max_sge: max_sge as usize }
    }

    /// The ring, if it has room for another entry.
    fn room(&self, tail: u32) -> Result<&Ring> {
        let ring = self.ring.as_ref().ok_or(EINVAL)?;
        if self.pi.wrapping_sub(tail) >= ring.size() {
            return Err(ENOMEM);
        }
        Ok(ring)
    }

    /// Starts anew.
    pub(super) fn reset(&mut self) {
        self.pi = 0;
    }
}

/// Posts send work requests; what was posted before an error is rung.
pub(super) fn send(
    hca: &Hca<'_>,
    slot: u32,
    queue: &mut Producer,
    credits: &Credits,
    wrs: &mut SendWrs<'_>,
) -> Result {
    let first = queue.pi;
    let result = wrs.try_for_each(|wr| {
        let ring = queue.room(credits.sq_tail.load(Relaxed))?;
        let mut wqe = Entry::new(1 << ring.log_stride());
        encode_send(wr, queue.max_sge, &mut wqe)?;
        ring.write(queue.pi, wqe.bytes())?;
        queue.pi = queue.pi.wrapping_add(1);
        Ok(())
    });
    if queue.pi != first {
        hca.nic.doorbells().ring_sq(slot, queue.pi);
    }
    result
}

/// Posts receive work requests; what was posted before an error is the adapter's.
pub(super) fn recv(
    hca: &Hca<'_>,
    slot: u32,
    queue: &mut Producer,
    credits: &Credits,
    wrs: &mut RecvWrs<'_>,
) -> Result {
    let first = queue.pi;
    let result = wrs.try_for_each(|wr| {
        let ring = queue.room(credits.rq_tail.load(Relaxed))?;
        let mut wqe = Entry::new(1 << ring.log_stride());
        encode_recv(wr, queue.max_sge, &mut wqe)?;
        ring.write(queue.pi, wqe.bytes())?;
        queue.pi = queue.pi.wrapping_add(1);
        Ok(())
    });
    if queue.pi != first {
        hca.nic.doorbells().set_rq_pi(slot, queue.pi);
    }
    result
}

/// The longest stride of either queue.
const STRIDE_MAX: usize =
    if sq::STRIDE_MAX > rq::STRIDE_MAX { sq::STRIDE_MAX as usize } else { rq::STRIDE_MAX as usize };

/// A queue entry under construction.
struct Entry {
    data: [u8; STRIDE_MAX],
    filled: usize,
    stride: usize,
}

impl Entry {
    fn new(stride: usize) -> Self {
        Self { data: [0; STRIDE_MAX], filled: 0, stride: stride.min(STRIDE_MAX) }
    }

    /// What is left of the stride.
    fn rest(&mut self) -> &mut [u8] {
        self.data.get_mut(self.filled..self.stride).unwrap_or_default()
    }

    fn push(&mut self, part: &[u8]) -> Result {
        self.rest().get_mut(..part.len()).ok_or(EINVAL)?.copy_from_slice(part);
        self.filled += part.len();
        Ok(())
    }

    fn push_sges(&mut self, sges: &[Sge]) -> Result {
        for sge in sges {
            let sge = sq::Sge {
                addr: sge.addr().into(),
                length: sge.length().into(),
                lkey: sge.lkey().into(),
            };
            self.push(sge.as_bytes())?;
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.data.get(..self.filled).unwrap_or_default()
    }
}

fn encode_recv(wr: &RecvWr, max_sge: usize, wqe: &mut Entry) -> Result {
    let sges = wr.sges();
    if sges.len() > max_sge {
        return Err(EINVAL);
    }
    wqe.push(RqWqe::new(wr.wr_id(), sges.len().try_into()?).as_bytes())?;
    wqe.push_sges(sges)
}

fn encode_send(wr: &SendWr, max_sge: usize, wqe: &mut Entry) -> Result {
    let sges = wr.sges();
    if sges.len() > max_sge {
        return Err(EINVAL);
    }
    let mut head = SqWqe { wr_id: wr.wr_id().into(), ..SqWqe::default() };
    let mut flags = Flags::empty();
    flags.set(Flags::SIGNALED, wr.is_signaled());
    flags.set(Flags::SOLICITED, wr.is_solicited());
    flags.set(Flags::FENCE, wr.is_fenced());
    flags.set(Flags::INLINE, wr.is_inline());
    head.flags = flags.bits();
    let atomic = encode_op(wr.op(), &mut head)?;
    head.count = sges.len().try_into()?;

    wqe.push(head.as_bytes())?;
    if let Some(atomic) = atomic {
        wqe.push(atomic.as_bytes())?;
    }
    if !wr.is_inline() {
        return wqe.push_sges(sges);
    }
    let length = wr.copy_inline(wqe.rest())?;
    wqe.filled += length;
    head.count = length.try_into()?;
    wqe.data.get_mut(..size_of::<SqWqe>()).ok_or(EINVAL)?.copy_from_slice(head.as_bytes());
    Ok(())
}

/// Writes the operation into the header; returns the operands of an atomic.
fn encode_op(op: SendOp, head: &mut SqWqe) -> Result<Option<AtomicSeg>> {
    let (opcode, remote) = match op {
        SendOp::Send => (Opcode::Send, None),
        SendOp::SendImm(imm) => {
            head.imm = imm;
            (Opcode::SendImm, None)
        }
        SendOp::Write(remote) => (Opcode::Write, Some(remote)),
        SendOp::WriteImm(remote, imm) => {
            head.imm = imm;
            (Opcode::WriteImm, Some(remote))
        }
        SendOp::Read(remote) => (Opcode::Read, Some(remote)),
        SendOp::CompareSwap { remote, .. } => (Opcode::CmpSwp, Some(remote)),
        SendOp::FetchAdd { remote, .. } => (Opcode::FetchAdd, Some(remote)),
        SendOp::Other(_) => return Err(EOPNOTSUPP),
    };
    // CAST: the enum's number.
    head.opcode = opcode as u8;
    if let Some(Remote { addr, rkey }) = remote {
        head.raddr = addr.into();
        head.rkey = rkey.into();
    }
    Ok(match op {
        SendOp::CompareSwap { compare, swap, .. } => {
            Some(AtomicSeg { swap_add: swap.into(), compare: compare.into() })
        }
        SendOp::FetchAdd { add, .. } => {
            Some(AtomicSeg { swap_add: add.into(), ..AtomicSeg::default() })
        }
        _ => None,
    })
}

// SPDX-License-Identifier: GPL-2.0
//! Send and receive queues of kernel clients.

use core::mem::offset_of;

use abi::{
    qp::Access,
    rq::{self, RqWqe},
    sq::{
        self, AtomicSeg, CommandFlags, CommandSeg, DatagramSeg, Flags, MemFlags, Opcode, RegMrSeg,
        SqWqe,
    },
};
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        SpinLockIrq,
        atomic::{Atomic, Relaxed},
    },
};
use zerocopy::{IntoBytes, little_endian::U64};

use super::{Verbs, memory::mr::rights};
use crate::bindings;
use crate::hw::ring::{Ring, is_before};
use crate::rdma::memory::mr::Registration;
use crate::rdma::{
    requests::recv_wr::{RecvWr, RecvWrs},
    requests::wr::{Operands, SendWr, SendWrs, Sge},
};

/// A SCSI command of a kernel client.
pub(crate) struct Command {
    /// The client's identifier, which the completion returns.
    pub(crate) wr_id: u64,
    /// The headers of its PDU, and immediate data.
    pub(crate) message: sq::Sge,
    /// The list of the pages of its buffer, and the number of bytes.
    pub(crate) pages: sq::Sge,
    /// The offset of the first byte in the first page.
    pub(crate) offset: u64,
    /// The rights of the target.
    pub(crate) access: Access,
}

/// A work queue of a kernel client.
#[pin_data]
pub(super) struct WorkQueue {
    #[pin]
    producer: SpinLockIrq<Producer>,
    /// Consumer index: completions carry it.
    tail: Atomic<u32>,
}

/// Our side of a ring.
struct Producer {
    /// The ring; `None` for a queue that does not exist.
    ring: Option<Ring>,
    /// Producer index.
    pi: u32,
    limits: Limits,
}

/// What an entry may have.
#[derive(Clone, Copy)]
struct Limits {
    max_sge: usize,
    /// The options of registrations.
    mem_flags: MemFlags,
}

impl WorkQueue {
    /// Creates an empty queue, whose registrations may have these options.
    pub(super) fn new(ring: Option<Ring>, max_sge: u32, mem_flags: MemFlags) -> impl PinInit<Self> {
        // CAST: to the wider type.
        let limits = Limits { max_sge: max_sge as usize, mem_flags };
        let producer = Producer { ring, pi: 0, limits };
        pin_init!(Self {
            producer <- new_spinlock_irq!(producer, "vrnic::WorkQueue"),
            tail: Atomic::new(0),
        })
    }

    /// Records that all entries up to and including `index` are free.
    pub(super) fn free(&self, index: u32) {
        self.tail.store(index.wrapping_add(1), Relaxed);
    }

    /// Resets the indices of the queue.
    pub(super) fn reset(&self) {
        self.producer.lock().pi = 0;
        self.tail.store(0, Relaxed);
    }

    /// As [`Self::free`], of a queue whose entries complete in any order: an index older than one
    /// that was reported before changes nothing.
    pub(super) fn free_shared(&self, index: u32) {
        let tail = index.wrapping_add(1);
        let mut old = self.tail.load(Relaxed);
        while is_before(old, tail) {
            match self.tail.cmpxchg(old, tail, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Records that all entries below `freed` are free, unless `freed` is outside of the range of
    /// outstanding entries.
    fn reclaim(&self, pi: u32, freed: Option<u32>) {
        let tail = self.tail.load(Relaxed);
        if let Some(freed) = freed.filter(|freed| freed.wrapping_sub(tail) <= pi.wrapping_sub(tail))
        {
            self.free_shared(freed.wrapping_sub(1));
        }
    }

    /// Writes `wrs`, encoded by `encode`, up to the first that is refused. Then calls `ring_bell`
    /// with the new producer index, if there is one. If the queue seems full, `freed` returns the
    /// newest index of the first entry that is not free.
    fn post<W>(
        &self,
        wrs: &mut impl Iterator<Item = W>,
        encode: impl Fn(W, Limits, &mut Entry) -> Result,
        freed: impl Fn() -> Option<u32>,
        ring_bell: impl FnOnce(u32),
    ) -> Result {
        let mut producer = self.producer.lock();
        let Producer { ring, pi, limits } = &mut *producer;
        let ring = ring.as_ref().ok_or(EINVAL)?;
        let first = *pi;
        let result = wrs.try_for_each(|wr| {
            if pi.wrapping_sub(self.tail.load(Relaxed)) >= ring.size() {
                self.reclaim(*pi, freed());
                if pi.wrapping_sub(self.tail.load(Relaxed)) >= ring.size() {
                    return Err(ENOMEM);
                }
            }
            let mut wqe = Entry::new(1 << ring.shape().log_stride);
            encode(wr, *limits, &mut wqe)?;
            ring.write(*pi, wqe.bytes())?;
            *pi = pi.wrapping_add(1);
            Ok(())
        });
        if *pi != first {
            ring_bell(*pi);
        }
        result
    }

    /// Posts send work requests; what was posted before an error is rung, by `ring_bell`.
    pub(super) fn send(&self, wrs: &mut SendWrs<'_, Verbs>, ring_bell: impl FnOnce(u32)) -> Result {
        self.post(wrs, encode_send, || None, ring_bell)
    }

    /// Posts a SCSI command, and rings by `ring_bell`. Returns the index of its entry.
    pub(super) fn command(&self, command: &Command, ring_bell: impl FnOnce(u32)) -> Result<u32> {
        let mut index = 0;
        let ring_bell = |pi: u32| {
            index = pi.wrapping_sub(1);
            ring_bell(pi);
        };
        let one = &mut core::iter::once(command);
        self.post(one, |command, _, wqe| encode_command(command, wqe), || None, ring_bell)?;
        Ok(index)
    }

    /// Posts receive work requests; what was posted before an error is the adapter's, by
    /// `ring_bell`.
    pub(super) fn recv(&self, wrs: &mut RecvWrs<'_>, ring_bell: impl FnOnce(u32)) -> Result {
        self.post(wrs, encode_recv, || None, ring_bell)
    }

    /// Like [`Self::recv`], for a shared queue. By `freed` the adapter may report free entries that
    /// no completion has reported.
    pub(super) fn recv_shared(
        &self,
        wrs: &mut RecvWrs<'_>,
        freed: impl Fn() -> Option<u32>,
        ring_bell: impl FnOnce(u32),
    ) -> Result {
        self.post(wrs, encode_recv, freed, ring_bell)
    }

    /// Returns whether entries are outstanding.
    pub(super) fn has_undone(&self) -> bool {
        let producer = self.producer.lock();
        producer.pi != self.tail.load(Relaxed)
    }

    /// Takes the oldest outstanding entry back, for an adapter that does nothing any more; returns
    /// its `wr_id`.
    pub(super) fn take_back(&self) -> Option<u64> {
        let producer = self.producer.lock();
        let tail = self.tail.load(Relaxed);
        let ring = producer.ring.as_ref().filter(|_| producer.pi != tail)?;
        self.free(tail);
        // Both kinds of entries begin with it.
        const { assert!(offset_of!(SqWqe, wr_id) == 0 && offset_of!(RqWqe, wr_id) == 0) };
        Some(ring.read::<U64>(tail).ok()?.get())
    }
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

    /// Returns the rest of the stride.
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

fn encode_recv(wr: &RecvWr, Limits { max_sge, .. }: Limits, wqe: &mut Entry) -> Result {
    let sges = wr.sges();
    if sges.len() > max_sge {
        return Err(EINVAL);
    }
    wqe.push(RqWqe::new(wr.wr_id(), sges.len().try_into()?).as_bytes())?;
    wqe.push_sges(sges)
}

fn encode_send(wr: SendWr<'_, Verbs>, limits: Limits, wqe: &mut Entry) -> Result {
    let sges = wr.sges();
    if sges.len() > limits.max_sge || !wr.has_known_flags() {
        return Err(EINVAL);
    }
    let mut head = SqWqe { wr_id: wr.wr_id().into(), ..SqWqe::default() };
    let mut flags = Flags::empty();
    flags.set(Flags::SIGNALED, wr.is_signaled());
    flags.set(Flags::SOLICITED, wr.is_solicited());
    flags.set(Flags::FENCE, wr.is_fenced());
    flags.set(Flags::INLINE, wr.is_inline());
    head.flags = flags.bits();
    let segment = encode_op(&wr, limits.mem_flags, &mut head)?;
    head.count = sges.len().try_into()?;

    wqe.push(head.as_bytes())?;
    if let Some(to) = wr.destination()? {
        let to = DatagramSeg { av: to.ah.av, dest_qpn: to.qpn.into(), qkey: to.qkey.into() };
        wqe.push(to.as_bytes())?;
    }
    match segment {
        Segment::None => {}
        Segment::Atomic(segment) => wqe.push(segment.as_bytes())?,
        Segment::Region(segment) => wqe.push(segment.as_bytes())?,
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

fn encode_command(command: &Command, wqe: &mut Entry) -> Result {
    let head = SqWqe {
        wr_id: command.wr_id.into(),
        // CAST: the enum's number.
        opcode: Opcode::SendCmd as u8,
        flags: Flags::SIGNALED.bits(),
        count: 1.into(),
        raddr: command.offset.into(),
        ..SqWqe::default()
    };
    let segment = CommandSeg {
        access: command.access.bits().into(),
        data_count: 1.into(),
        flags: CommandFlags::PAGES.bits(),
        ..CommandSeg::default()
    };
    wqe.push(head.as_bytes())?;
    wqe.push(segment.as_bytes())?;
    wqe.push(command.pages.as_bytes())?;
    wqe.push(command.message.as_bytes())
}

/// The segment between header and data.
enum Segment {
    None,
    Atomic(AtomicSeg),
    Region(RegMrSeg),
}

/// Writes the operation into the header; returns the segment of its operands.
fn encode_op(wr: &SendWr<'_, Verbs>, mem_flags: MemFlags, head: &mut SqWqe) -> Result<Segment> {
    let opcode = Opcode::from_wr_opcode(wr.opcode()).ok_or(EOPNOTSUPP)?;
    // CAST: the enum's number.
    head.opcode = opcode as u8;
    head.imm = wr.imm().unwrap_or_default();
    let mut segment = Segment::None;
    let (addr, rkey) = match wr.operands().ok_or(EOPNOTSUPP)? {
        Operands::None => (0, 0),
        Operands::Key(key) => (0, key),
        Operands::Remote(remote) => (remote.addr, remote.rkey),
        Operands::Atomic { remote, compare, swap_or_add } => {
            let (swap_add, compare) = (swap_or_add.into(), compare.into());
            segment = Segment::Atomic(AtomicSeg { swap_add, compare });
            (remote.addr, remote.rkey)
        }
        Operands::Registration(registration) => {
            segment = Segment::Region(encode_registration(&registration, mem_flags)?);
            (registration.iova, registration.key)
        }
    };
    (head.raddr, head.rkey) = (addr.into(), rkey.into());
    Ok(segment)
}

/// The options of registrations, as `direct.h` has them.
const OPTIONS: [(u32, MemFlags); 3] = [
    (bindings::VRNIC_ACCESS_ONE_TOUCH, MemFlags::ONE_TOUCH),
    (bindings::VRNIC_ACCESS_SAME_KEY, MemFlags::SAME_KEY),
    (bindings::VRNIC_ACCESS_NO_LOCAL_READ, MemFlags::NO_LOCAL_READ),
];

/// Returns the segment of a fast registration, which may have options of `allowed`.
fn encode_registration(registration: &Registration, allowed: MemFlags) -> Result<RegMrSeg> {
    let (mut left, mut flags) = (registration.access, MemFlags::empty());
    for (bit, flag) in OPTIONS {
        flags.set(flag, left & bit != 0);
        left &= !bit;
    }
    if !allowed.contains(flags) {
        return Err(EOPNOTSUPP);
    }
    let mut access = rights(left)?;
    // Clients of the kernel name only the rights of peers.
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
        access |= Access::LOCAL_WRITE;
    }
    Ok(RegMrSeg {
        length: registration.length.into(),
        table: registration.table.into(),
        access: access.bits().into(),
        page_count: registration.page_count.into(),
        // CAST: below 32.
        page_shift: registration.page_size.trailing_zeros() as u8,
        flags: flags.bits(),
        ..RegMrSeg::default()
    })
}

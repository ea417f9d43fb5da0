// SPDX-License-Identifier: GPL-2.0
//! Send work requests of kernel clients: linked lists of C structs.

use core::{marker::PhantomData, mem::offset_of, slice};

use kernel::prelude::*;

use crate::bindings;
use crate::rdma::{
    ah::Ah, driver::Driver, memory::mr::Registration, object::Wrapper, qp_attr::QpType,
};

// The core passes the first field of these structs, by which the whole is found.
const _: () = assert!(offset_of!(bindings::ib_ud_wr, wr) == 0);
const _: () = assert!(offset_of!(bindings::ib_rdma_wr, wr) == 0);
const _: () = assert!(offset_of!(bindings::ib_atomic_wr, wr) == 0);
const _: () = assert!(offset_of!(bindings::ib_reg_wr, wr) == 0);

/// A scatter/gather entry.
///
/// C: `struct ib_sge`.
///
/// # Invariants
///
/// An entry of a valid request. If that is an inline one, then `addr` is the address of `length`
/// bytes of the client's memory, which nothing writes to while the request is posted.
#[repr(transparent)]
pub(crate) struct Sge(bindings::ib_sge);

impl Sge {
    /// Returns the DMA address in the region.
    pub(crate) fn addr(&self) -> u64 {
        self.0.addr
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> u32 {
        self.0.length
    }

    /// Returns the local key.
    pub(crate) fn lkey(&self) -> u32 {
        self.0.lkey
    }
}

/// The target of a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// Remote address.
    pub(crate) addr: u64,
    /// Remote key.
    pub(crate) rkey: u32,
}

/// The part of a send work request that depends on its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operands {
    /// A SEND has none.
    None,
    /// The memory of the peer that a WRITE or READ names. Of an operation of the driver's own, what
    /// it has in this place.
    Remote(Remote),
    /// The operands of an atomic.
    Atomic {
        /// The word.
        remote: Remote,
        /// The value that the word is compared with.
        compare: u64,
        /// The new value of the word, or what is added to it.
        swap_or_add: u64,
    },
    /// The key that is invalidated: the peer's, or of LOCAL_INV an own one. Of an operation of the
    /// driver's own, what it has in this place.
    Key(u32),
    /// A fast registration.
    Registration(Registration),
}

/// A send work request.
///
/// C: `struct ib_send_wr`.
///
/// # Invariants
///
/// `raw` is a valid request for a queue pair of type `kind` of driver `T`: the struct that its
/// opcode and that type call for, of which it is the first field.
pub(crate) struct SendWr<'a, T: Driver> {
    raw: &'a bindings::ib_send_wr,
    kind: QpType,
    _driver: PhantomData<T>,
}

/// The destination of a datagram.
pub(crate) struct Destination<'a, T: Driver> {
    /// The path.
    pub(crate) ah: &'a Ah<T>,
    /// The queue pair there.
    pub(crate) qpn: u32,
    /// The queue key of that queue pair.
    pub(crate) qkey: u32,
}

impl<'a, T: Driver> SendWr<'a, T> {
    /// Returns the client's identifier, which the completion returns.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: both views of the union are 64 bits.
        unsafe { *self.raw.__bindgen_anon_1.wr_id }
    }

    /// Returns the segments; addresses of kernel memory if [`Self::is_inline`].
    pub(crate) fn sges(&self) -> &[Sge] {
        // SAFETY: by the type's invariants there are `num_sge` entries.
        unsafe { sges(self.raw.sg_list, self.raw.num_sge) }
    }

    fn has_flag(&self, flag: bindings::ib_send_flags) -> bool {
        self.raw.send_flags & flag != 0
    }

    /// Returns whether it has no flags except the ones that the methods below return.
    pub(crate) fn has_known_flags(&self) -> bool {
        let known = bindings::ib_send_flags_IB_SEND_SIGNALED
            | bindings::ib_send_flags_IB_SEND_SOLICITED
            | bindings::ib_send_flags_IB_SEND_FENCE
            | bindings::ib_send_flags_IB_SEND_INLINE;
        self.raw.send_flags & !known == 0
    }

    /// Wants a completion even on success.
    pub(crate) fn is_signaled(&self) -> bool {
        self.has_flag(bindings::ib_send_flags_IB_SEND_SIGNALED)
    }

    /// Wants the peer's completion to be solicited.
    pub(crate) fn is_solicited(&self) -> bool {
        self.has_flag(bindings::ib_send_flags_IB_SEND_SOLICITED)
    }

    /// Waits for earlier READs and atomics.
    pub(crate) fn is_fenced(&self) -> bool {
        self.has_flag(bindings::ib_send_flags_IB_SEND_FENCE)
    }

    /// Returns whether the data is to be copied into the work queue.
    pub(crate) fn is_inline(&self) -> bool {
        self.has_flag(bindings::ib_send_flags_IB_SEND_INLINE)
    }

    /// Copies the data of an inline request; returns its length.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not fit or the request is not inline.
    pub(crate) fn copy_inline(&self, out: &mut [u8]) -> Result<usize> {
        if !self.is_inline() {
            return Err(EINVAL);
        }
        let mut filled = 0;
        for sge in self.sges() {
            let length = sge.length() as usize;
            let room = out.get_mut(filled..).and_then(|rest| rest.get_mut(..length));
            let room = room.ok_or(EINVAL)?;
            // SAFETY: the request is an inline one. So by the invariants of `Sge` these are bytes
            // of the client's memory that do not change.
            let data = unsafe { slice::from_raw_parts(sge.addr() as *const u8, length) };
            room.copy_from_slice(data);
            filled += length;
        }
        Ok(filled)
    }

    /// Returns its destination, if it was posted to a datagram queue pair.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it names no address handle.
    pub(crate) fn destination(&self) -> Result<Option<Destination<'a, T>>> {
        if !self.kind.is_datagram() {
            return Ok(None);
        }
        let wr = core::ptr::from_ref(self.raw).cast::<bindings::ib_ud_wr>();
        // SAFETY: by the type's invariants a request for a datagram queue pair is the first field
        // of an `ib_ud_wr`.
        let wr: &'a bindings::ib_ud_wr = unsafe { &*wr };
        if wr.ah.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: an address handle of the queue pair's device, which the client keeps until the
        // request has been posted.
        let ah = unsafe { Ah::<T>::from_raw(wr.ah) };
        Ok(Some(Destination { ah, qpn: wr.remote_qpn, qkey: wr.remote_qkey }))
    }

    /// Returns the number of its operation.
    ///
    /// C: `enum ib_wr_opcode`.
    pub(crate) fn opcode(&self) -> u32 {
        self.raw.opcode
    }

    /// Returns immediate data, if the operation has some.
    pub(crate) fn imm(&self) -> Option<[u8; 4]> {
        let has_imm = matches!(
            self.raw.opcode,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM
                | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
        );
        // SAFETY: for these opcodes this view of the union is valid. Immediate data is big-endian:
        // these bytes in memory.
        has_imm.then(|| unsafe { self.raw.ex.imm_data }.to_ne_bytes())
    }

    /// Returns the operands; `None` of an operation that this abstraction does not know.
    pub(crate) fn operands(&self) -> Option<Operands> {
        Some(match self.raw.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND | bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => {
                Operands::None
            }
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_RDMA_READ
            | bindings::ib_wr_opcode_IB_WR_ATOMIC_WRITE
            // A READ with invalidation ends the key of its only segment. `invalidate_rkey` is not
            // set in all of them.
            | bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV => Operands::Remote(self.remote()),
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => {
                let wr = self.atomic();
                let remote = Remote { addr: wr.remote_addr, rkey: wr.rkey };
                Operands::Atomic { remote, compare: wr.compare_add, swap_or_add: wr.swap }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                let wr = self.atomic();
                let remote = Remote { addr: wr.remote_addr, rkey: wr.rkey };
                Operands::Atomic { remote, compare: 0, swap_or_add: wr.compare_add }
            }
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV
            | bindings::ib_wr_opcode_IB_WR_LOCAL_INV => Operands::Key(self.invalidated()),
            bindings::ib_wr_opcode_IB_WR_REG_MR => Operands::Registration(self.registration()?),
            number => {
                let own = T::OWN_WRS.iter().find(|own| own.opcode() == number)?;
                match own.is_rdma() {
                    true => Operands::Remote(self.remote()),
                    false => Operands::Key(self.invalidated()),
                }
            }
        })
    }

    /// Returns the key that a request invalidates, or what else it has in this place.
    fn invalidated(&self) -> u32 {
        // SAFETY: all views of the union are numbers of 32 bits.
        unsafe { *self.raw.ex.invalidate_rkey }
    }

    /// Returns the registration of a request; only to be called for fast registration.
    fn registration(&self) -> Option<Registration> {
        let wr = core::ptr::from_ref(self.raw).cast::<bindings::ib_reg_wr>();
        // SAFETY: `operands` calls this for an opcode whose request is the first field of an
        // `ib_reg_wr` by the type's invariants.
        let wr = unsafe { &*wr };
        // SAFETY: by the type's invariants the request is valid: it names a region of the queue
        // pair's device, which `Mr::allocate` has made.
        unsafe { Registration::from_raw(wr) }
    }

    /// Returns the remote side of an RDMA request; only to be called for those.
    fn remote(&self) -> Remote {
        let wr = core::ptr::from_ref(self.raw).cast::<bindings::ib_rdma_wr>();
        // SAFETY: `operands` calls this for opcodes whose request is the first field of an
        // `ib_rdma_wr`. The type's invariants say so for the opcodes of verbs, and the invariants
        // of `OwnWr` for an opcode of the driver's own.
        let wr = unsafe { &*wr };
        Remote { addr: wr.remote_addr, rkey: wr.rkey }
    }

    /// Returns the whole of an atomic request; only to be called for those.
    fn atomic(&self) -> &bindings::ib_atomic_wr {
        // SAFETY: `operands` calls this for opcodes whose request is the first field of an
        // `ib_atomic_wr` by the type's invariants.
        unsafe { &*core::ptr::from_ref(self.raw).cast::<bindings::ib_atomic_wr>() }
    }
}

/// Returns the entries of a request.
///
/// # Safety
///
/// If `count` is above zero, `list` must point to that many entries of a valid request, which live
/// for `'a`.
pub(in crate::rdma) unsafe fn sges<'a>(list: *const bindings::ib_sge, count: i32) -> &'a [Sge] {
    match usize::try_from(count) {
        // SAFETY: the caller promises that there are this many entries; `Sge` is transparent.
        // INVARIANT: the caller promises that they are entries of a valid request.
        Ok(count) if count > 0 => unsafe { slice::from_raw_parts(list.cast(), count) },
        _ => &[],
    }
}

/// Send work requests. The one that was taken last is the one that an error is about.
///
/// # Invariants
///
/// `next` is null or an element of a list of requests for a queue pair of type `kind` of driver
/// `T`, which is valid for `'a`.
pub(crate) struct SendWrs<'a, T: Driver> {
    next: *const bindings::ib_send_wr,
    last: *const bindings::ib_send_wr,
    kind: QpType,
    _call: PhantomData<(&'a bindings::ib_send_wr, T)>,
}

impl<T: Driver> SendWrs<'_, T> {
    /// # Safety
    ///
    /// `first` must be null or the head of a list that stays valid for `'a`, for a queue pair of
    /// type `kind` of driver `T`.
    pub(in crate::rdma) unsafe fn new(first: *const bindings::ib_send_wr, kind: QpType) -> Self {
        // INVARIANT: the caller passes null or the head of a list of valid requests.
        Self { next: first, last: first, kind, _call: PhantomData }
    }

    /// Returns the request that was taken last.
    pub(in crate::rdma) fn taken(&self) -> *const bindings::ib_send_wr {
        self.last
    }
}

impl<'a, T: Driver> Iterator for SendWrs<'a, T> {
    type Item = SendWr<'a, T>;

    fn next(&mut self) -> Option<SendWr<'a, T>> {
        if self.next.is_null() {
            return None;
        }
        self.last = self.next;
        // SAFETY: by the type's invariants this is an element of the list.
        let raw = unsafe { &*self.last };
        // INVARIANT: null, or the next element of the same list; all are for the same queue pair.
        self.next = raw.next;
        // INVARIANT: by the type's invariants it is a valid request for a queue pair of this type.
        Some(SendWr { raw, kind: self.kind, _driver: PhantomData })
    }
}

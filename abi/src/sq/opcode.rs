// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The operations of a send queue, and their properties.

use crate::admin::Counter;
use crate::cq;
use crate::qp::Type;

/// First number in verbs of the operations that only kernel clients have (`enum ib_wr_opcode`).
pub const KERNEL_WR_OPCODES: u32 = 0x20;
/// The number of a TRANSFER there (`IB_WR_RESERVED1`).
pub const KERNEL_WR_TRANSFER: u32 = 0xf0;
/// The number of an AWAIT there (`IB_WR_RESERVED2`), the largest of all.
pub const KERNEL_WR_AWAIT: u32 = 0xf1;

wire_enum! {
    /// Operations of a send queue.
    pub enum Opcode: u8 {
        /// SEND.
        Send = 1,
        /// SEND with immediate data.
        SendImm = 2,
        /// RDMA WRITE.
        Write = 3,
        /// RDMA WRITE with immediate data.
        WriteImm = 4,
        /// RDMA READ.
        Read = 5,
        /// Atomic compare and swap of 8 bytes.
        CmpSwp = 6,
        /// Atomic fetch and add of 8 bytes.
        FetchAdd = 7,
        /// SEND that invalidates the peer's key `rkey` when it has arrived.
        SendInv = 8,
        /// Invalidates the local key `rkey`: a region of ALLOC_MR, or a window of type 2.
        LocalInv = 9,
        /// Makes the invalid region of ALLOC_MR with the index of `rkey` valid, with `rkey` as its
        /// key.
        RegMr = 10,
        /// Binds the window with the index of `rkey`, with `rkey` as its key. A length of zero
        /// unbinds it.
        BindMw = 11,
        /// SEND of a command whose data the peer can access until it responds: see
        /// [`super::CommandSeg`].
        SendCmd = 12,
        /// READ of iWARP that invalidates the key of its [`super::Sge`], as LOCAL_INV does, before
        /// it completes.
        ReadInv = 13,
        /// Completes when the address range `rkey` has been transferred; see [`crate::direct`].
        Transfer = 14,
        /// Completes when a mark is in its word of the QP's doorbell; see [`crate::direct::Await`].
        Await = 15,
        /// Sends a TCP segment that is too large for a frame in several frames; see
        /// [`super::SegmentSeg`].
        Segment = 16,
        /// Makes earlier WRITEs visible in memory of the peer (IBTA annex A19); see
        /// [`super::FlushFlags`].
        Flush = 17,
        /// WRITE of exactly 8 bytes to an aligned word, which are stored at once (annex A19).
        AtomicWrite = 18,
    }
}

/// The effect of a request on the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sends a message, which consumes a receive.
    Send,
    /// Writes to the peer's memory.
    Write,
    /// Reads the peer's memory.
    Read,
    /// Changes 8 bytes of the peer's memory and returns their old value.
    Atomic,
    /// Stores 8 bytes in the peer's memory at once.
    AtomicWrite,
    /// Makes earlier writes to the peer's memory visible.
    Flush,
    /// No effect: it concerns a key or an address range of the sender's adapter.
    Local,
}

/// The properties of the requests of an [`Opcode`], and of their results.
#[derive(Clone, Copy, Debug)]
pub struct OpcodeInfo {
    /// Their effect on the peer.
    pub class: Class,
    /// Requests of this opcode carry immediate data.
    pub immediate: bool,
    /// Their message invalidates the key [`super::SqWqe::rkey`] of the peer.
    pub invalidate: bool,
    /// Requests of this opcode invalidate the key of their only [`super::Sge`] when the data has
    /// arrived.
    pub invalidate_sink: bool,
    /// Requests of this opcode create a region for the peer first ([`super::CommandSeg`]).
    pub command: bool,
    /// The QP types that have the operation. RC has all.
    pub types: &'static [Type],
    /// Their number in verbs (`enum ib_uverbs_wr_opcode`, and from [`KERNEL_WR_OPCODES`] on `enum
    /// ib_wr_opcode`), or `None` if only direct verbs have them.
    pub wr_opcode: Option<u32>,
    /// The opcode of their completions.
    pub completion: cq::Opcode,
    /// The counter of requests that were started.
    pub begun: Counter,
    /// The peer's counter of requests that were executed, or `None` for [`Class::Local`].
    pub executed: Option<Counter>,
}

impl OpcodeInfo {
    const SEND: Self = Self {
        class: Class::Send,
        immediate: false,
        invalidate: false,
        invalidate_sink: false,
        command: false,
        types: &[Type::Gsi, Type::Rc, Type::Uc, Type::Ud, Type::RawPacket, Type::XrcIni, Type::Toe],
        wr_opcode: Some(2),
        completion: cq::Opcode::Send,
        begun: Counter::TxSendReq,
        executed: Some(Counter::RxSendReq),
    };
    const WRITE: Self = Self {
        class: Class::Write,
        types: &[Type::Rc, Type::Uc, Type::XrcIni],
        wr_opcode: Some(0),
        completion: cq::Opcode::Write,
        begun: Counter::TxWriteReq,
        executed: Some(Counter::RxWriteRequests),
        ..Self::SEND
    };
    const READ: Self = Self {
        class: Class::Read,
        types: &[Type::Rc, Type::XrcIni],
        wr_opcode: Some(4),
        completion: cq::Opcode::Read,
        begun: Counter::TxReadReq,
        executed: Some(Counter::RxReadRequests),
        ..Self::SEND
    };
    const ATOMIC: Self = Self {
        class: Class::Atomic,
        begun: Counter::TxAtomicReq,
        executed: Some(Counter::RxAtomicRequests),
        ..Self::READ
    };
    const ATOMIC_WRITE: Self = Self {
        class: Class::AtomicWrite,
        types: Self::READ.types,
        wr_opcode: Some(15),
        completion: cq::Opcode::AtomicWrite,
        ..Self::WRITE
    };
    /// A FLUSH is counted as a READ, because its packets are like the packets of an empty READ.
    const FLUSH: Self = Self {
        class: Class::Flush,
        wr_opcode: Some(14),
        completion: cq::Opcode::Flush,
        ..Self::READ
    };
    const LOCAL: Self =
        Self { class: Class::Local, types: &[Type::Rc, Type::Uc], executed: None, ..Self::SEND };

    /// Returns whether a QP of this type has the operation (IBTA volume 1, 9.4; annex A14).
    #[must_use]
    pub const fn is_offered(&self, kind: Type) -> bool {
        let mut at = 0;
        while at < self.types.len() {
            if self.types[at] as u8 == kind as u8 {
                return true;
            }
            at += 1;
        }
        false
    }

    /// Returns whether the data may be in the WQE itself.
    #[inline]
    #[must_use]
    pub const fn may_be_inline(&self) -> bool {
        matches!(self.class, Class::Send | Class::Write | Class::AtomicWrite)
    }

    /// Returns whether the peer returns data.
    #[inline]
    #[must_use]
    pub const fn has_response(&self) -> bool {
        matches!(self.class, Class::Read | Class::Atomic)
    }

    /// Returns whether the peer answers the request by itself, with data or without. Such requests
    /// count among the outstanding READs and atomics of a QP.
    #[inline]
    #[must_use]
    pub const fn has_answer(&self) -> bool {
        self.has_response() || matches!(self.class, Class::AtomicWrite | Class::Flush)
    }

    /// Returns whether the request concerns a local key, in addition to or instead of an effect on
    /// the peer.
    #[inline]
    #[must_use]
    pub const fn is_about_own_key(&self) -> bool {
        self.command || self.invalidate_sink || matches!(self.class, Class::Local)
    }
}

impl Opcode {
    /// The operations by their number in verbs.
    const BY_WR_OPCODE: [Option<Self>; KERNEL_WR_AWAIT as usize + 1] = {
        let (mut table, mut raw) = ([None; KERNEL_WR_AWAIT as usize + 1], 0);
        while raw < u8::MAX {
            if let Some(opcode) = Self::from_raw(raw) {
                if let Some(number) = opcode.info().wr_opcode {
                    assert!(table[number as usize].is_none(), "two operations have one number");
                    table[number as usize] = Some(opcode);
                }
            }
            raw += 1;
        }
        table
    };

    /// Returns the operation with this number in verbs ([`OpcodeInfo::wr_opcode`]).
    #[must_use]
    pub const fn from_wr_opcode(number: u32) -> Option<Self> {
        if number > KERNEL_WR_AWAIT { None } else { Self::BY_WR_OPCODE[number as usize] }
    }

    /// The properties of the operations by their number. A number without an operation has the
    /// properties of [`Self::Send`].
    const INFOS: &'static [OpcodeInfo; 256] = &{
        let (mut table, mut raw) = ([OpcodeInfo::SEND; 256], 0);
        while raw < u8::MAX {
            if let Some(opcode) = Self::from_raw(raw) {
                table[raw as usize] = opcode.describe();
            }
            raw += 1;
        }
        table
    };

    /// Returns the properties of the requests of this opcode, and of their results.
    #[inline(always)]
    #[must_use]
    pub const fn info(self) -> &'static OpcodeInfo {
        &Self::INFOS[self as u8 as usize]
    }

    const fn describe(self) -> OpcodeInfo {
        use OpcodeInfo as Info;
        match self {
            Self::Send => Info::SEND,
            Self::SendImm => Info {
                immediate: true,
                types: &[Type::Gsi, Type::Rc, Type::Uc, Type::Ud, Type::XrcIni],
                wr_opcode: Some(3),
                ..Info::SEND
            },
            Self::Write => Info::WRITE,
            Self::WriteImm => Info { immediate: true, wr_opcode: Some(1), ..Info::WRITE },
            Self::Read => Info::READ,
            Self::ReadInv => Info {
                invalidate_sink: true,
                types: &[Type::Rc],
                wr_opcode: Some(11),
                ..Info::READ
            },
            Self::CmpSwp => {
                Info { wr_opcode: Some(5), completion: cq::Opcode::CmpSwp, ..Info::ATOMIC }
            }
            Self::FetchAdd => {
                Info { wr_opcode: Some(6), completion: cq::Opcode::FetchAdd, ..Info::ATOMIC }
            }
            Self::Flush => Info::FLUSH,
            Self::AtomicWrite => Info::ATOMIC_WRITE,
            Self::SendInv => {
                Info { invalidate: true, types: &[Type::Rc], wr_opcode: Some(9), ..Info::SEND }
            }
            Self::LocalInv => Info {
                wr_opcode: Some(7),
                completion: cq::Opcode::LocalInv,
                begun: Counter::LocalInvWqes,
                ..Info::LOCAL
            },
            Self::RegMr => Info {
                wr_opcode: Some(KERNEL_WR_OPCODES),
                completion: cq::Opcode::RegMr,
                begun: Counter::RegWqes,
                ..Info::LOCAL
            },
            Self::BindMw => Info {
                wr_opcode: Some(8),
                completion: cq::Opcode::BindMw,
                begun: Counter::BindWqes,
                ..Info::LOCAL
            },
            Self::SendCmd => Info {
                command: true,
                types: &[Type::Rc, Type::Toe],
                wr_opcode: None,
                completion: cq::Opcode::SendCmd,
                begun: Counter::CommandWqes,
                ..Info::SEND
            },
            Self::Transfer => Info {
                wr_opcode: Some(KERNEL_WR_TRANSFER),
                completion: cq::Opcode::Transfer,
                begun: Counter::TransferWqes,
                ..Info::LOCAL
            },
            Self::Segment => Info {
                types: &[Type::RawPacket],
                wr_opcode: Some(10),
                completion: cq::Opcode::Segment,
                ..Info::SEND
            },
            Self::Await => Info { wr_opcode: Some(KERNEL_WR_AWAIT), ..Self::Transfer.describe() },
        }
    }
}

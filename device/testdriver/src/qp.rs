//! A queue pair, as its user sees it.

use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use vrnic_abi::admin::{CreateQp, NO_QUEUE, QpFlags};
use vrnic_abi::qp::{Access, AddressVector, Attr, AttrMask, State, Type};
use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{AtomicSeg, Flags, HEADER_LEN, Opcode, STAMP_OFFSET, Sge, SqWqe};
use vrnic_abi::{SlotIndex, stamp};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::guest::Guest;

/// The memory of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendRing {
    /// At a guest address.
    Guest(u64),
    /// At an offset in BAR2.
    Device(usize),
}

/// Parameters of a QP.
#[derive(Clone, Copy, Debug)]
pub struct QpSetup {
    /// The PD.
    pub pdn: u32,
    /// CQ of the send queue.
    pub send_cqn: u32,
    /// CQ of the receive queue.
    pub recv_cqn: u32,
    /// The UAR.
    pub uar: u32,
    /// log2 of the entries of both queues.
    pub log_size: u8,
    /// log2 of the send stride.
    pub log_stride: u8,
    /// True if the send queue lies in device memory.
    pub in_device: bool,
}

/// The user's side of a QP.
#[derive(Debug)]
pub struct QueuePair {
    /// Its number.
    pub qpn: u32,
    /// The UAR of its slot.
    pub uar: u32,
    /// Its slot.
    pub slot: u32,
    send_ring: SendRing,
    recv_ring: u64,
    log_size: u8,
    log_stride: u8,
    send_pi: u32,
    recv_pi: u32,
}

/// log2 of the receive stride: room for 16 segments with 512.
const RECV_LOG_STRIDE: u8 = 9;

impl QueuePair {
    /// Creates a QP in state Reset.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn create(guest: &Guest, setup: &QpSetup) -> anyhow::Result<Self> {
        let sq = 1u64 << (setup.log_size + setup.log_stride);
        let send = if setup.in_device { 0 } else { guest.ram.alloc(sq)? };
        let recv_ring = guest.ram.alloc(1 << (setup.log_size + RECV_LOG_STRIDE))?;
        let flags = if setup.in_device { QpFlags::SQ_IN_DEVICE.bits() } else { 0 };
        let params = CreateQp {
            sq_table: send.into(),
            rq_table: recv_ring.into(),
            sq_page_shift: if setup.in_device { 0 } else { 12 },
            rq_page_shift: 12,
            sq_log_size: setup.log_size,
            sq_log_stride: setup.log_stride,
            rq_log_size: setup.log_size,
            rq_log_stride: RECV_LOG_STRIDE,
            pdn: setup.pdn.into(),
            send_cqn: setup.send_cqn.into(),
            recv_cqn: setup.recv_cqn.into(),
            uar: setup.uar.into(),
            qp_type: Type::Rc as u8,
            flags,
            ..CreateQp::default()
        };
        debug_assert_ne!(params.rq_log_size, NO_QUEUE);
        let (qpn, slot, offset) = guest.create_qp(&params)?;
        let send_ring = if setup.in_device {
            SendRing::Device(usize::try_from(offset)?)
        } else {
            SendRing::Guest(send)
        };
        Ok(Self {
            qpn,
            uar: setup.uar,
            slot,
            send_ring,
            recv_ring,
            log_size: setup.log_size,
            log_stride: setup.log_stride,
            send_pi: 0,
            recv_pi: 0,
        })
    }

    /// Takes the QP through Init and RTR to RTS, towards `peer_qpn` at `peer_mac`.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn connect(
        &self,
        guest: &Guest,
        peer_mac: [u8; 6],
        peer_qpn: u32,
        tune: impl Fn(&mut Attr),
    ) -> anyhow::Result<()> {
        let mut attr = connected(peer_mac, peer_qpn);
        tune(&mut attr);
        for (state, mask) in [(State::Init, INIT), (State::Rtr, RTR), (State::Rts, RTS)] {
            attr.state = state as u8;
            guest.modify_qp(self.qpn, mask, &attr).with_context(|| format!("to {state:?}"))?;
        }
        Ok(())
    }

    /// Moves the QP to a state that needs no other attribute.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn set_state(&mut self, guest: &Guest, state: State) -> anyhow::Result<()> {
        let attr = Attr { state: state as u8, ..Attr::default() };
        guest.modify_qp(self.qpn, AttrMask::STATE, &attr)?;
        if state == State::Reset {
            (self.send_pi, self.recv_pi) = (0, 0);
            let at = Guest::slot_offset(self.uar, self.slot);
            let word = guest.bar().word64(at).context("slot")?;
            word.store(0, Ordering::Release).context("slot")?;
        }
        Ok(())
    }

    /// The state, as the device says.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn state(&self, guest: &Guest) -> anyhow::Result<State> {
        State::from_raw(guest.query_qp(self.qpn)?.state).context("unknown state")
    }

    /// Stores a receive and tells the device.
    ///
    /// # Errors
    /// Never with a ring inside guest memory.
    pub fn post_recv(&mut self, guest: &Guest, wr_id: u64, sges: &[Sge]) -> anyhow::Result<()> {
        let header = RqWqe::new(wr_id, u16::try_from(sges.len())?);
        let slot = u64::from(self.recv_pi & ((1 << self.log_size) - 1));
        let at = self.recv_ring + (slot << RECV_LOG_STRIDE);
        guest.ram.write(at, header.as_bytes())?;
        guest.ram.write(at + size_of::<RqWqe>() as u64, sges.as_bytes())?;
        self.recv_pi = self.recv_pi.wrapping_add(1);
        let at = Guest::slot_offset(self.uar, self.slot) + 4;
        let word = guest.bar().word32(at).context("slot")?;
        word.store(self.recv_pi, Ordering::Release).context("slot")
    }

    /// Stores a send work request without ringing. In device memory its stamp makes it valid at
    /// once.
    ///
    /// # Errors
    /// When it does not fit the stride.
    pub fn store_send(&mut self, guest: &Guest, wr: &Send) -> anyhow::Result<()> {
        self.store_encoded(guest, &wr.encode())
    }

    /// Like [`Self::store_send`], of what [`Send::encode`] gave: costs no more than a lean driver
    /// does.
    ///
    /// # Errors
    /// When it does not fit the stride.
    pub fn store_encoded(&mut self, guest: &Guest, bytes: &[u8]) -> anyhow::Result<()> {
        let index = self.send_pi;
        ensure!(bytes.len() <= 1 << self.log_stride, "work request longer than the stride");
        let slot = (index & ((1 << self.log_size) - 1)) as usize;
        match self.send_ring {
            SendRing::Guest(ring) => {
                guest.ram.write(ring + ((slot as u64) << self.log_stride), bytes)?;
            }
            SendRing::Device(offset) => {
                let at = offset + (slot << self.log_stride);
                let (head, tail) = bytes.split_at(STAMP_OFFSET as usize);
                guest.bar().write(at, head).context("device memory")?;
                let rest = at + HEADER_LEN as usize;
                guest.bar().write(rest, &tail[4..]).context("device memory")?;
                let word = guest.bar().word32(at + STAMP_OFFSET as usize).context("stamp")?;
                word.store(stamp(index), Ordering::Release).context("stamp")?;
            }
        }
        self.send_pi = index.wrapping_add(1);
        Ok(())
    }

    /// Tells the device of the sends stored so far.
    ///
    /// # Errors
    /// Fails if the server refuses a kick.
    pub fn ring(&self, guest: &Guest) -> anyhow::Result<()> {
        self.ring_at(guest, self.send_pi)
    }

    /// Rings with any producer index.
    ///
    /// # Errors
    /// Fails if the server refuses a kick.
    pub fn ring_at(&self, guest: &Guest, index: u32) -> anyhow::Result<()> {
        let word = guest.bar().word32(Guest::slot_offset(self.uar, self.slot)).context("slot")?;
        word.store(index, Ordering::Release).context("slot")?;
        guest.ring(self.uar, self.slot)
    }

    /// Stores a send work request and rings.
    ///
    /// # Errors
    /// Fails as [`Self::store_send`] and [`Self::ring`] do.
    pub fn post_send(&mut self, guest: &Guest, wr: &Send) -> anyhow::Result<()> {
        self.store_send(guest, wr)?;
        self.ring(guest)
    }

    /// Sends stored so far.
    #[must_use]
    pub fn send_producer(&self) -> u32 {
        self.send_pi
    }

    /// Returns whether the send queue lies in device memory; its group bit then is all the ringing
    /// there is.
    #[must_use]
    pub fn in_device(&self) -> bool {
        matches!(self.send_ring, SendRing::Device(_))
    }

    /// The summary bit of the QP.
    #[must_use]
    pub fn group(&self) -> u32 {
        SlotIndex::new(self.slot).group()
    }
}

/// Returns the attributes that an RC QP needs for Reset to Init (IBTA volume 1, table 91).
pub const INIT: AttrMask =
    AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::ACCESS_FLAGS);
/// Returns the attributes for Init to RTR.
pub const RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
/// Returns the attributes for RTR to RTS.
pub const RTS: AttrMask = AttrMask::STATE
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// Attributes of a QP that allows its peer everything and gives up soon.
#[must_use]
pub fn connected(peer_mac: [u8; 6], peer_qpn: u32) -> Attr {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    Attr {
        path_mtu: 5,
        port: 1,
        access: U32::new(access.bits()),
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 10,
        retry_cnt: 2,
        rnr_retry: 7,
        dest_qpn: peer_qpn.into(),
        av: AddressVector {
            dgid: [0xfe; 16],
            dmac: peer_mac,
            vlan: U16::new(0xffff),
            hop_limit: 64,
            ..AddressVector::default()
        },
        ..Attr::default()
    }
}

/// A send work request in the making.
#[derive(Clone, Debug)]
pub struct Send {
    head: SqWqe,
    body: Vec<u8>,
}

impl Send {
    /// A signaled work request.
    #[must_use]
    pub fn new(opcode: Opcode, wr_id: u64) -> Self {
        let head = SqWqe {
            wr_id: U64::new(wr_id),
            opcode: opcode as u8,
            flags: Flags::SIGNALED.bits(),
            ..SqWqe::default()
        };
        Self { head, body: Vec::new() }
    }

    /// Other flags.
    #[must_use]
    pub fn flags(mut self, flags: Flags) -> Self {
        self.head.flags = flags.bits();
        self
    }

    /// With segments.
    #[must_use]
    pub fn sges(mut self, sges: &[Sge]) -> Self {
        self.head.count = U16::new(u16::try_from(sges.len()).unwrap_or(u16::MAX));
        self.body.extend_from_slice(sges.as_bytes());
        self
    }

    /// With inline data.
    #[must_use]
    pub fn inline(mut self, data: &[u8]) -> Self {
        self.head.flags |= Flags::INLINE.bits();
        self.head.count = U16::new(u16::try_from(data.len()).unwrap_or(u16::MAX));
        self.body.extend_from_slice(data);
        self
    }

    /// At remote memory.
    #[must_use]
    pub fn remote(mut self, addr: u64, rkey: u32) -> Self {
        self.head.raddr = U64::new(addr);
        self.head.rkey = rkey.into();
        self
    }

    /// With immediate data.
    #[must_use]
    pub fn imm(mut self, imm: [u8; 4]) -> Self {
        self.head.imm = imm;
        self
    }

    /// With the operands of an atomic, before its segment.
    #[must_use]
    pub fn operands(mut self, swap_add: u64, compare: u64) -> Self {
        let operands = AtomicSeg { swap_add: U64::new(swap_add), compare: U64::new(compare) };
        self.body.extend_from_slice(operands.as_bytes());
        self
    }

    /// With what a request about a key has behind its header.
    #[must_use]
    pub fn body(mut self, body: &[u8]) -> Self {
        self.body.extend_from_slice(body);
        self
    }

    /// Changes the header, e.g. into a malformed one.
    #[must_use]
    pub fn edit(mut self, edit: impl FnOnce(&mut SqWqe)) -> Self {
        edit(&mut self.head);
        self
    }

    /// The bytes of the entry; the stamp is left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }
}

/// A segment.
#[must_use]
pub fn sge(addr: u64, length: u32, lkey: u32) -> Sge {
    Sge { addr: U64::new(addr), length: U32::new(length), lkey: lkey.into() }
}

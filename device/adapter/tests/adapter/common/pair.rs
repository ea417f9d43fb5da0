//! Two connected QPs, and everything that they need, on one adapter or two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::admin::{
    CreateQp, CreateSrq, NO_QUEUE, Opcode as Admin, Pages, QpFlags, SrqStatus, TagForm, command,
};
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::qp::{Access, AddressVector, Attr, AttrMask, State, Type};
use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{AtomicSeg, Flags, HEADER_LEN, Opcode, Sge, SqWqe};
use vrnic_abi::stamp;
use vrnic_adapter::datapath::transport::peers::Fabric;
use zerocopy::IntoBytes;

use super::driver::{CompletionQueue, EventQueue, Guest, slot_offset};
use super::host::TestHost;

pub(crate) const LOG_WQES: u8 = 4;
const LOG_STRIDE: u8 = 9;
/// Bytes of the region of an endpoint.
pub(crate) const REGION: u64 = 8 << 20;

/// The first PSN of both directions of a connection.
pub(crate) const PSN: u32 = 17;

pub(crate) const ALL: u32 = Access::LOCAL_WRITE.bits()
    | Access::REMOTE_WRITE.bits()
    | Access::REMOTE_READ.bits()
    | Access::REMOTE_ATOMIC.bits();

pub(crate) const INIT: AttrMask =
    AttrMask::STATE.union(AttrMask::PKEY_INDEX).union(AttrMask::PORT).union(AttrMask::ACCESS_FLAGS);
pub(crate) const RTR: AttrMask = AttrMask::STATE
    .union(AttrMask::AV)
    .union(AttrMask::PATH_MTU)
    .union(AttrMask::DEST_QPN)
    .union(AttrMask::RQ_PSN)
    .union(AttrMask::MAX_DEST_RD_ATOMIC)
    .union(AttrMask::MIN_RNR_TIMER);
pub(crate) const RTS: AttrMask = AttrMask::STATE
    .union(AttrMask::SQ_PSN)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// Attributes that unreliable connections lack.
const RELIABLE: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC
    .union(AttrMask::MIN_RNR_TIMER)
    .union(AttrMask::TIMEOUT)
    .union(AttrMask::RETRY_CNT)
    .union(AttrMask::RNR_RETRY)
    .union(AttrMask::MAX_QP_RD_ATOMIC);

/// A fabric with a clock.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) fabric: Arc<Fabric<TestHost>>,
    pub(crate) clock: Arc<AtomicU64>,
}

impl World {
    pub(crate) fn guest(&self, number: u8) -> Guest {
        Guest::new(number, &self.fabric, &self.clock)
    }

    /// Polls all guests, without moving the clock, until none has anything to do.
    pub(crate) fn settle(&self, guests: &[&Guest]) {
        for _ in 0..100_000 {
            if !guests.iter().fold(false, |busy, guest| guest.adapter.poll(0).busy | busy) {
                return;
            }
        }
        panic!("the adapters never come to rest");
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::AcqRel);
    }
}

/// A send work request.
#[derive(Clone)]
pub(crate) struct Wr {
    pub(crate) wr_id: u64,
    pub(crate) opcode: u8,
    pub(crate) flags: Flags,
    pub(crate) imm: [u8; 4],
    pub(crate) raddr: u64,
    pub(crate) rkey: u32,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) atomic: Option<(u64, u64)>,
    /// The part of a memory operation after the header.
    pub(crate) body: Vec<u8>,
}

impl Wr {
    pub(crate) fn new(opcode: Opcode, sges: &[Sge]) -> Self {
        Self {
            wr_id: 1,
            opcode: opcode as u8,
            flags: Flags::SIGNALED,
            imm: [0; 4],
            raddr: 0,
            rkey: 0,
            sges: sges.to_vec(),
            inline: None,
            atomic: None,
            body: Vec::new(),
        }
    }

    pub(crate) fn to(mut self, raddr: u64, rkey: u32) -> Self {
        (self.raddr, self.rkey) = (raddr, rkey);
        self
    }

    pub(crate) fn id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    pub(crate) fn flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    fn bytes(&self, stride: usize, index: u32) -> Vec<u8> {
        let mut flags = self.flags;
        flags.set(Flags::INLINE, self.inline.is_some());
        let count = self.inline.as_ref().map_or(self.sges.len(), Vec::len);
        let header = SqWqe {
            wr_id: self.wr_id.into(),
            opcode: self.opcode,
            flags: flags.bits(),
            count: (count as u16).into(),
            imm: self.imm,
            raddr: self.raddr.into(),
            rkey: self.rkey.into(),
            stamp: stamp(index).into(),
        };
        let mut bytes = header.as_bytes().to_vec();
        assert_eq!(bytes.len(), HEADER_LEN as usize);
        bytes.extend(&self.body);
        if let Some((swap_add, compare)) = self.atomic {
            let segment = AtomicSeg { swap_add: swap_add.into(), compare: compare.into() };
            bytes.extend(segment.as_bytes());
        }
        match &self.inline {
            Some(data) => bytes.extend(data),
            None => self.sges.iter().for_each(|sge| bytes.extend(sge.as_bytes())),
        }
        bytes.resize(stride, 0);
        bytes
    }
}

/// Parameters of an endpoint.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) in_device: bool,
    pub(crate) signal_all: bool,
    pub(crate) log_cqes: u8,
    /// True if the objects are of the kernel's context.
    pub(crate) kernel: bool,
    /// More flags of the QP.
    pub(crate) flags: QpFlags,
    /// Type of the QP.
    pub(crate) kind: Type,
    /// Position of command keys in its messages.
    pub(crate) tags: (TagForm, u32),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            in_device: false,
            signal_all: false,
            log_cqes: 6,
            kernel: false,
            flags: QpFlags::empty(),
            kind: Type::Rc,
            tags: (TagForm::None, 0),
        }
    }
}

/// One side of a connection.
pub(crate) struct Endpoint {
    pub(crate) context: u32,
    pub(crate) uar: u32,
    pub(crate) pdn: u32,
    pub(crate) buffer: u64,
    pub(crate) key: u32,
    pub(crate) eqn: u32,
    pub(crate) events: EventQueue,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) qpn: u32,
    pub(crate) slot: u32,
    sq: u64,
    rq: u64,
    in_device: bool,
    pub(crate) sq_pi: u32,
    pub(crate) rq_pi: u32,
}

/// The parameters of a QP with both rings.
pub(crate) fn qp_params(guest: &Guest, in_device: bool) -> CreateQp {
    let rq = guest.alloc(1 << (LOG_WQES + LOG_STRIDE));
    let sq = if in_device { 0 } else { guest.alloc(1 << (LOG_WQES + LOG_STRIDE)) };
    CreateQp {
        sq_table: sq.into(),
        rq_table: rq.into(),
        sq_page_shift: if in_device { 0 } else { 12 },
        rq_page_shift: 12,
        sq_log_size: LOG_WQES,
        sq_log_stride: LOG_STRIDE,
        rq_log_size: LOG_WQES,
        rq_log_stride: LOG_STRIDE,
        qp_type: Type::Rc as u8,
        flags: if in_device { QpFlags::SQ_IN_DEVICE.bits() } else { 0 },
        ..CreateQp::default()
    }
}

/// The attributes of a connection.
pub(crate) fn attributes(mac: [u8; 6], qpn: u32) -> Attr {
    Attr {
        path_mtu: 5,
        port: 1,
        access: ALL.into(),
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 3,
        rnr_retry: 2,
        rq_psn: PSN.into(),
        sq_psn: PSN.into(),
        dest_qpn: qpn.into(),
        av: AddressVector { dmac: mac, vlan: 0xffff.into(), ..AddressVector::default() },
        ..Attr::default()
    }
}

impl Endpoint {
    pub(crate) fn new(guest: &Guest, setup: Setup) -> Self {
        let (context, uar) = if setup.kernel {
            (0, 0)
        } else {
            let context = guest.command::<command::AllocContext>(&()).expect("context").get();
            (context, guest.on_object(Admin::AllocUar, context).expect("UAR"))
        };
        let pdn = guest.on_object(Admin::AllocPd, context).expect("PD");
        let buffer = guest.alloc(REGION);
        let key = guest.reg_flat(pdn, ALL, buffer, REGION).expect("MR");
        let (eqn, events) = guest.create_eq(1, 4);
        let send_cq = guest.create_cq(uar, eqn, setup.log_cqes).expect("CQ");
        let recv_cq = guest.create_cq(uar, eqn, setup.log_cqes).expect("CQ");
        let mut params = qp_params(guest, setup.in_device);
        params.pdn = pdn.into();
        params.send_cqn = send_cq.cqn.into();
        params.recv_cqn = recv_cq.cqn.into();
        params.uar = uar.into();
        if setup.signal_all {
            params.flags |= QpFlags::SIGNAL_ALL.bits();
        }
        params.flags |= setup.flags.bits();
        params.qp_type = setup.kind as u8;
        params.tag_form = setup.tags.0 as u8;
        params.tag_offset = setup.tags.1.into();
        assert_ne!(params.sq_log_size, NO_QUEUE);
        let (qpn, slot, offset) = guest.create_qp(&params).expect("QP");
        let sq = if setup.in_device { offset } else { params.sq_table.get() };
        Self {
            context,
            uar,
            pdn,
            buffer,
            key,
            eqn,
            events,
            send_cq,
            recv_cq,
            qpn,
            slot,
            sq,
            rq: params.rq_table.get(),
            in_device: setup.in_device,
            sq_pi: 0,
            rq_pi: 0,
        }
    }

    /// Another QP in the same context and PD, with CQs of its own, that takes receives from an SRQ.
    pub(crate) fn sibling(&self, guest: &Guest, kind: Type, srqn: u32) -> Self {
        self.beside(guest, |params| {
            params.qp_type = kind as u8;
            params.srqn = srqn.into();
            params.rq_table = 0.into();
            (params.rq_page_shift, params.rq_log_size, params.rq_log_stride) = (0, NO_QUEUE, 0);
        })
    }

    /// Another QP in the same context and PD, with CQs of its own.
    pub(crate) fn beside(&self, guest: &Guest, tune: impl FnOnce(&mut CreateQp)) -> Self {
        let cq = || guest.create_cq(self.uar, self.eqn, 6).expect("CQ");
        let (send_cq, recv_cq) = (cq(), cq());
        let mut params = CreateQp {
            pdn: self.pdn.into(),
            send_cqn: send_cq.cqn.into(),
            recv_cqn: recv_cq.cqn.into(),
            uar: self.uar.into(),
            ..qp_params(guest, false)
        };
        tune(&mut params);
        let (qpn, slot, _) = guest.create_qp(&params).expect("QP");
        let (sq, rq) = (params.sq_table.get(), params.rq_table.get());
        let events = EventQueue { ..self.events };
        Self {
            events,
            send_cq,
            recv_cq,
            qpn,
            slot,
            sq,
            rq,
            in_device: false,
            sq_pi: 0,
            rq_pi: 0,
            ..*self
        }
    }

    /// The endpoint's QP is now the one that was created with these parameters.
    pub(crate) fn set_rings(&mut self, params: &CreateQp) {
        (self.sq, self.rq) = (params.sq_table.get(), params.rq_table.get());
        (self.sq_pi, self.rq_pi) = (0, 0);
    }

    /// Init, RTR, RTS towards `qpn` at `mac`.
    pub(crate) fn connect(&self, guest: &Guest, mac: [u8; 6], qpn: u32, tune: impl Fn(&mut Attr)) {
        let mut attr = attributes(mac, qpn);
        tune(&mut attr);
        let kind = guest.adapter.qp(self.qpn).map(|qp| qp.kind);
        let unknown = if kind == Some(Type::Uc) { RELIABLE } else { AttrMask::empty() };
        for (state, mask) in [(State::Init, INIT), (State::Rtr, RTR), (State::Rts, RTS)] {
            attr.state = state as u8;
            guest.modify_qp(self.qpn, mask.difference(unknown), &attr).expect("MODIFY_QP");
        }
    }

    /// Moves the QP to a state that needs nothing else.
    pub(crate) fn set_state(&mut self, guest: &Guest, state: State) {
        let attr = Attr { state: state as u8, ..Attr::default() };
        guest.modify_qp(self.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
        if state == State::Reset {
            (self.sq_pi, self.rq_pi) = (0, 0);
        }
    }

    pub(crate) fn state(&self, guest: &Guest) -> State {
        State::from_raw(guest.query_qp(self.qpn).expect("QUERY_QP").state).expect("state")
    }

    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: (self.buffer + offset).into(), length: len.into(), lkey: self.key.into() }
    }

    /// Stores a WQE without ringing.
    pub(crate) fn store_send(&mut self, guest: &Guest, wr: &Wr) {
        let bytes = wr.bytes(1 << LOG_STRIDE, self.sq_pi);
        self.store_raw_send(guest, &bytes);
    }

    /// Stores raw bytes as a WQE without ringing.
    pub(crate) fn store_raw_send(&mut self, guest: &Guest, bytes: &[u8]) {
        let slot = u64::from(self.sq_pi % (1 << LOG_WQES));
        let at = self.sq + (slot << LOG_STRIDE);
        if self.in_device {
            guest.host.bar().write(at, bytes).expect("device memory");
        } else {
            guest.write(at, bytes);
        }
        self.sq_pi = self.sq_pi.wrapping_add(1);
    }

    /// Publishes the producer index and rings.
    pub(crate) fn ring(&self, guest: &Guest) {
        if !self.in_device {
            guest.host.bar_store32(slot_offset(self.uar, self.slot), self.sq_pi);
        }
        guest.ring(self.uar, self.slot);
    }

    pub(crate) fn post_send(&mut self, guest: &Guest, wr: &Wr) {
        self.store_send(guest, wr);
        self.ring(guest);
    }

    pub(crate) fn post_recv(&mut self, guest: &Guest, wr_id: u64, sges: &[Sge]) {
        let mut bytes = RqWqe::new(wr_id, sges.len() as u16).as_bytes().to_vec();
        sges.iter().for_each(|sge| bytes.extend(sge.as_bytes()));
        self.post_raw_recv(guest, &bytes);
    }

    pub(crate) fn post_raw_recv(&mut self, guest: &Guest, bytes: &[u8]) {
        let slot = u64::from(self.rq_pi % (1 << LOG_WQES));
        guest.write(self.rq + (slot << LOG_STRIDE), bytes);
        self.rq_pi = self.rq_pi.wrapping_add(1);
        guest.host.bar_store32(slot_offset(self.uar, self.slot) + 4, self.rq_pi);
    }

    pub(crate) fn fill(&self, guest: &Guest, offset: u64, bytes: &[u8]) {
        guest.write(self.buffer + offset, bytes);
    }

    pub(crate) fn bytes(&self, guest: &Guest, offset: u64, len: usize) -> Vec<u8> {
        guest.read(self.buffer + offset, len)
    }
}

/// An SRQ as its user sees it.
pub(crate) struct SharedQueue {
    pub(crate) srqn: u32,
    pub(crate) slot: u32,
    uar: u32,
    ring: u64,
    pub(crate) pi: u32,
}

/// log2 of the entries of a [`SharedQueue`].
pub(crate) const LOG_SHARED: u8 = 3;

impl SharedQueue {
    /// An SRQ in the context and PD of an endpoint.
    pub(crate) fn new(guest: &Guest, e: &Endpoint) -> Self {
        Self::with(guest, e, |_| {})
    }

    /// Creates a pair with other parameters.
    pub(crate) fn with(guest: &Guest, e: &Endpoint, tune: impl FnOnce(&mut CreateSrq)) -> Self {
        let ring = guest.alloc(1 << (LOG_SHARED + LOG_STRIDE));
        let mut params = CreateSrq {
            pages: Pages::new(ring, 12, 0),
            pdn: e.pdn.into(),
            uar: e.uar.into(),
            log_size: LOG_SHARED,
            log_stride: LOG_STRIDE,
            ..CreateSrq::default()
        };
        tune(&mut params);
        let result = guest.command::<command::CreateSrq>(&params).expect("CREATE_SRQ");
        Self { srqn: result.srqn.get(), slot: result.slot.get(), uar: e.uar, ring, pi: 0 }
    }

    pub(crate) fn post(&mut self, guest: &Guest, wr_id: u64, sges: &[Sge]) {
        let mut bytes = RqWqe::new(wr_id, sges.len() as u16).as_bytes().to_vec();
        sges.iter().for_each(|sge| bytes.extend(sge.as_bytes()));
        let slot = u64::from(self.pi % (1 << LOG_SHARED));
        guest.write(self.ring + (slot << LOG_STRIDE), &bytes);
        self.pi = self.pi.wrapping_add(1);
        self.publish(guest, self.pi);
    }

    /// Stores a producer index, whatever it is.
    pub(crate) fn publish(&self, guest: &Guest, pi: u32) {
        guest.host.bar_store32(slot_offset(self.uar, self.slot), pi);
    }

    /// Returns what the device reports as free, whatever the completions said.
    pub(crate) fn freed(&self, guest: &Guest) -> u32 {
        guest.host.bar_load32(slot_offset(self.uar, self.slot) + 4)
    }

    pub(crate) fn status(&self, guest: &Guest) -> SrqStatus {
        guest.command::<command::QuerySrq>(&self.srqn.into()).expect("QUERY_SRQ")
    }
}

/// Two connected endpoints on two adapters.
pub(crate) struct Pair {
    pub(crate) world: World,
    pub(crate) ga: Guest,
    pub(crate) gb: Guest,
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::with(Setup::default(), |_| {})
    }

    pub(crate) fn with(setup: Setup, tune: impl Fn(&mut Attr)) -> Self {
        let world = World::default();
        let (ga, gb) = (world.guest(1), world.guest(2));
        // Side A sends commands.
        let responds = Setup { tags: (TagForm::None, 0), ..setup };
        let (a, b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, responds));
        a.connect(&ga, gb.adapter.mac(), b.qpn, &tune);
        b.connect(&gb, ga.adapter.mac(), a.qpn, &tune);
        Self { world, ga, gb, a, b }
    }

    pub(crate) fn settle(&self) {
        self.world.settle(&[&self.ga, &self.gb]);
    }

    /// Posts on side A and lets both sides work.
    pub(crate) fn run(&mut self, wr: &Wr) {
        self.a.post_send(&self.ga, wr);
        self.settle();
    }

    /// Posts on side A; its completion.
    pub(crate) fn complete(&mut self, wr: &Wr) -> Cqe {
        self.run(wr);
        self.sent().expect("no completion")
    }

    pub(crate) fn sent(&mut self) -> Option<Cqe> {
        self.a.send_cq.poll(&self.ga)
    }

    pub(crate) fn received(&mut self) -> Option<Cqe> {
        self.b.recv_cq.poll(&self.gb)
    }
}

/// The status of a completion.
pub(crate) fn status(cqe: &Cqe) -> Status {
    Status::from_raw(cqe.status).expect("known status")
}

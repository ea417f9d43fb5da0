//! A QP with a PD, a region and CQs, as most tests and all benchmarks need on each side.

use std::sync::atomic::{Ordering, fence};

use vrnic_abi::admin::{CreateCq, CreateQp, NO_QUEUE, Opcode as Admin};
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::doorbell::{Doorbell, RQ_PI};
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::sq::{STAMP_OFFSET, Sge};
use vrnic_abi::{SlotIndex, UarIndex, stamp};
use vrnic_queues::request::write_recv;
use vrnic_queues::ring::{Ring, Shape};
use vrnic_queues::send::Place;

use crate::bus::Bus;
use crate::cq::CompletionQueue;
use crate::eq::EventQueue;
use crate::guest::Guest;
use crate::memory::write;
use crate::qp::{ALL, RECV_SGES, RELIABLE, Setup, TO_RTS, attributes};
use crate::wr::{Wr, sge};

/// log2 of the entries of an endpoint's event queue.
const LOG_EVENTS: u8 = 6;

/// One side of a connection.
pub struct Endpoint<B> {
    /// The guest that has the context.
    pub guest: Guest<B>,
    /// The number of the context.
    pub context: u32,
    /// The UAR of the context.
    pub uar: u32,
    /// The PD.
    pub pdn: u32,
    /// Guest address of the region, and its address in work requests.
    pub buffer: u64,
    /// The key of the region.
    pub key: u32,
    /// Number of the event queue.
    pub eqn: u32,
    /// The event queue of the CQs.
    pub events: EventQueue,
    /// CQ of the send queue.
    pub send_cq: CompletionQueue<B>,
    /// CQ of the receive queue.
    pub recv_cq: CompletionQueue<B>,
    /// Number of the QP.
    pub qpn: u32,
    /// The doorbell slot of the QP.
    pub slot: u32,
    /// The type of the QP.
    pub kind: Type,
    queues: Queues,
    /// The index of the next send.
    pub sq_pi: u32,
    /// The index of the next receive.
    pub rq_pi: u32,
}

/// The rings of a QP. If a ring lies outside guest memory, or does not exist, nothing can be posted
/// to it.
struct Queues {
    sends: Option<Ring>,
    place: Place,
    recvs: Option<Ring>,
}

impl Queues {
    /// Returns the rings of a QP that was created with these parameters. If the send queue lies in
    /// device memory, it is at `offset` of BAR2.
    fn new<B: Bus>(guest: &Guest<B>, params: &CreateQp, offset: u64) -> Self {
        let in_device = params.sq_page_shift == 0;
        let guest_ring = |addr: u64, log_size, log_stride| {
            if log_size == NO_QUEUE { None } else { guest.ram().ring(addr, log_size, log_stride) }
        };
        let (log_size, log_stride) = (params.sq_log_size, params.sq_log_stride);
        Self {
            sends: if in_device {
                guest.bar().ring(offset, Shape { log_size, log_stride })
            } else {
                guest_ring(params.sq_table.get(), log_size, log_stride)
            },
            place: if in_device { Place::Device } else { Place::Guest },
            recvs: guest_ring(params.rq_table.get(), params.rq_log_size, params.rq_log_stride),
        }
    }
}

/// A context and its objects, which endpoints may share.
struct Base<B> {
    guest: Guest<B>,
    context: u32,
    uar: u32,
    pdn: u32,
    buffer: u64,
    key: u32,
    eqn: u32,
    events: EventQueue,
}

impl<B: Bus> Endpoint<B> {
    /// Creates the QP and all the objects that it needs.
    #[must_use]
    #[track_caller]
    pub fn new(guest: &Guest<B>, setup: Setup) -> Self {
        let (eqn, events) = guest.create_eq(setup.vector, LOG_EVENTS).expect("CREATE_EQ");
        Self::with_events(guest, setup, eqn, events)
    }

    /// Creates another endpoint of the guest that shares only the event queue, because there are
    /// few event queues.
    #[must_use]
    #[track_caller]
    pub fn apart(&self, setup: Setup) -> Self {
        Self::with_events(&self.guest, setup, self.eqn, self.events.clone())
    }

    #[track_caller]
    fn with_events(guest: &Guest<B>, setup: Setup, eqn: u32, events: EventQueue) -> Self {
        let (context, uar) = if setup.kernel {
            (0, 0)
        } else {
            let context = guest.alloc_context().expect("ALLOC_CONTEXT");
            (context, guest.on_object(Admin::AllocUar, context).expect("ALLOC_UAR"))
        };
        let pdn = guest.on_object(Admin::AllocPd, context).expect("ALLOC_PD");
        let buffer = guest.ram().alloc(setup.region);
        let key = guest.reg_flat(pdn, ALL, buffer, setup.region).expect("REG_MR");
        let params = setup.qp(guest);
        let guest = guest.clone();
        let base = Base { guest, context, uar, pdn, buffer, key, eqn, events };
        Self::create(base, &setup, params, |_| {})
    }

    /// Creates another QP in the same context and PD, with separate CQs.
    #[must_use]
    #[track_caller]
    pub fn beside(&self, tune: impl FnOnce(&mut CreateQp)) -> Self {
        let setup = Setup::default();
        let params = setup.qp(&self.guest);
        let &Self { context, uar, pdn, buffer, key, eqn, .. } = self;
        let (guest, events) = (self.guest.clone(), self.events.clone());
        let base = Base { guest, context, uar, pdn, buffer, key, eqn, events };
        Self::create(base, &setup, params, tune)
    }

    /// Returns parameters of another QP in the same PD and UAR, with the same CQs and separate
    /// rings.
    #[must_use]
    pub fn params(&self) -> CreateQp {
        CreateQp {
            pdn: self.pdn.into(),
            send_cqn: self.send_cq.cqn.into(),
            recv_cqn: self.recv_cq.cqn.into(),
            uar: self.uar.into(),
            ..Setup::default().qp(&self.guest)
        }
    }

    /// Creates another QP in the same context and PD that takes receives from an SRQ.
    #[must_use]
    #[track_caller]
    pub fn sibling(&self, kind: Type, srqn: u32) -> Self {
        self.beside(|params| {
            params.qp_type = kind as u8;
            params.srqn = srqn.into();
            params.rq_table = 0.into();
            (params.rq_page_shift, params.rq_log_size, params.rq_log_stride) = (0, NO_QUEUE, 0);
        })
    }

    #[track_caller]
    fn create(
        base: Base<B>,
        setup: &Setup,
        params: CreateQp,
        tune: impl FnOnce(&mut CreateQp),
    ) -> Self {
        let Base { guest, context, uar, pdn, buffer, key, eqn, events } = base;
        let tune_cq = |params: CreateCq| match setup.holding {
            Some(few) => params.holding(few),
            None if setup.ignore_overrun => params.ignoring_overruns(),
            None => params,
        };
        let cq = || {
            CompletionQueue::create_with(&guest, uar, eqn, setup.log_cqes, tune_cq)
                .expect("CREATE_CQ")
        };
        let (send_cq, recv_cq) = (cq(), cq());
        let mut params = CreateQp {
            pdn: pdn.into(),
            send_cqn: send_cq.cqn.into(),
            recv_cqn: recv_cq.cqn.into(),
            uar: uar.into(),
            ..params
        };
        tune(&mut params);
        let (qpn, slot, offset) = guest.create_qp(&params).expect("CREATE_QP");
        let queues = Queues::new(&guest, &params, offset);
        let kind = Type::from_raw(params.qp_type).expect("a type");
        Self {
            guest,
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
            kind,
            queues,
            sq_pi: 0,
            rq_pi: 0,
        }
    }

    /// Creates another QP, which replaces the present one.
    pub fn set_qp(&mut self, params: &CreateQp) {
        let (qpn, slot, offset) = self.guest.create_qp(params).expect("CREATE_QP");
        (self.qpn, self.slot, self.sq_pi, self.rq_pi) = (qpn, slot, 0, 0);
        self.queues = Queues::new(&self.guest, params, offset);
    }

    /// Moves the QP through Init and RTR to RTS, connected to `qpn` at `mac`.
    #[track_caller]
    pub fn connect(&self, mac: [u8; 6], qpn: u32, tune: impl Fn(&mut Attr)) {
        let mut attr = attributes(mac, qpn);
        tune(&mut attr);
        let unknown = if self.kind == Type::Uc { RELIABLE } else { AttrMask::empty() };
        let steps = TO_RTS.map(|(state, mask)| (state, mask.difference(unknown)));
        self.guest.take_through(self.qpn, attr, &steps);
    }

    /// Brings the QP to Ready to Receive, and returns whether the adapter accepts these attributes.
    #[track_caller]
    pub fn accepts(&self, mut attr: Attr) -> bool {
        let [init, (state, mask), ..] = TO_RTS;
        self.guest.take_through(self.qpn, attr, &[init]);
        attr.state = state as u8;
        self.guest.modify_qp(self.qpn, mask, &attr).is_ok()
    }

    /// Connects two sides.
    #[track_caller]
    pub fn connect_pair(a: &Self, b: &Self) {
        a.connect(b.guest.mac(), b.qpn, |_| {});
        b.connect(a.guest.mac(), a.qpn, |_| {});
    }

    /// Moves the QP to a state that needs no other attribute.
    #[track_caller]
    pub fn set_state(&mut self, state: State) {
        let attr = Attr { state: state as u8, ..Attr::default() };
        self.guest.modify_qp(self.qpn, AttrMask::STATE, &attr).expect("MODIFY_QP");
        if state == State::Reset {
            (self.sq_pi, self.rq_pi) = (0, 0);
            self.guest.slot64(self.uar, self.slot).store(0, Ordering::Release);
        }
    }

    /// Returns the state that the adapter reports.
    #[must_use]
    #[track_caller]
    pub fn state(&self) -> State {
        State::from_raw(self.guest.query_qp(self.qpn).expect("QUERY_QP").state).expect("a state")
    }

    /// Returns a segment of the region.
    #[must_use]
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        sge(self.buffer + offset, len, self.key)
    }

    /// Fills part of the region.
    pub fn fill(&self, offset: u64, bytes: &[u8]) {
        self.guest.ram().write(self.buffer + offset, bytes);
    }

    /// Reads part of the region.
    #[must_use]
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        self.guest.ram().read(self.buffer + offset, len)
    }

    /// Stores a receive and rings the doorbell.
    pub fn post_recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let ring = self.queues.recvs.as_ref().expect("a receive queue");
        write_recv(ring.entry(self.rq_pi), wr_id, sges, RECV_SGES).expect("room for the segments");
        self.publish_recv();
    }

    /// Stores any bytes as a receive and rings the doorbell.
    pub fn post_raw_recv(&mut self, bytes: &[u8]) {
        let ring = self.queues.recvs.as_ref().expect("a receive queue");
        write(ring.entry(self.rq_pi), 0, bytes).expect("a receive that fits the stride");
        self.publish_recv();
    }

    fn publish_recv(&mut self) {
        self.rq_pi = self.rq_pi.wrapping_add(1);
        self.guest.slot32(self.uar, self.slot, RQ_PI).store(self.rq_pi, Ordering::Release);
        if self.kind == Type::Toe {
            self.guest.ring(self.uar, self.slot);
        }
    }

    /// Stores a send work request without ringing. In device memory its stamp makes it valid at
    /// once.
    pub fn store_send(&mut self, wr: &Wr) {
        self.store_encoded(&wr.encode());
    }

    /// Like [`Self::store_send`], with bytes of [`Wr::encode`]. Takes no more time than a lean
    /// driver does.
    #[inline]
    pub fn store_encoded(&mut self, bytes: &[u8]) {
        let ring = self.queues.sends.as_ref().expect("a send queue");
        let entry = ring.entry(self.sq_pi);
        let stamp_at = STAMP_OFFSET as usize;
        if self.queues.place == Place::Guest {
            write(entry, 0, bytes).expect("a request that fits the stride");
        } else {
            // The stamp makes the entry valid, so it is written last.
            let (before, rest) = bytes.split_at(stamp_at);
            write(entry, 0, before).expect("a request that fits the stride");
            write(entry, stamp_at + 4, &rest[4..]).expect("a request that fits the stride");
            fence(Ordering::Release);
            write(entry, stamp_at, &stamp(self.sq_pi).to_le_bytes()).expect("a header");
        }
        self.sq_pi = self.sq_pi.wrapping_add(1);
    }

    /// Rings the doorbell for the sends stored so far.
    #[inline]
    pub fn ring(&self) {
        if self.queues.place == Place::Guest {
            self.guest.slot32(self.uar, self.slot, 0).store(self.sq_pi, Ordering::Release);
        }
        self.guest.ring(self.uar, self.slot);
    }

    /// Stores a mark in this word of the QP's doorbell, without ringing.
    #[inline]
    pub fn mark(&self, word: u32, mark: u32) {
        let slot = Doorbell::new(UarIndex::new(self.uar), SlotIndex::new(self.slot));
        let word = self.guest.bar().word32(slot.mark(word).offset()).expect("a doorbell");
        word.store(mark, Ordering::Release);
    }

    /// Stores a send work request and rings.
    pub fn post_send(&mut self, wr: &Wr) {
        self.store_send(wr);
        self.ring();
    }

    /// Posts a send and waits for its completion.
    #[track_caller]
    pub fn run(&mut self, wr: &Wr) -> Cqe {
        self.post_send(wr);
        self.send_cq.wait()
    }

    /// Posts a send, waits for its completion, and checks it.
    #[track_caller]
    pub fn run_expecting(&mut self, wr: &Wr, status: Status) -> Cqe {
        self.post_send(wr);
        self.send_cq.expect(wr.wr_id, status)
    }
}

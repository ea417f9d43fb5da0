//! XRC: one connection for the SRQs of several processes (docs/adapter.md, section 9).
//!
//! Shows: queues

use vrnic_abi::admin::{
    CreateQp, CreateSrq, NO_QUEUE, Opcode as Admin, SrqType, Status as Refusal, command,
};
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{AttrMask, State, Type};
use vrnic_abi::sq::{Opcode, Sge, XrcSeg};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{INIT, RTR, RTS, Setup, attributes};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::{CompletionQueue, Endpoint, Guest, SharedQueue};
use crate::world::World;

const OK: Status = Status::Success;

/// A process of guest B that has an SRQ of the XRC domain.
struct Process {
    base: Endpoint,
    srq: SharedQueue,
    cq: CompletionQueue,
}

impl Process {
    fn new(guest: &Guest, xrcdn: u32) -> Self {
        let base = Endpoint::new(guest, Setup::default());
        let cq = CompletionQueue::create(guest, base.uar, base.eqn, 6).expect("CQ");
        let srq = SharedQueue::with(&base, |params| {
            params.srq_type = SrqType::Xrc as u8;
            params.xrcdn = xrcdn.into();
            params.cqn = cq.cqn.into();
        });
        Self { base, srq, cq }
    }

    fn post(&mut self, wr_id: u64, len: u32) {
        let place = self.base.sge(wr_id * 4096, len);
        self.srq.post(wr_id, &[place]);
    }
}

/// An initiator on guest A, and a target on guest B. Two processes use the target's domain.
pub(crate) struct Domain {
    pub(crate) world: World,
    ga: Guest,
    gb: Guest,
    xrcdn: u32,
    pub(crate) initiator: Endpoint,
    /// QP number of the target.
    target: u32,
    processes: [Process; 2],
}

fn alloc_xrcd(guest: &Guest) -> u32 {
    guest.command::<command::AllocXrcd>(&()).expect("XRCD").get()
}

/// Returns the parameters of a target.
fn target_params(guest: &Guest, xrcdn: u32) -> CreateQp {
    let (eqn, _) = guest.create_eq(2, 4).expect("CREATE_EQ");
    let cqn = CompletionQueue::create(guest, 0, eqn, 0).expect("CQ").cqn;
    CreateQp {
        send_cqn: cqn.into(),
        recv_cqn: cqn.into(),
        qp_type: Type::XrcTgt as u8,
        sq_log_size: NO_QUEUE,
        rq_log_size: NO_QUEUE,
        xrcdn: xrcdn.into(),
        ..CreateQp::default()
    }
}

impl Domain {
    fn new() -> Self {
        Self::in_world(World::default())
    }

    pub(crate) fn in_world(world: World) -> Self {
        let (ga, gb) = (world.guest(1), world.guest(2));
        let xrcdn = alloc_xrcd(&gb);
        let processes = [Process::new(&gb, xrcdn), Process::new(&gb, xrcdn)];
        let (target, ..) = gb.create_qp(&target_params(&gb, xrcdn)).expect("target");
        let initiator = Endpoint::new(&ga, Setup::default()).sibling(Type::XrcIni, 0);
        let sends = RTR.difference(AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER);
        let steps = [(State::Init, INIT), (State::Rtr, sends), (State::Rts, RTS)];
        ga.take_through(initiator.qpn, attributes(gb.mac(), target), &steps);
        let quiet = AttrMask::STATE | AttrMask::SQ_PSN | AttrMask::TIMEOUT;
        let steps = [(State::Init, INIT), (State::Rtr, RTR), (State::Rts, quiet)];
        gb.take_through(target, attributes(ga.mac(), initiator.qpn), &steps);
        Self { world, ga, gb, xrcdn, initiator, target, processes }
    }

    /// Returns a request to the SRQ of a process.
    fn to(&self, nth: usize, wr: Wr) -> Wr {
        to_srq(self.processes[nth].srq.srqn, wr)
    }

    pub(crate) fn send(&mut self, wr: &Wr) -> Option<Status> {
        self.initiator.post_send(wr);
        self.world.settle(&[&self.ga, &self.gb]);
        self.initiator.send_cq.poll().map(|cqe| status(&cqe))
    }

    fn send_text(&mut self, nth: usize, text: &[u8]) -> Option<Status> {
        self.initiator.fill(0, text);
        let wr = Wr::new(Opcode::Send, &[self.initiator.sge(0, text.len() as u32)]);
        self.send(&self.to(nth, wr))
    }

    fn received(&mut self, nth: usize) -> Option<Cqe> {
        self.processes[nth].cq.poll()
    }
}

pub(crate) fn to_srq(srqn: u32, wr: Wr) -> Wr {
    let seg = XrcSeg { srqn: srqn.into(), ..XrcSeg::default() };
    Wr { body: seg.as_bytes().to_vec(), ..wr }
}

#[test]
fn messages_reach_the_srq_that_they_name() {
    let mut d = Domain::new();
    for (nth, wr_id) in [(0, 0), (1, 1), (1, 2), (0, 3)] {
        d.processes[nth].post(wr_id, 64);
        let text = [b'a' + wr_id as u8; 30];
        assert_eq!(d.send_text(nth, &text), Some(OK));
        let cqe = d.received(nth).expect("completion");
        assert_eq!((cqe.wr_id.get(), status(&cqe), cqe.byte_len.get()), (wr_id, OK, 30));
        assert_eq!((cqe.qpn.get(), cqe.srqn.get()), (d.target, d.processes[nth].srq.srqn));
        assert!(d.received(1 - nth).is_none());
        assert_eq!(d.processes[nth].base.bytes(wr_id * 4096, 30), text);
    }
    // Inline data follows the number of the SRQ, too.
    d.processes[1].post(4, 64);
    let wr = Wr::new(Opcode::SendImm, &[]).inline(b"in line");
    let wr = d.to(1, Wr { imm: *b"imm!", ..wr });
    assert_eq!(d.send(&wr), Some(OK));
    assert_eq!(d.received(1).expect("completion").imm, *b"imm!");
    assert_eq!(d.processes[1].base.bytes(4 * 4096, 7), b"in line");
}

#[test]
fn an_empty_srq_is_waited_for() {
    let mut d = Domain::new();
    assert_eq!(d.send_text(0, b"early"), None);
    d.processes[0].post(1, 64);
    d.world.advance(10_000_000);
    d.world.settle(&[&d.ga, &d.gb]);
    assert_eq!(d.received(0).map(|cqe| cqe.wr_id.get()), Some(1));
}

#[test]
fn keys_are_of_the_pd_of_the_srq() {
    let mut d = Domain::new();
    let (buffer, keys) =
        (d.processes[0].base.buffer, [d.processes[0].base.key, d.processes[1].base.key]);
    let sge = d.initiator.sge(0, 8);
    let write = Wr::new(Opcode::Write, &[sge]).to(buffer, keys[0]);
    d.initiator.fill(0, b"by write");
    assert_eq!(d.send(&d.to(0, write)), Some(OK));
    assert_eq!(d.processes[0].base.bytes(0, 8), b"by write");
    let read = Wr::new(Opcode::Read, &[d.initiator.sge(64, 8)]).to(buffer, keys[0]);
    assert_eq!(d.send(&d.to(0, read)), Some(OK));
    assert_eq!(d.initiator.bytes(64, 8), b"by write");
    let atomic = Wr::new(Opcode::FetchAdd, &[sge]).atomic(5, 0);
    let atomic = atomic.to(buffer + 64, keys[0]);
    assert_eq!(d.send(&d.to(0, atomic)), Some(OK));
    assert_eq!(d.processes[0].base.bytes(64, 1), [5]);
    let word = Wr::new(Opcode::AtomicWrite, &[]).inline(b"as word!").to(buffer + 128, keys[0]);
    assert_eq!(d.send(&d.to(0, word)), Some(OK));
    assert_eq!(d.processes[0].base.bytes(128, 8), b"as word!");
    // The SRQ of the other process does not give access to the first one's memory.
    let foreign = Wr::new(Opcode::Write, &[sge]).to(buffer, keys[0]);
    assert_eq!(d.send(&d.to(1, foreign)), Some(Status::RemAccessErr));
    let target = d.target;
    let events = [(Kind::QpAccessError, target), (Kind::QpLastWqe, target)];
    assert_eq!(d.gb.drain_events(), events);
}

#[test]
fn a_target_without_the_right_to_flush_refuses() {
    let mut d = Domain::new();
    let (buffer, key) = (d.processes[0].base.buffer, d.processes[0].base.key);
    let flush = Wr::new(Opcode::Flush, &[]).atomic(1, 8).to(buffer, key);
    assert_eq!(d.send(&d.to(0, flush)), Some(Status::RemInvReqErr));
    let target = d.target;
    let events = [(Kind::QpRequestError, target), (Kind::QpLastWqe, target)];
    assert_eq!(d.gb.drain_events(), events);
}

#[test]
fn an_srq_outside_the_domain_is_refused() {
    let no_such = |d: &Domain| to_srq(999, Wr::new(Opcode::Send, &[d.initiator.sge(0, 8)]));
    let none_named = |d: &Domain| to_srq(0, Wr::new(Opcode::Send, &[d.initiator.sge(0, 8)]));
    let basic = |d: &Domain| {
        let srq = SharedQueue::new(&d.processes[0].base);
        to_srq(srq.srqn, Wr::new(Opcode::Send, &[d.initiator.sge(0, 8)]))
    };
    let foreign = |d: &Domain| {
        let other = Process::new(&d.gb, alloc_xrcd(&d.gb));
        to_srq(other.srq.srqn, Wr::new(Opcode::Send, &[d.initiator.sge(0, 8)]))
    };
    let cases: [&dyn Fn(&Domain) -> Wr; 4] = [&no_such, &none_named, &basic, &foreign];
    for case in cases {
        let mut d = Domain::new();
        let wr = case(&d);
        assert_eq!(d.send(&wr), Some(Status::RemInvReqErr));
        let target = d.target;
        let events = [(Kind::QpRequestError, target), (Kind::QpLastWqe, target)];
        assert_eq!(d.gb.drain_events(), events);
    }
}

#[test]
fn operations_that_xrc_lacks_are_refused_at_the_sender() {
    for opcode in
        [Opcode::SendInv, Opcode::LocalInv, Opcode::RegMr, Opcode::BindMw, Opcode::SendCmd]
    {
        let mut d = Domain::new();
        let wr = d.to(0, Wr::new(opcode, &[]));
        assert_eq!(d.send(&wr), Some(Status::LocQpOpErr), "{opcode:?}");
        assert_eq!(d.initiator.state(), State::Err);
    }
}

/// No bytes are written for a destroyed SRQ, not even for a message in progress. Uses memory
/// copies, because over packets no message begins in a poll of the sender.
#[test]
fn an_srq_may_end_while_messages_come() {
    const LEN: u32 = 8 << 20;
    let mut d = Domain::in_world(World::copying());
    // The message takes more turns than a poll has.
    let whole = d.processes[0].base.sge(0, LEN);
    d.processes[0].srq.post(7, &[whole; 16]);
    d.processes[1].post(8, 64);
    let wr = d.to(0, Wr::new(Opcode::Send, &[d.initiator.sge(0, LEN); 12]));
    d.initiator.post_send(&wr);
    let _busy = d.ga.adapter.poll(0);
    assert_eq!(d.processes[0].srq.status().posted.get(), 0, "the message has begun");
    let srqn = d.processes[0].srq.srqn;
    d.gb.on_object(Admin::DestroySrq, srqn).expect("destroys");
    let cqn = d.processes[0].cq.cqn;
    d.gb.on_object(Admin::DestroyCq, cqn).expect("the CQ is not in use any more");
    d.world.settle(&[&d.ga, &d.gb]);
    let cqe = d.initiator.send_cq.poll().expect("completion");
    assert_eq!(status(&cqe), Status::RemInvReqErr);
    assert!(d.processes[0].cq.peek().is_none());
    assert!(d.received(1).is_none());
}

#[test]
fn users_keep_a_domain_busy() {
    let d = Domain::new();
    let busy = Err(Refused(Refusal::Busy, 0));
    assert_eq!(d.gb.on_object(Admin::FreeXrcd, d.xrcdn), busy);
    for process in &d.processes {
        assert_eq!(d.gb.on_object(Admin::DestroyCq, process.cq.cqn), busy);
        d.gb.on_object(Admin::DestroySrq, process.srq.srqn).expect("DESTROY_SRQ");
        d.gb.on_object(Admin::DestroyCq, process.cq.cqn).expect("DESTROY_CQ");
    }
    assert_eq!(d.gb.on_object(Admin::FreeXrcd, d.xrcdn), busy);
    d.gb.on_object(Admin::DestroyQp, d.target).expect("DESTROY_QP");
    d.gb.on_object(Admin::FreeXrcd, d.xrcdn).expect("FREE_XRCD");
    assert_eq!(d.gb.on_object(Admin::FreeXrcd, d.xrcdn), Err(Refused(Refusal::NotFound, 0)));
}

#[test]
fn parameters_are_checked() {
    let d = Domain::new();
    let (gb, base) = (&d.gb, &d.processes[0].base);
    let bad = |offset| Some(Refused(Refusal::BadParam, offset));
    let good = target_params(gb, d.xrcdn);
    let refused = |params: CreateQp| gb.create_qp(&params).err();
    assert_eq!(refused(CreateQp { pdn: base.pdn.into(), ..good }), bad(24));
    assert_eq!(refused(CreateQp { srqn: 1.into(), ..good }), bad(48));
    assert_eq!(refused(CreateQp { sq_log_size: 2, ..good }), bad(20));
    assert_eq!(refused(CreateQp { rq_log_size: 2, ..good }), bad(22));
    assert_eq!(refused(CreateQp { xrcdn: 99.into(), ..good }), Some(Refused(Refusal::NotFound, 0)));
    assert_eq!(
        refused(CreateQp { uar: base.uar.into(), ..good }),
        Some(Refused(Refusal::Permission, 0))
    );
    let initiator = CreateQp { qp_type: Type::XrcIni as u8, ..base.params() };
    assert_eq!(refused(initiator), bad(22));
    let ring = gb.ram().alloc(4096);
    let srq = CreateSrq {
        pages: vrnic_abi::admin::Pages::new(ring, 12, 0),
        pdn: base.pdn.into(),
        uar: base.uar.into(),
        xrcdn: d.xrcdn.into(),
        cqn: base.recv_cq.cqn.into(),
        log_size: 2,
        log_stride: 5,
        srq_type: SrqType::Xrc as u8,
    };
    let refused = |params: CreateSrq| gb.command::<command::CreateSrq>(&params).err();
    let missing = Some(Refused(Refusal::NotFound, 0));
    assert_eq!(refused(CreateSrq { xrcdn: 99.into(), ..srq }), missing);
    assert_eq!(refused(CreateSrq { cqn: 999.into(), ..srq }), missing);
    let theirs = d.processes[1].cq.cqn.into();
    assert_eq!(refused(CreateSrq { cqn: theirs, ..srq }), Some(Refused(Refusal::Permission, 0)));
    // A QP of another type cannot use an XRC SRQ.
    let srqn = gb.command::<command::CreateSrq>(&srq).expect("CREATE_SRQ").srqn;
    let rc = CreateQp { qp_type: Type::Rc as u8, srqn, rq_log_size: NO_QUEUE, ..initiator };
    assert_eq!(gb.create_qp(&rc).err(), bad(48));
}

/// While the CQ of an SRQ holds entries back, messages to this SRQ wait.
#[test]
fn a_full_holding_cq_of_an_srq_makes_messages_wait() {
    let mut d = Domain::in_world(World::copying());
    let Endpoint { uar, eqn, .. } = d.processes[0].base;
    let mut small =
        CompletionQueue::create_with(&d.gb, uar, eqn, 0, |cq| cq.holding(0)).expect("CQ");
    d.processes[0].srq = SharedQueue::with(&d.processes[0].base, |params| {
        params.srq_type = SrqType::Xrc as u8;
        params.xrcdn = d.xrcdn.into();
        params.cqn = small.cqn.into();
    });
    (0..4).for_each(|wr_id| d.processes[0].srq.post(wr_id, &[] as &[Sge]));
    assert_eq!(d.send_text(0, b""), Some(OK));
    assert_eq!(d.send_text(0, b""), Some(OK), "held back");
    assert_eq!(d.send_text(0, b""), None, "waits");
    assert_eq!(d.gb.drain_events(), [(Kind::CqFull, small.cqn)]);
    for wr_id in 0..3 {
        assert_eq!(small.poll().expect("a receive").wr_id.get(), wr_id);
        d.world.settle(&[&d.ga, &d.gb]);
    }
    assert_eq!(d.initiator.send_cq.poll().map(|cqe| status(&cqe)), Some(OK));
    assert_eq!(d.gb.drain_events(), []);
}

/// If the CQ of an SRQ overflows, the target fails.
#[test]
fn a_full_cq_of_an_srq_fails_the_target() {
    let mut d = Domain::new();
    let small = CompletionQueue::create(&d.gb, d.processes[0].base.uar, d.processes[0].base.eqn, 0)
        .expect("CQ");
    d.processes[0].srq = SharedQueue::with(&d.processes[0].base, |params| {
        params.srq_type = SrqType::Xrc as u8;
        params.xrcdn = d.xrcdn.into();
        params.cqn = small.cqn.into();
    });
    for wr_id in 0..2 {
        d.processes[0].srq.post(wr_id, &[] as &[Sge]);
    }
    assert_eq!(d.send_text(0, b""), Some(OK));
    assert_eq!(d.send_text(0, b""), Some(Status::RemOpErr));
    let events = d.gb.drain_events();
    let expected = [(Kind::CqError, small.cqn), (Kind::QpFatal, d.target)];
    assert_eq!(events.get(..2), Some(&expected[..]));
}

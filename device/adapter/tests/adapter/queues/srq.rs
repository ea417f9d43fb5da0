//! Shared receive queues: which QP gets which receive, events, faults (docs/adapter.md, section 6).
//!
//! Shows: queues

use vrnic_abi::admin::{
    CreateQp, CreateSrq, ModifySrq, Opcode as Admin, Pages, ResizeSrq, Status as Refusal, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::guest::ASYNC_LOG;
use vrnic_testdriver::qp::{ALL, REGION, Setup};
use vrnic_testdriver::srq::LOG_SHARED;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest, SharedQueue};
use crate::messages::datagrams;
use crate::world::World;

/// QPs of guest B that share a receive queue. Each is connected to a QP of guest A.
struct Shared {
    world: World,
    ga: Guest,
    gb: Guest,
    senders: Vec<Endpoint>,
    receivers: Vec<Endpoint>,
    /// The context and the region of the receivers.
    base: Endpoint,
    srq: SharedQueue,
}

impl Shared {
    fn new(count: usize, kind: Type) -> Self {
        Self::in_world(World::default(), count, kind)
    }

    fn in_world(world: World, count: usize, kind: Type) -> Self {
        let (ga, gb) = (world.guest(1), world.guest(2));
        let base = Endpoint::new(&gb, Setup::default());
        let srq = SharedQueue::new(&base);
        let (mut senders, mut receivers) = (vec![], vec![]);
        for _ in 0..count {
            let sender = Endpoint::new(&ga, Setup { kind, ..Setup::default() });
            let receiver = base.sibling(kind, srq.srqn);
            Endpoint::connect_pair(&sender, &receiver);
            senders.push(sender);
            receivers.push(receiver);
        }
        Self { world, ga, gb, senders, receivers, base, srq }
    }

    /// Posts a receive of `len` bytes at offset `wr_id` * 4096.
    fn post(&mut self, wr_id: u64, len: u32) {
        self.srq.post(wr_id, &[self.base.sge(wr_id * 4096, len)]);
    }

    fn send(&mut self, nth: usize, wr: &Wr) {
        self.senders[nth].post_send(wr);
        self.world.settle(&[&self.ga, &self.gb]);
    }

    fn send_text(&mut self, nth: usize, text: &[u8]) {
        let sender = &self.senders[nth];
        sender.fill(0, text);
        let wr = Wr::new(Opcode::Send, &[sender.sge(0, text.len() as u32)]);
        self.send(nth, &wr);
    }

    /// Returns the status of the next send completion.
    fn sent(&mut self, nth: usize) -> Option<Status> {
        self.senders[nth].send_cq.poll().map(|cqe| status(&cqe))
    }

    /// Returns the identifier and the status of the next receive completion.
    fn received(&mut self, nth: usize) -> Option<(u64, Status)> {
        let receiver = &mut self.receivers[nth];
        let cqe = receiver.recv_cq.poll()?;
        assert_eq!(cqe.qpn.get(), receiver.qpn);
        Some((cqe.wr_id.get(), status(&cqe)))
    }

    fn arm(&self, limit: u32) {
        self.gb.command::<command::ModifySrq>(&ModifySrq::new(self.srq.srqn, limit)).expect("arms");
    }
}

const OK: Status = Status::Success;

#[test]
fn qps_take_receives_in_the_order_of_their_messages() {
    for kind in [Type::Rc, Type::Uc] {
        let mut s = Shared::new(3, kind);
        (0..6).for_each(|wr_id| s.post(wr_id, 64));
        for (wr_id, nth) in [2, 0, 1, 1, 2, 0].into_iter().enumerate() {
            let text = [b'a' + wr_id as u8; 20];
            s.send_text(nth, &text);
            assert_eq!(s.sent(nth), Some(OK));
            assert_eq!(s.received(nth), Some((wr_id as u64, OK)));
            assert_eq!(s.base.bytes(wr_id as u64 * 4096, 20), text);
        }
        assert_eq!(s.srq.status().posted.get(), 0);
        assert_eq!(s.gb.drain_events(), [], "no limit was armed");
    }
}

#[test]
fn the_ring_wraps() {
    let mut s = Shared::new(1, Type::Rc);
    for lap in 0..5 {
        (0..8).for_each(|wr_id| s.post(lap * 8 + wr_id, 8));
        for wr_id in 0..8 {
            s.send_text(0, b"12345678");
            assert_eq!((s.sent(0), s.received(0)), (Some(OK), Some((lap * 8 + wr_id, OK))));
        }
    }
}

#[test]
fn a_qp_waits_for_receives_as_with_a_queue_of_its_own() {
    let mut s = Shared::new(2, Type::Rc);
    s.send_text(0, b"early");
    assert_eq!((s.sent(0), s.received(0)), (None, None));
    s.post(1, 8);
    s.world.advance(10_000_000);
    s.world.settle(&[&s.ga, &s.gb]);
    assert_eq!((s.sent(0), s.received(0)), (Some(OK), Some((1, OK))));
    // No receive is posted: the requester gives up, and the state of its peer does not change.
    s.send_text(1, b"lonely");
    for _ in 0..100 {
        s.world.advance(10_000_000);
        s.world.settle(&[&s.ga, &s.gb]);
    }
    assert_eq!(s.sent(1), Some(Status::RnrRetryExcErr));
    assert_eq!(s.receivers[1].state(), State::Rts);
}

/// A command may raise an event while all workers sleep. If the event queue is full, a worker must
/// be woken, which writes the event when there is room.
#[test]
fn a_limit_event_that_is_held_back_wakes_a_worker() {
    let s = Shared::new(1, Type::Rc);
    for _ in 0..1 << (ASYNC_LOG - 1) {
        s.gb.adapter.set_link(false);
        s.gb.adapter.set_link(true);
    }
    assert_eq!(s.gb.adapter.poll(0).deadline, None, "all events were written");
    let wakes = s.gb.host.wakes();
    s.arm(1);
    assert!(s.gb.host.wakes() > wakes);
    assert!(s.gb.adapter.poll(0).deadline.is_some(), "a worker polls again by itself");
    assert_eq!(s.gb.drain_events().len(), 1 << ASYNC_LOG);
    assert!(s.gb.adapter.poll(0).busy);
    assert_eq!(s.gb.drain_events(), [(Kind::SrqLimit, s.srq.srqn)]);
}

#[test]
fn the_limit_event_comes_once_for_each_arming() {
    let mut s = Shared::new(2, Type::Rc);
    (0..8).for_each(|wr_id| s.post(wr_id, 64));
    s.arm(6);
    assert_eq!(s.srq.status().limit.get(), 6);
    for nth in [0, 1] {
        s.send_text(nth, b"x");
    }
    assert_eq!(s.gb.drain_events(), [], "six receives are left");
    s.send_text(0, b"x");
    assert_eq!(s.gb.drain_events(), [(Kind::SrqLimit, s.srq.srqn)]);
    assert_eq!(s.srq.status().limit.get(), 0);
    s.send_text(1, b"x");
    assert_eq!(s.gb.drain_events(), []);
    // Four receives are left: a limit above four is reached at once, a limit of four is not, and a
    // limit of 0 disarms.
    s.arm(5);
    assert_eq!(s.gb.drain_events(), [(Kind::SrqLimit, s.srq.srqn)]);
    s.arm(4);
    s.arm(0);
    s.send_text(0, b"x");
    assert_eq!(s.gb.drain_events(), []);
    let beyond = ModifySrq::new(s.srq.srqn, (1 << LOG_SHARED) + 1);
    assert_eq!(
        s.gb.command::<command::ModifySrq>(&beyond).err(),
        Some(Refused(Refusal::BadParam, 4))
    );
}

#[test]
fn the_last_receive_of_a_failed_qp_is_told_once() {
    let mut s = Shared::new(2, Type::Rc);
    (0..4).for_each(|wr_id| s.post(wr_id, 64));
    s.send_text(0, b"x");
    assert_eq!(s.received(0), Some((0, OK)));
    let (gb, qpn) = (&s.gb, s.receivers[0].qpn);
    s.receivers[0].set_state(State::Err);
    s.world.settle(&[&s.ga, gb]);
    assert_eq!(gb.drain_events(), [(Kind::QpLastWqe, qpn)]);
    // The receives in the SRQ are not flushed.
    assert_eq!(s.received(0), None);
    assert_eq!(s.srq.status().posted.get(), 3);
    s.receivers[0].set_state(State::Err);
    s.world.settle(&[&s.ga, &s.gb]);
    assert_eq!(s.gb.drain_events(), []);
    s.send_text(1, b"y");
    assert_eq!((s.sent(1), s.received(1)), (Some(OK), Some((1, OK))));
    // After the QP was reset and connected again, the event comes again.
    s.receivers[0].set_state(State::Reset);
    let mac = s.ga.mac();
    s.receivers[0].connect(mac, s.senders[0].qpn, |_| {});
    s.receivers[0].set_state(State::Err);
    s.world.settle(&[&s.ga, &s.gb]);
    assert_eq!(s.gb.drain_events(), [(Kind::QpLastWqe, qpn)]);
}

#[test]
fn a_faulty_receive_fails_the_qp_that_took_it_alone() {
    let mut s = Shared::new(2, Type::Rc);
    s.post(0, 4);
    s.post(1, 64);
    s.send_text(0, b"too long for it");
    assert_eq!(s.sent(0), Some(Status::RemInvReqErr));
    assert_eq!(s.received(0), Some((0, Status::LocLenErr)));
    assert_eq!(s.gb.drain_events(), [(Kind::QpLastWqe, s.receivers[0].qpn)]);
    s.send_text(1, b"fits");
    assert_eq!((s.sent(1), s.received(1)), (Some(OK), Some((1, OK))));
}

#[test]
fn receives_name_regions_of_the_pd_of_the_srq() {
    let mut s = Shared::new(1, Type::Rc);
    // An SRQ of another PD, with a QP of the first PD.
    let pdn = s.gb.on_object(Admin::AllocPd, s.base.context).expect("PD");
    let all = ALL;
    let key = s.gb.reg_flat(pdn, all, s.base.buffer, 4096).expect("MR");
    let mut srq = SharedQueue::with(&s.base, |params| params.pdn = pdn.into());
    let receiver = s.base.sibling(Type::Rc, srq.srqn);
    s.senders[0].set_state(State::Reset);
    s.senders[0].connect(s.gb.mac(), receiver.qpn, |_| {});
    receiver.connect(s.ga.mac(), s.senders[0].qpn, |_| {});
    s.receivers[0] = receiver;
    let own = s.base.sge(0, 8);
    srq.post(7, &[vrnic_abi::sq::Sge { lkey: key.into(), ..own }]);
    s.send_text(0, b"via 2nd");
    assert_eq!((s.sent(0), s.received(0)), (Some(OK), Some((7, OK))));
    srq.post(8, &[own]);
    s.send_text(0, b"refused");
    assert_eq!((s.sent(0), s.received(0)), (Some(Status::RemOpErr), Some((8, Status::LocProtErr))));
}

#[test]
fn a_producer_index_beyond_the_ring_fails_the_srq() {
    let mut s = Shared::new(3, Type::Rc);
    s.post(0, 64);
    s.send_text(0, b"good");
    assert_eq!((s.sent(0), s.received(0)), (Some(OK), Some((0, OK))));
    s.srq.publish(1 + (1 << LOG_SHARED) + 1);
    s.send_text(0, b"bad");
    assert_eq!(s.sent(0), Some(Status::RemOpErr));
    let (srqn, qpns) = (s.srq.srqn, [s.receivers[0].qpn, s.receivers[1].qpn]);
    let failed = |qpn| [(Kind::QpFatal, qpn), (Kind::QpLastWqe, qpn)];
    let mut events = vec![(Kind::SrqError, srqn)];
    events.extend(failed(qpns[0]));
    assert_eq!(s.gb.drain_events(), events);
    assert_eq!(s.srq.status().failed.get(), 1);
    // A valid index later does not repair the SRQ. Its other QPs fail when they need a receive.
    s.srq.publish(2);
    assert_eq!(s.receivers[1].state(), State::Rts);
    s.send_text(1, b"late");
    assert_eq!(s.sent(1), Some(Status::RemOpErr));
    assert_eq!(s.gb.drain_events(), failed(qpns[1]));
    // Other SRQs of the guest still work.
    let mut other = SharedQueue::new(&s.base);
    let receiver = s.base.sibling(Type::Rc, other.srqn);
    s.senders[2].set_state(State::Reset);
    s.senders[2].connect(s.gb.mac(), receiver.qpn, |_| {});
    receiver.connect(s.ga.mac(), s.senders[2].qpn, |_| {});
    s.receivers[2] = receiver;
    other.post(5, &[s.base.sge(0, 64)]);
    s.send_text(2, b"well");
    assert_eq!((s.sent(2), s.received(2)), (Some(OK), Some((5, OK))));
}

/// Returns three QPs that are receiving messages, each of which takes more turns than a poll has.
/// Uses memory copies, because over packets the receiver takes no receive in a poll of the sender.
fn three_in_progress() -> Shared {
    let mut s = Shared::in_world(World::copying(), 3, Type::Rc);
    let len = REGION as u32;
    (0..3).for_each(|wr_id| s.srq.post(wr_id, &[s.base.sge(0, len)]));
    s.srq.post(3, &[s.base.sge(0, 64)]);
    for sender in &mut s.senders {
        sender.post_send(&Wr::new(Opcode::Send, &[sender.sge(0, len)]));
    }
    let _busy = s.ga.adapter.poll(0);
    assert_eq!(s.srq.status().posted.get(), 1, "each message has taken a receive");
    (0..3).for_each(|nth| assert_eq!(s.received(nth), None, "no message has ended"));
    s
}

#[test]
fn what_a_qp_took_is_free_when_it_ends() {
    let mut s = three_in_progress();
    assert_eq!(s.srq.freed(), 0);
    s.receivers[0].set_state(State::Reset);
    assert_eq!(s.srq.freed(), 3);
    s.world.settle(&[&s.ga, &s.gb]);
    assert_eq!(s.received(0), None);
    let mut others = [s.received(1), s.received(2)].map(|received| received.expect("arrives").0);
    others.sort_unstable();
    assert_eq!(others, [1, 2]);
    s.send_text(2, b"x");
    assert_eq!(s.srq.freed(), 3);
    s.gb.on_object(Admin::DestroyQp, s.receivers[2].qpn).expect("destroys");
    assert_eq!(s.srq.freed(), 4);
}

#[test]
fn an_error_flushes_the_receive_in_progress_before_the_last_is_told() {
    let mut s = three_in_progress();
    s.receivers[0].set_state(State::Err);
    s.world.settle(&[&s.gb]);
    assert_eq!(s.received(0), Some((0, Status::WrFlushErr)));
    assert_eq!(s.gb.drain_events(), [(Kind::QpLastWqe, s.receivers[0].qpn)]);
    assert_eq!(s.srq.status().posted.get(), 1);
}

#[test]
fn write_with_immediate_uses_up_a_shared_receive() {
    let mut s = Shared::new(1, Type::Rc);
    s.post(3, 0);
    let wr = Wr::new(Opcode::WriteImm, &[s.senders[0].sge(0, 16)]).imm(*b"imm!");
    let wr = wr.to(s.base.buffer, s.base.key).flags(Flags::SIGNALED | Flags::SOLICITED);
    s.send(0, &wr);
    assert_eq!(s.sent(0), Some(OK));
    let cqe = s.receivers[0].recv_cq.poll().expect("completion");
    assert_eq!((cqe.wr_id.get(), cqe.imm, cqe.byte_len.get()), (3, *b"imm!", 16));
}

#[test]
fn datagrams_take_shared_receives() {
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let base = Endpoint::new(&gb, Setup::default());
    let mut srq = SharedQueue::new(&base);
    let mut receivers = [(); 2].map(|()| base.sibling(Type::Ud, srq.srqn));
    let mut sender = Endpoint::new(&ga, Setup { kind: Type::Ud, ..Setup::default() });
    for (guest, endpoint, number) in [(&ga, &sender, 1), (&gb, &receivers[0], 2)] {
        datagrams::set_gids(guest, number);
        datagrams::ready(endpoint);
    }
    datagrams::ready(&receivers[1]);
    (0..2).for_each(|wr_id| srq.post(wr_id, &[base.sge(wr_id * 4096, 100)]));
    for nth in [1, 0, 0] {
        let to = datagrams::path(&gb, receivers[nth].qpn, datagrams::ipv4(2));
        sender.post_send(&datagrams::datagram(&[sender.sge(0, 10)], to));
        world.settle(&[&ga, &gb]);
        assert_eq!(sender.send_cq.poll().map(|cqe| status(&cqe)), Some(OK));
    }
    let first = receivers[1].recv_cq.poll().expect("received");
    let second = receivers[0].recv_cq.poll().expect("received");
    assert_eq!([first.wr_id.get(), second.wr_id.get()], [0, 1]);
    assert_eq!([first.byte_len.get(), second.byte_len.get()], [50; 2]);
    // The third datagram has found no receive.
    assert!(receivers[0].recv_cq.poll().is_none());
    assert_eq!(datagrams::lost(&ga, &gb), 1);
}

/// Shows: queues
#[test]
fn a_queue_grows_and_shrinks_with_its_receives() {
    let mut s = Shared::new(1, Type::Rc);
    let mut wr_id = 0;
    let mut first = 0;
    for log_size in [LOG_SHARED + 2, LOG_SHARED, LOG_SHARED - 1, LOG_SHARED + 1] {
        // Three receives are posted when the ring changes, at a place that moves.
        (0..3).for_each(|nth| s.post(wr_id + nth, 64));
        s.srq.resize(first, log_size).expect("RESIZE_SRQ");
        let room = (1 << log_size) - 3;
        (0..room).for_each(|nth| s.post(wr_id + 3 + nth, 64));
        for _ in 0..1 << log_size {
            s.send_text(0, b"12345678");
            assert_eq!((s.sent(0), s.received(0)), (Some(OK), Some((wr_id, OK))));
            wr_id += 1;
        }
        first += 1 << log_size;
    }
}

#[test]
fn a_queue_does_not_shrink_below_its_receives_and_its_limit() {
    let mut s = Shared::new(1, Type::Rc);
    let refused = |queue: &mut SharedQueue, log_size| queue.resize(0, log_size).err();
    let busy = Some(Refused(Refusal::Busy, 0));
    (0..3).for_each(|wr_id| s.post(wr_id, 64));
    assert_eq!(refused(&mut s.srq, 1), busy);
    s.arm(3);
    assert_eq!(refused(&mut s.srq, 1), busy);
    assert_eq!(refused(&mut s.srq, 16), Some(Refused(Refusal::BadParam, 20)));
    let missing = ResizeSrq::new(999, 2, Pages::new(s.gb.ram().alloc(1 << 12), 12, 0));
    let missing = s.gb.command::<command::ResizeSrq>(&missing).err();
    assert_eq!(missing, Some(Refused(Refusal::NotFound, 0)));
    let nowhere = ResizeSrq::new(s.srq.srqn, 2, Pages::new(1, 12, 0));
    let nowhere = s.gb.command::<command::ResizeSrq>(&nowhere).err();
    assert_eq!(nowhere, Some(Refused(Refusal::BadParam, 0)));
    for wr_id in 0..3 {
        s.send_text(0, b"12345678");
        assert_eq!((s.sent(0), s.received(0)), (Some(OK), Some((wr_id, OK))));
    }
    s.srq.resize(3, 1).expect("an empty queue whose limit has been reached");
}

#[test]
fn parameters_are_checked() {
    let world = World::default();
    let guest = world.guest(1);
    let (a, b) = (Endpoint::new(&guest, Setup::default()), Endpoint::new(&guest, Setup::default()));
    let ring = guest.ram().alloc(1 << 12);
    let good = CreateSrq {
        pages: Pages::new(ring, 12, 0),
        pdn: a.pdn.into(),
        uar: a.uar.into(),
        log_size: 4,
        log_stride: 5,
        ..CreateSrq::default()
    };
    let refused = |params: CreateSrq| guest.command::<command::CreateSrq>(&params).err();
    let bad = |offset| Some(Refused(Refusal::BadParam, offset));
    assert_eq!(refused(CreateSrq { log_size: 16, ..good }), bad(32));
    assert_eq!(refused(CreateSrq { log_stride: 4, ..good }), bad(33));
    assert_eq!(refused(CreateSrq { log_stride: 10, ..good }), bad(33));
    assert_eq!(refused(CreateSrq { srq_type: 2, ..good }), bad(34));
    assert_eq!(refused(CreateSrq { xrcdn: 1.into(), ..good }), bad(24));
    assert_eq!(refused(CreateSrq { cqn: 1.into(), ..good }), bad(28));
    assert_eq!(refused(CreateSrq { pages: Pages::new(ring + 1, 12, 0), ..good }), bad(0));
    let foreign = Some(Refused(Refusal::Permission, 0));
    assert_eq!(refused(CreateSrq { uar: b.uar.into(), ..good }), foreign);
    let missing = Some(Refused(Refusal::NotFound, 0));
    assert_eq!(refused(CreateSrq { pdn: 999.into(), ..good }), missing);
    assert_eq!(refused(CreateSrq { uar: 999.into(), ..good }), missing);
    let srqn = guest.command::<command::CreateSrq>(&good).expect("CREATE_SRQ").srqn.get();
    let qp = CreateQp { srqn: srqn.into(), ..a.params() };
    // A QP cannot have both its own receive queue and a shared one.
    assert_eq!(guest.create_qp(&qp).err(), bad(22));
    let shared = CreateQp { rq_log_size: vrnic_abi::admin::NO_QUEUE, ..qp };
    let theirs = CreateQp { pdn: b.pdn.into(), send_cqn: b.send_cq.cqn.into(), ..shared };
    let theirs = CreateQp { recv_cqn: b.recv_cq.cqn.into(), uar: b.uar.into(), ..theirs };
    assert_eq!(guest.create_qp(&theirs).err(), foreign);
    assert_eq!(guest.create_qp(&CreateQp { srqn: 999.into(), ..shared }).err(), missing);
    let (qpn, ..) = guest.create_qp(&shared).expect("QP");
    assert_eq!(guest.on_object(Admin::DestroySrq, srqn), Err(Refused(Refusal::Busy, 0)));
    guest.on_object(Admin::DestroyQp, qpn).expect("DESTROY_QP");
    guest.on_object(Admin::DestroySrq, srqn).expect("DESTROY_SRQ");
    assert_eq!(guest.on_object(Admin::DestroySrq, srqn), Err(Refused(Refusal::NotFound, 0)));
}

#[test]
fn the_limits_told_are_kept() {
    let world = World::default();
    let guest = world.guest(1);
    let e = Endpoint::new(&guest, Setup::default());
    let ring = guest.ram().alloc(1 << 12);
    let params = CreateSrq {
        pages: Pages::new(ring, 12, 0),
        pdn: e.pdn.into(),
        log_size: 0,
        log_stride: 5,
        ..CreateSrq::default()
    };
    let max = guest.caps().max_srq.get();
    let mut made = 0;
    let last = 'all: loop {
        // A UAR runs out of slots long before the limit of SRQs.
        let uar = guest.on_object(Admin::AllocUar, e.context).expect("UAR");
        for _ in 0..vrnic_abi::uar::SLOTS {
            match guest.command::<command::CreateSrq>(&CreateSrq { uar: uar.into(), ..params }) {
                Ok(_) => made += 1,
                Err(refused) => break 'all refused,
            }
        }
    };
    assert_eq!((made, last), (max, Refused(Refusal::NoResource, 0)));
}

//! No adapter holds its worker for long, whatever its guest does: on a clock that moves with the
//! work, each poll is short, and all work is done once and in order.
//!
//! Shows: hostile

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use vrnic_abi::admin::{CreateCq, CreateQp, ModifyCq, MwType, Opcode as Admin, Pages, command};
use vrnic_abi::cq::Status;
use vrnic_abi::doorbell::{CQ_SEEN, RQ_PI, arm_request, ci_and_arm};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, AttrMask, GRH_LEN, State, Type};
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::{self, ARM_NEXT};
use vrnic_adapter::limits::Limits;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{INIT, Setup, TO_RTS, attributes};
use vrnic_testdriver::wr::Wr;

use crate::bus::{CompletionQueue, Endpoint, Guest};
use crate::host::TestHost;
use crate::memory::keys::{BINDABLE, alloc_mw, bind, local_inv};
use crate::messages::datagrams::{datagram, ready};
use crate::messages::multicast::{GROUP, attach, detach, to};
use crate::world::{Pair, World};

/// Maximum time of a poll, in ns.
pub(crate) const MAX_POLL_NS: u64 = 200_000;

/// Polls guests until none of them has work, calls `meanwhile` after each round, and checks that no
/// poll was too long.
pub(crate) fn settle(world: &World, guests: &[&Guest], what: &str, mut meanwhile: impl FnMut()) {
    let mut longest = 0;
    for _ in 0..100_000 {
        let mut busy = false;
        for guest in guests {
            let start = world.clock.load(Ordering::Acquire);
            busy |= guest.adapter.poll(0).busy;
            longest = longest.max(world.clock.load(Ordering::Acquire) - start);
        }
        meanwhile();
        if !busy {
            assert!(longest <= MAX_POLL_NS, "{what}: a poll of {} µs", longest / 1000);
            return;
        }
    }
    panic!("{what}: the adapters still have work");
}

/// Bytes of a datagram.
const LEN: u32 = 4096;

/// Returns members of a group on B. Each has receives whose first segments lie apart.
pub(crate) fn members(p: &Pair, count: u64) -> Vec<Endpoint> {
    let mut members = Vec::new();
    for nth in 0..count {
        let mut member = p.b.beside(|params| params.qp_type = Type::Ud as u8);
        ready(&member);
        assert_eq!(attach(&p.gb, member.qpn, GROUP), Ok(()));
        for wr_id in 0..16 {
            let place = member.sge((nth * 16 + wr_id) * 64, 4 + GRH_LEN);
            let rest = member.sge(1 << 20, LEN - 4);
            member.post_recv(wr_id, &[place, rest]);
        }
        members.push(member);
    }
    members
}

/// Sends a datagram that begins with this number. Each has its own buffer.
pub(crate) fn post(p: &mut Pair, number: u32) {
    let at = u64::from(number * LEN);
    p.a.fill(at, &number.to_le_bytes());
    let wr = datagram(&[p.a.sge(at, LEN)], to(GROUP)).id(number.into());
    p.a.post_send(&wr);
}

/// Returns the numbers of the datagrams that member `nth` has received.
fn received(nth: u64, member: &mut Endpoint) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some(cqe) = member.recv_cq.poll() {
        let at = (nth * 16 + cqe.wr_id.get()) * 64 + u64::from(GRH_LEN);
        let bytes = member.bytes(at, 4);
        numbers.push(u32::from_le_bytes(bytes.try_into().expect("four bytes")));
    }
    numbers
}

#[test]
fn a_storm_of_multicast() {
    let mut p = Pair::ud();
    let mut all = members(&p, 256);
    (0..16).for_each(|number| post(&mut p, number));
    p.take_time();
    settle(&p.world, &[&p.ga, &p.gb], "multicast", || {});
    for (nth, member) in (0..).zip(&mut all) {
        assert_eq!(received(nth, member), (0..16).collect::<Vec<_>>(), "member {nth}");
    }
    let sent = std::iter::from_fn(|| p.a.send_cq.poll()).map(|cqe| cqe.wr_id.get());
    assert_eq!(sent.collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
}

/// Returns a state in which a datagram has reached some of 256 members.
fn half_way() -> (Pair, Vec<Endpoint>) {
    let mut p = Pair::ud();
    let all = members(&p, 256);
    post(&mut p, 0);
    p.take_time();
    assert!(p.ga.adapter.poll(0).busy);
    (p, all)
}

/// QPs join and leave the group while a datagram is on its way to them.
#[test]
fn membership_changes_during_a_datagram() {
    let (mut p, mut all) = half_way();
    let has = |member: &Endpoint| member.recv_cq.peek().is_some();
    assert!(has(&all[0]) && !has(&all[255]), "the datagram is not half-way");
    assert!(p.a.send_cq.peek().is_none());
    // A member that was served joins again, one that was not served leaves, one is destroyed, and a
    // new one joins.
    for member in [&all[0], &all[254]] {
        assert_eq!(detach(&p.gb, member.qpn, GROUP), Ok(()));
    }
    assert_eq!(attach(&p.gb, all[0].qpn, GROUP), Ok(()));
    assert!(p.gb.on_object(Admin::DestroyQp, all[253].qpn).is_ok());
    let mut late = p.b.beside(|params| params.qp_type = Type::Ud as u8);
    ready(&late);
    let place = late.sge(2 << 20, LEN + GRH_LEN);
    late.post_recv(0, &[place]);
    assert_eq!(attach(&p.gb, late.qpn, GROUP), Ok(()));
    settle(&p.world, &[&p.ga, &p.gb], "multicast", || {});
    assert_eq!(p.a.send_cq.poll().map(|cqe| status(&cqe)), Some(Status::Success));
    assert!(late.recv_cq.peek().is_none());
    // The next datagram goes to the current members.
    post(&mut p, 1);
    settle(&p.world, &[&p.ga, &p.gb], "multicast", || {});
    assert!(late.recv_cq.poll().is_some() && late.recv_cq.poll().is_none());
    for (nth, member) in (0..).zip(&mut all) {
        let expected = if matches!(nth, 253 | 254) { vec![] } else { vec![0, 1] };
        assert_eq!(received(nth, member), expected, "member {nth}");
    }
}

/// A QP that fails in the middle of a multicast flushes it, and no further member receives it.
#[test]
fn failure_during_a_datagram() {
    let (mut p, mut all) = half_way();
    p.a.set_state(State::Err);
    settle(&p.world, &[&p.ga, &p.gb], "multicast", || {});
    let sent = p.a.send_cq.poll().expect("completion");
    assert_eq!((status(&sent), sent.wr_id.get()), (Status::WrFlushErr, 0));
    assert!(p.a.send_cq.poll().is_none());
    assert_eq!(received(0, &mut all[0]), [0]);
    assert!(received(255, &mut all[255]).is_empty());
}

/// Creates QPs that share rings, each with its own slot, and moves them to this state.
fn make_qps(guest: &Guest, params: &CreateQp, context: u32, count: u32, to: State) -> Vec<Slot> {
    let (mut uar, mut free) = (0, 0);
    let mut made = Vec::new();
    let attr = attributes(guest.mac(), 0);
    for _ in 0..count {
        if free == 0 {
            uar = guest.on_object(Admin::AllocUar, context).expect("UAR");
            free = uar::SLOTS;
        }
        free -= 1;
        let params = CreateQp { uar: uar.into(), ..*params };
        let (id, slot, _) = guest.create_qp(&params).expect("QP");
        guest.take_through(id, attr, &TO_RTS);
        if to != State::Rts {
            let attr = Attr { state: to as u8, ..Attr::default() };
            guest.modify_qp(id, AttrMask::STATE, &attr).expect("MODIFY_QP");
        }
        made.push(Slot { id, uar, slot });
    }
    made
}

/// An object and its doorbell.
struct Slot {
    id: u32,
    uar: u32,
    slot: u32,
}

#[test]
fn a_cq_with_ten_thousand_queue_pairs_fails() {
    let mut p = Pair::with(Setup { log_cqes: 1, ..Setup::default() }, |_| {});
    let cqn = p.a.send_cq.cqn;
    let params = CreateQp { send_cqn: cqn.into(), recv_cqn: cqn.into(), ..p.a.params() };
    let qps = make_qps(&p.ga, &params, p.a.context, 10_000, State::Rts);
    // A QP that is destroyed, and QPs that do not use the CQ, are not affected.
    assert!(p.ga.on_object(Admin::DestroyQp, qps[77].id).is_ok());
    let own = p.a.recv_cq.cqn.into();
    let others = CreateQp { send_cqn: own, recv_cqn: own, ..params };
    let others = make_qps(&p.ga, &others, p.a.context, 10, State::Rts);
    for wr_id in 0..3 {
        let wr = Wr::new(Opcode::Write, &[p.a.sge(0, 8)]).to(p.b.buffer, p.b.key).id(wr_id);
        p.a.post_send(&wr);
    }
    p.take_time();
    let mut events = Vec::new();
    while events.len() < 10_001 {
        let before = events.len();
        settle(&p.world, &[&p.ga, &p.gb], "failing CQ", || events.extend(p.ga.drain_events()));
        assert!(events.len() > before, "{before} events and no more");
        p.world.advance(1_000_000);
    }
    assert_eq!(events[0], (Kind::CqError, cqn));
    let mut failed = BTreeMap::<u32, u32>::new();
    for (kind, qpn) in &events[1..] {
        assert_eq!(*kind, Kind::QpFatal);
        *failed.entry(*qpn).or_default() += 1;
    }
    for (nth, Slot { id, .. }) in qps.iter().enumerate().filter(|(nth, _)| *nth != 77) {
        assert_eq!(failed.remove(id), Some(1), "QP {nth}");
        assert_eq!(p.ga.adapter.qp(*id).map(|qp| qp.state()), Some(State::Err), "QP {nth}");
    }
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(p.a.qpn, 1)]);
    for Slot { id, .. } in others {
        assert_eq!(p.ga.adapter.qp(id).map(|qp| qp.state()), Some(State::Rts));
    }
}

/// Creates CQs of one entry, all on the same ring.
fn make_cqs(guest: &Guest, context: u32, eqn: u32, count: u32) -> Vec<Slot> {
    let ring = guest.ram().alloc(4096);
    let (mut uar, mut free) = (0, 0);
    let make = |_| {
        if free == 0 {
            uar = guest.on_object(Admin::AllocUar, context).expect("UAR");
            free = uar::SLOTS;
        }
        free -= 1;
        let params = CreateCq::new(uar, eqn, 0, Pages::new(ring, 12, 0));
        let result = guest.command::<command::CreateCq>(&params).expect("CREATE_CQ");
        Slot { id: result.cqn.get(), uar, slot: result.slot.get() }
    };
    (0..count).map(make).collect()
}

/// Arms a CQ so that its event is due at once, as if the program had overlooked a completion.
fn arm(guest: &Guest, cq: &Slot, round: u32) {
    guest.slot32(cq.uar, cq.slot, CQ_SEEN).store(u32::MAX, Ordering::Release);
    let word = ci_and_arm(0, arm_request(round, ARM_NEXT));
    guest.slot64(cq.uar, cq.slot).store(word, Ordering::Release);
    guest.ring(cq.uar, cq.slot);
}

/// Checks that each CQ has `expected` completion events.
fn expect_events(events: &[(Kind, u32)], cqs: &[Slot], expected: u32) {
    let mut counts = BTreeMap::<u32, u32>::new();
    for (kind, cqn) in events {
        assert_eq!(*kind, Kind::Completion);
        *counts.entry(*cqn).or_default() += 1;
    }
    assert!(cqs.iter().all(|cq| counts.get(&cq.id) == Some(&expected)), "events of a CQ");
    assert_eq!(counts.len(), cqs.len());
}

#[test]
fn doorbells_of_all_queues_at_once_and_events_that_were_held_back() {
    const QUEUES: u32 = 20_000;
    let world = World::default();
    let guest = world.guest(1);
    let context = guest.command::<command::AllocContext>(&()).expect("context");
    // The event queue has room for half of the events.
    let (eqn, mut queue) = guest.create_eq(1, 13).expect("CREATE_EQ");
    let cqs = make_cqs(&guest, context.get(), eqn, QUEUES);
    guest.host.take_time();
    cqs.iter().for_each(|cq| arm(&guest, cq, 1));
    settle(&world, &[&guest], "doorbells", || {});
    let mut events: Vec<_> = std::iter::from_fn(|| queue.poll()).collect();
    assert_eq!(events.len(), 1 << 13);
    while events.len() < QUEUES as usize {
        settle(&world, &[&guest], "held events", || {});
        let before = events.len();
        events.extend(std::iter::from_fn(|| queue.poll()));
        assert!(events.len() > before, "held events are not written");
        world.advance(1_000_000);
    }
    expect_events(&events, &cqs, 1);
}

#[test]
fn moderated_events_that_are_due_at_once() {
    const QUEUES: u32 = 8_000;
    let p = Pair::new();
    let (eqn, mut queue) = p.ga.create_eq(2, 13).expect("CREATE_EQ");
    let cqs = make_cqs(&p.ga, p.a.context, eqn, QUEUES);
    let params = p.a.params();
    let mut qps = Vec::new();
    let mut uar = p.a.uar;
    for (nth, cq) in cqs.iter().enumerate() {
        let moderate = ModifyCq::new(cq.id, 2, 60_000);
        assert!(p.ga.command::<command::ModifyCq>(&moderate).is_ok());
        if nth % 900 == 0 {
            uar = p.ga.on_object(Admin::AllocUar, p.a.context).expect("UAR");
        }
        let params = CreateQp { send_cqn: cq.id.into(), uar: uar.into(), ..params };
        let (id, slot, _) = p.ga.create_qp(&params).expect("QP");
        let attr = attributes(p.ga.mac(), 0);
        p.ga.take_through(id, attr, &[(State::Init, INIT), (State::Err, AttrMask::STATE)]);
        qps.push(Slot { id, uar, slot });
    }
    p.ga.host.take_time();
    // Arms each CQ for its next completion, and then makes one: a send that is flushed.
    for cq in &cqs {
        let word = ci_and_arm(0, arm_request(1, ARM_NEXT));
        p.ga.slot64(cq.uar, cq.slot).store(word, Ordering::Release);
        p.ga.ring(cq.uar, cq.slot);
    }
    settle(&p.world, &[&p.ga], "arming", || {});
    for qp in &qps {
        p.ga.slot32(qp.uar, qp.slot, 0).store(1, Ordering::Release);
        p.ga.ring(qp.uar, qp.slot);
    }
    settle(&p.world, &[&p.ga], "flushing", || {});
    assert_eq!(queue.poll(), None, "an event did not wait");
    p.world.advance(60_000_000);
    settle(&p.world, &[&p.ga], "moderated events", || {});
    let events: Vec<_> = std::iter::from_fn(|| queue.poll()).collect();
    expect_events(&events, &cqs, 1);
}

#[test]
fn long_messages_of_many_segments() {
    long_messages("long messages", |_| {});
}

/// The kernel allocates each page of such memory when the adapter uses it for the first time.
#[test]
fn long_messages_in_memory_that_nobody_has_used() {
    long_messages("fresh memory", TestHost::slow_memory);
}

fn long_messages(what: &str, prepare: impl Fn(&TestHost)) {
    const MIB: u32 = 1 << 20;
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let mut pairs = Vec::new();
    for nth in 0..16u8 {
        let (mut a, b) =
            (Endpoint::new(&ga, Setup::default()), Endpoint::new(&gb, Setup::default()));
        Endpoint::connect_pair(&a, &b);
        for message in 0..4u8 {
            let at = u64::from(message) * u64::from(MIB);
            a.fill(at, &vec![nth * 4 + message; MIB as usize]);
            let sges: Vec<_> = (0..16).map(|n| a.sge(at + n * 65_536, 65_536)).collect();
            // All messages go to the same address, each one byte further: at the end, the last
            // message is there.
            let to = b.buffer + u64::from(message);
            let wr = Wr::new(Opcode::Write, &sges).to(to, b.key).id(message.into());
            a.store_send(&wr);
        }
        a.ring();
        pairs.push((a, b));
    }
    ga.host.take_time();
    gb.host.take_time();
    [&ga.host, &gb.host].into_iter().for_each(prepare);
    settle(&world, &[&ga, &gb], what, || {});
    for (nth, (a, b)) in (0u8..).zip(&mut pairs) {
        for message in 0..4 {
            let cqe = a.send_cq.poll().expect("completion");
            assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::Success, message));
        }
        let first = b.bytes(0, 3);
        assert_eq!(first, [nth * 4, nth * 4 + 1, nth * 4 + 2]);
        assert_eq!(b.bytes(3, MIB as usize), vec![nth * 4 + 3; MIB as usize]);
    }
}

#[test]
fn full_queues_are_flushed() {
    const LOG: u8 = 8;
    let p = Pair::new();
    let cq = CompletionQueue::create(&p.ga, p.a.uar, p.a.eqn, 16).expect("CQ");
    let ring = p.ga.ram().alloc(1 << (LOG + 9));
    let params = CreateQp {
        send_cqn: cq.cqn.into(),
        recv_cqn: cq.cqn.into(),
        sq_table: ring.into(),
        rq_table: ring.into(),
        sq_log_size: LOG,
        rq_log_size: LOG,
        ..p.a.params()
    };
    let qps = make_qps(&p.ga, &params, p.a.context, 100, State::Rts);
    for qp in &qps {
        p.ga.slot32(qp.uar, qp.slot, RQ_PI).store(1 << LOG, Ordering::Release);
        let attr = Attr { state: State::Err as u8, ..Attr::default() };
        p.ga.modify_qp(qp.id, AttrMask::STATE, &attr).expect("MODIFY_QP");
        p.ga.slot32(qp.uar, qp.slot, 0).store(1 << LOG, Ordering::Release);
        p.ga.ring(qp.uar, qp.slot);
    }
    p.ga.host.take_time();
    settle(&p.world, &[&p.ga], "flush", || {});
    expect_flushed(cq, &qps, 1 << LOG);
}

/// Checks that `count` sends and `count` receives of each QP were flushed in order.
fn expect_flushed(mut cq: CompletionQueue, qps: &[Slot], count: u32) {
    let mut next = BTreeMap::<(u32, bool), u32>::new();
    while let Some(cqe) = cq.poll() {
        assert_eq!(status(&cqe), Status::WrFlushErr);
        let of = next.entry((cqe.qpn.get(), cqe.opcode >= 0x80)).or_default();
        assert_eq!(cqe.wqe_index.get(), *of, "QP {}", cqe.qpn.get());
        *of += 1;
    }
    for qp in qps {
        assert_eq!([next[&(qp.id, false)], next[&(qp.id, true)]], [count; 2], "QP {}", qp.id);
    }
}

/// Each wait until a key is no longer used may take as long as a turn of another worker.
#[test]
fn waits_for_readers_of_keys() {
    let world = World::default();
    // A second worker, which may hold the memory during its turn.
    let guest = world.guest_with(1, 2, Limits::default());
    let mut e = Endpoint::new(&guest, Setup::default());
    e.connect(guest.mac(), e.qpn, |_| {});
    let region = guest.reg_flat(e.pdn, BINDABLE, e.buffer, 4096).expect("MR");
    let windows: Vec<u32> = (0..8).map(|_| alloc_mw(&guest, e.pdn, MwType::Type2)).collect();
    for (nth, window) in (0..).zip(windows) {
        e.store_send(&bind(window, region, e.buffer, 4096, 0).id(2 * nth));
        e.store_send(&local_inv(window).id(2 * nth + 1));
    }
    e.ring();
    guest.host.take_time();
    settle(&world, &[&guest], "invalidation", || {});
    for wr_id in 0..16 {
        let cqe = e.send_cq.poll().expect("completion");
        assert_eq!((status(&cqe), cqe.wr_id.get()), (Status::Success, wr_id));
    }
}

//! Arming, event queues, interrupts: no event is lost, and no event comes twice.
//!
//! Shows: completions

mod asynchronous;

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use vrnic_abi::admin::{
    CreateEq, CreateQp, ModifyCq, Opcode as Admin, Pages, Status as Refusal, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::doorbell::{Doorbell, arm_of};
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::regs;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::{ARM_NEXT, ARM_SOLICITED};
use vrnic_adapter::host::DoorbellBar;
use vrnic_adapter::objects::pace::Ceilings;
use vrnic_packet::Nanos;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{CompletionQueue, Endpoint};
use crate::world::{Pair, World};

fn send(p: &mut Pair, wr_id: u64, flags: Flags) {
    p.b.post_recv(wr_id, &[]);
    p.run(&Wr::new(Opcode::Send, &[]).id(wr_id).flags(flags));
}

/// Returns the completion events of B since the last call.
fn events(p: &mut Pair) -> Vec<u32> {
    let events = std::iter::from_fn(|| p.b.events.poll());
    let mut events = events.collect::<Vec<_>>();
    assert!(events.iter().all(|(kind, _)| *kind == Kind::Completion));
    events.drain(..).map(|(_, id)| id).collect()
}

/// Shows: completions
#[test]
fn an_unarmed_cq_is_silent_and_an_armed_one_fires_once() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    send(&mut p, 1, Flags::empty());
    assert_eq!((events(&mut p), p.gb.host.interrupts(1)), (vec![], 0));
    assert!(p.received().is_some());
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    assert_eq!((events(&mut p), p.gb.host.interrupts(1)), (vec![], 0));
    send(&mut p, 2, Flags::empty());
    send(&mut p, 3, Flags::empty());
    assert_eq!((events(&mut p), p.gb.host.interrupts(1)), (vec![cqn], 1));
    let stats = p.gb.stats();
    assert_eq!(stats.completion_events.get(), 1);
}

#[test]
fn arming_looks_back_to_the_consumer_index() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    send(&mut p, 1, Flags::empty());
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    assert_eq!(events(&mut p), [cqn], "a completion lies behind the index");
    assert!(p.received().is_some());
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    assert!(events(&mut p).is_empty(), "all completions were seen");
}

/// The adapter is so late that more entries than the ring has have come and gone since the request.
#[test]
fn arming_looks_back_over_more_than_the_ring() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    let size = u64::from(p.b.recv_cq.size());
    for (kind, flags) in [(ARM_NEXT, Flags::empty()), (ARM_SOLICITED, Flags::SOLICITED)] {
        let seen = p.b.recv_cq.ci;
        for round in 0..=size {
            send(&mut p, round, flags);
            assert!(p.received().is_some());
        }
        p.b.recv_cq.arm_from(kind, seen);
        p.settle();
        assert_eq!(events(&mut p), [cqn]);
        // An index that the adapter has not reached is no reason for an event.
        p.b.recv_cq.arm_from(kind, p.b.recv_cq.ci + 1);
        p.settle();
        assert!(events(&mut p).is_empty());
        send(&mut p, 1, flags);
        assert_eq!(events(&mut p), [cqn]);
        assert!(p.received().is_some());
    }
}

#[test]
fn solicited_events() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    p.b.recv_cq.arm(ARM_SOLICITED);
    send(&mut p, 1, Flags::empty());
    assert!(events(&mut p).is_empty());
    send(&mut p, 2, Flags::SOLICITED);
    assert_eq!(events(&mut p), [cqn]);
    // The adapter looks for a solicited entry after an entry that is not solicited.
    assert_eq!(p.received().expect("first").flags.get(), 0);
    p.b.recv_cq.arm(ARM_SOLICITED);
    p.settle();
    assert_eq!(events(&mut p), [cqn]);
    assert_eq!(p.received().expect("second").flags.get(), 2);
    p.b.recv_cq.arm(ARM_SOLICITED);
    p.settle();
    assert!(events(&mut p).is_empty());
    // An error counts as solicited.
    p.b.post_recv(3, &[]);
    p.b.set_state(State::Err);
    p.settle();
    assert_eq!(events(&mut p), [cqn]);
}

/// Two threads that share a CQ may wait for different events of it.
#[test]
fn a_request_for_solicited_events_leaves_one_for_any_event() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    for (round, kinds) in [[ARM_NEXT, ARM_SOLICITED], [ARM_SOLICITED, ARM_NEXT]].iter().enumerate()
    {
        for kind in kinds {
            p.b.recv_cq.arm(*kind);
            p.settle();
            let doorbell = Doorbell::new(p.b.recv_cq.uar.into(), p.b.recv_cq.slot.into());
            let words = doorbell.cq_ci_and_arm();
            let read = p.gb.host.bar_load32(doorbell.cq_taken());
            assert_eq!(read, arm_of(p.gb.host.bar_load64(words)), "the request is read");
        }
        send(&mut p, round as u64, Flags::empty());
        assert_eq!(events(&mut p), [cqn], "round {round}");
        assert!(p.received().is_some());
        // The event has ended both requests.
        p.b.recv_cq.arm(ARM_SOLICITED);
        send(&mut p, 9, Flags::empty());
        assert!(events(&mut p).is_empty(), "round {round}");
        assert!(p.received().is_some());
        send(&mut p, 9, Flags::SOLICITED);
        assert_eq!(events(&mut p), [cqn], "round {round}");
        assert!(p.received().is_some());
    }
}

#[test]
fn an_unread_event_stands_for_later_ones() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    for round in 0..10 {
        p.b.recv_cq.arm(ARM_NEXT);
        p.settle();
        send(&mut p, round, Flags::empty());
        assert!(p.received().is_some());
    }
    assert_eq!(events(&mut p), [cqn]);
    // When the guest has read the event, the next event is written.
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    send(&mut p, 11, Flags::empty());
    assert_eq!(events(&mut p), [cqn]);
}

/// Twenty CQs use an event queue of sixteen entries: four events wait until the queue has room.
#[test]
fn a_full_event_queue_holds_events_back() {
    let world = World::default();
    let guest = world.guest(1);
    let (eqn, mut eq) = guest.create_eq(2, 4).expect("CREATE_EQ");
    let mut cqs: Vec<_> =
        (0..20).map(|_| CompletionQueue::create(&guest, 0, eqn, 4).expect("CQ")).collect();
    let mac = guest.mac();
    let mut all: Vec<u32> = cqs.iter().map(|cq| cq.cqn).collect();
    let mut source = Endpoint::new(&guest, Setup { kernel: true, ..Setup::default() });
    for round in 0..3 {
        let mut wakes = Vec::new();
        for cq in &mut cqs {
            let before = guest.host.wakes();
            cq.arm(ARM_NEXT);
            world.settle(&[&guest]);
            // A flushed request completes on the CQ.
            let cqn = cq.cqn.into();
            source.set_qp(&CreateQp { send_cqn: cqn, recv_cqn: cqn, ..source.params() });
            source.connect(mac, source.qpn, |_| {});
            source.post_recv(1, &[]);
            source.set_state(State::Err);
            world.settle(&[&guest]);
            assert_eq!(guest.on_object(Admin::DestroyQp, source.qpn), Ok(0));
            assert_eq!(status(&cq.poll().expect("flushed")), Status::WrFlushErr);
            wakes.push(guest.host.wakes() - before);
        }
        // The worker that holds an event back may be a worker of another adapter, so it also wakes
        // this adapter's worker.
        let (with_room, held) = wakes.split_at(16);
        assert!(with_room.iter().all(|n| *n == with_room[0]), "{wakes:?}");
        assert!(held.iter().all(|n| *n == with_room[0] + 1), "{wakes:?}");
        let mut seen: Vec<u32> = Vec::new();
        for _ in 0..16 {
            seen.push(eq.poll().expect("an event").1);
        }
        assert_eq!(eq.poll(), None, "the queue has sixteen entries");
        assert!(guest.adapter.poll(0).busy, "held events move when there is room");
        for _ in 0..4 {
            seen.push(eq.poll().expect("an event that was held back").1);
        }
        assert_eq!(eq.poll(), None);
        seen.sort_unstable();
        all.sort_unstable();
        assert_eq!(seen, all, "round {round}");
        assert!(guest.host.interrupts(2) > 0);
    }
}

/// An event after an event that the guest has not read raises no interrupt, because the guest will
/// read it, too. When all events are read, the next event raises an interrupt.
#[test]
fn events_behind_unread_ones_raise_no_interrupt() {
    let guest = crate::world::guest();
    let _of_commands = guest.host.interrupts(0);
    for round in 0..3 {
        assert_eq!((guest.drain_events(), guest.host.interrupts(0)), (vec![], 0), "{round}");
        for _ in 0..3 {
            guest.adapter.set_link(false);
            guest.adapter.set_link(true);
        }
        assert_eq!(guest.host.interrupts(0), 1, "round {round}");
        assert!(guest.event().is_some());
        guest.adapter.set_link(false);
        guest.adapter.set_link(true);
        assert_eq!(guest.host.interrupts(0), 0, "entries are unread still");
        assert_eq!(guest.drain_events().len(), 7);
    }
}

/// An unread event of a CQ stands for later events of it. An entry of an earlier lap of the 32-bit
/// index does not, nor does the same entry with an event of another CQ.
#[test]
fn an_event_of_another_stands_for_nothing() {
    let mut p = Pair::new();
    let (recv, send_cqn) = (p.b.recv_cq.cqn, p.b.send_cq.cqn);
    for round in 0..100 {
        p.b.recv_cq.arm(ARM_NEXT);
        p.settle();
        send(&mut p, round, Flags::empty());
        assert_eq!(events(&mut p), [recv], "round {round}");
        assert!(p.received().is_some());
        // Events of another CQ use all places of the queue in turn.
        for _ in 0..round % 7 {
            p.b.send_cq.arm(ARM_NEXT);
            p.settle();
            p.a.post_recv(1, &[]);
            p.b.post_send(&Wr::new(Opcode::Send, &[]));
            p.settle();
            assert_eq!(events(&mut p), [send_cqn]);
            assert!(p.b.send_cq.poll().is_some());
            assert!(p.a.recv_cq.poll().is_some());
        }
    }
}

/// Arming a destroyed CQ has no effect, whatever is written in its doorbell.
#[test]
fn arming_a_destroyed_cq_has_no_effect() {
    let world = World::default();
    let guest = world.guest(1);
    let (eqn, mut eq) = guest.create_eq(2, 4).expect("CREATE_EQ");
    let mut gone = CompletionQueue::create(&guest, 0, eqn, 4).expect("CQ");
    assert_eq!(guest.on_object(Admin::DestroyCq, gone.cqn), Ok(0));
    let before = guest.stats().bad_doorbells.get();
    for _ in 0..10 {
        gone.arm(ARM_NEXT);
        world.settle(&[&guest]);
    }
    assert_eq!((eq.poll(), guest.host.interrupts(2)), (None, 0));
    // The slot is in the same group as the slots of the event queues, so that the bad doorbell
    // cannot be attributed to a queue.
    assert!(guest.stats().bad_doorbells.get() <= before + 10);
    // The next owner of the slot is not armed by what the former owner wrote.
    let next = CompletionQueue::create(&guest, 0, eqn, 4).expect("CQ");
    assert_eq!(next.slot, gone.slot);
    guest.ring(0, next.slot);
    world.settle(&[&guest]);
    assert_eq!((eq.poll(), guest.host.interrupts(2)), (None, 0));
}

/// An event queue that does not exist, and vectors that the adapter does not have.
///
/// Shows: hostile
#[test]
fn handlers_that_do_not_exist_are_refused() {
    let world = World::default();
    let guest = world.guest(1);
    guest.adapter.limit_vectors(3);
    assert_eq!(guest.adapter.read_register(regs::VECTOR_COUNT), 3);
    let ring = guest.ram().alloc(4096);
    let create = |vector| {
        let params = CreateEq::new(Pages::new(ring, 12, 0), vector, 4);
        guest.command::<command::CreateEq>(&params).map(|result| result.eqn.get())
    };
    let eqn = create(1).expect("an event queue");
    assert!(create(2).is_ok());
    for vector in [0, 3, 64, 65, u16::MAX] {
        assert_eq!(create(vector), Err(Refused(Refusal::BadParam, 16)), "vector {vector}");
    }
    for eqn in [0, eqn + 2, u32::MAX] {
        assert_eq!(
            CompletionQueue::create(&guest, 0, eqn, 4).map(|cq| cq.cqn),
            Err(Refused(Refusal::NotFound, 0))
        );
    }
}

#[test]
fn consumed_entries_make_room() {
    let mut p = Pair::with(Setup { log_cqes: 1, ..Setup::default() }, |_| {});
    for n in 0..50 {
        send(&mut p, n, Flags::SIGNALED);
        assert_eq!(p.received().expect("received").wr_id.get(), n);
        assert_eq!(p.sent().expect("sent").wr_id.get(), n);
    }
}

/// Shows: completions
#[test]
fn moderated_events_wait_for_count_or_time() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    let moderate = |p: &Pair, count, period| {
        p.gb.command::<command::ModifyCq>(&ModifyCq::new(cqn, count, period))
    };
    assert_eq!(moderate(&p, 3, 10), Ok(()));
    // Moderation by count.
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    send(&mut p, 1, Flags::empty());
    send(&mut p, 2, Flags::empty());
    assert!(events(&mut p).is_empty());
    send(&mut p, 3, Flags::empty());
    assert_eq!(events(&mut p), [cqn]);
    // Moderation by time: no event before it, and the adapter asks to be polled then.
    (0..3).for_each(|_| assert!(p.received().is_some()));
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    let start = p.world.clock.load(Ordering::Acquire);
    send(&mut p, 4, Flags::empty());
    assert_eq!(p.gb.adapter.poll(0).deadline, Some(Nanos(start + 10_000)));
    p.world.advance(9_999);
    p.settle();
    assert!(events(&mut p).is_empty());
    p.world.advance(1);
    p.settle();
    assert_eq!(events(&mut p), [cqn]);
    // Moderation off, and moderation of a CQ that does not exist.
    assert_eq!(moderate(&p, 0, 0), Ok(()));
    assert!(p.received().is_some());
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    send(&mut p, 5, Flags::empty());
    assert_eq!(events(&mut p), [cqn]);
    assert!(p.gb.command::<command::ModifyCq>(&ModifyCq::new(cqn + 1000, 3, 10)).is_err());
}

#[test]
fn a_cq_is_destroyed_while_its_event_waits() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    assert!(p.gb.command::<command::ModifyCq>(&ModifyCq::new(cqn, 3, 10)).is_ok());
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    send(&mut p, 1, Flags::empty());
    assert!(p.gb.on_object(Admin::DestroyQp, p.b.qpn).is_ok());
    assert!(p.gb.on_object(Admin::DestroyCq, cqn).is_ok());
    p.world.advance(1_000_000);
    p.settle();
    assert!(events(&mut p).is_empty());
}

/// With a ceiling of 1000 interrupts per second, the third event of a guest that reads each one
/// waits for a millisecond, and the adapter asks to be polled then.
///
/// Shows: resources: interrupts wait for the ceiling of the function
#[test]
fn interrupts_wait_for_the_ceiling_of_the_function() {
    let mut p = Pair::new();
    let cqn = p.b.recv_cq.cqn;
    let limit = |interrupts| Ceilings { interrupts, ..Ceilings::default() };
    let ping = |p: &mut Pair, id| {
        p.b.recv_cq.arm(ARM_NEXT);
        p.settle();
        send(p, id, Flags::empty());
        assert!(p.received().is_some());
    };
    p.world.advance(5_000_000);
    p.gb.adapter.limit_pace(limit(NonZeroU64::new(1000)));
    for id in 1..=2 {
        ping(&mut p, id);
        assert_eq!(events(&mut p), [cqn], "within the credit of a millisecond");
    }
    for id in 3..20 {
        ping(&mut p, id);
        assert!(events(&mut p).is_empty());
        let due = p.gb.adapter.poll(0).deadline.expect("an event waits");
        let now = p.world.clock.load(Ordering::Acquire);
        assert!(due.0 - now <= 1_000_000, "{due:?} at {now}");
        p.world.advance(due.0 - now - 1);
        p.settle();
        assert!(events(&mut p).is_empty());
        p.world.advance(1);
        p.settle();
        assert_eq!(events(&mut p), [cqn]);
    }
    assert_eq!(p.gb.host.interrupts(1), 19);
    // An event that waits comes when the ceiling ends.
    ping(&mut p, 20);
    p.gb.adapter.limit_pace(limit(None));
    p.settle();
    assert_eq!(events(&mut p), [cqn]);
}

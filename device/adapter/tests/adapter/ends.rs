//! Objects end, and their numbers and slots come to others, while workers are at work: after RESET
//! or DESTROY has been answered nothing is written, whatever a worker was about to do, and no
//! doorbell of a successor is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::sq::Opcode;
use vrnic_abi::uar::{self, ARM_NEXT};
use vrnic_abi::{SlotIndex, UarIndex};
use vrnic_adapter::limits::Limits;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{CompletionQueue, Endpoint};
use crate::datagrams::datagram;
use crate::host::Step;
use crate::world::{Pair, World};

/// Time limit for an ending that waits for nothing.
const AT_ONCE: Duration = Duration::from_millis(300);

/// The load of the summary of a UAR.
fn look(uar: u32) -> Step {
    Step::Load(UarIndex::new(uar).summary().offset())
}

/// A worker has copied the list of UARs, and finds a CQ armed, while the adapter is reset.
#[test]
fn a_poll_that_began_before_a_reset_writes_no_event_after_it() {
    let world = World::default();
    let guest = world.guest_with(1, 3, Limits::default());
    let adapter = &guest.adapter;
    let settle = || while (0..3).fold(false, |busy, worker| adapter.poll(worker).busy | busy) {};
    let setup = Setup { kernel: true, ..Setup::default() };
    let [_, mut e] = [(); 2].map(|()| Endpoint::new(&guest, setup));
    e.connect(adapter.mac(), e.qpn, |_| {});
    // Worker 1 remembers the QP, and hears the CQ's bell.
    assert_eq!([e.slot, e.send_cq.slot].map(|slot| SlotIndex::new(slot).group() % 3), [1; 2]);
    e.post_send(&Wr::new(Opcode::Write, &[]));
    settle();
    let qp = adapter.qp(e.qpn).expect("QP");
    let users = Arc::strong_count(&qp);
    let ring = e.events.addr;
    let before = guest.ram().read(ring, 16);

    let other = guest.host.gate(look(0));
    let reset = AtomicBool::new(false);
    thread::scope(|scope| {
        // Worker 2 holds the reset up, which has dealt with worker 1 then.
        scope.spawn(|| adapter.poll(2));
        other.wait();
        scope.spawn(|| {
            adapter.reset();
            reset.store(true, Ordering::SeqCst);
        });
        let start = Instant::now();
        // The QP itself remembers it too, as its peer.
        while Arc::strong_count(&qp) > users - 2 && start.elapsed() < AT_ONCE {
            thread::yield_now();
        }
        let seen = Doorbell::new(e.send_cq.uar.into(), e.send_cq.slot.into()).cq_seen();
        let gate = guest.host.gate(Step::Load(seen.offset()));
        // As if it had consumed nothing: the event is due.
        e.send_cq.arm(ARM_NEXT);
        scope.spawn(|| adapter.poll(1));
        gate.wait();
        other.open();
        let start = Instant::now();
        while !reset.load(Ordering::SeqCst) && start.elapsed() < AT_ONCE {
            thread::yield_now();
        }
        // The guest has its memory back when the reset has ended; else the worker may still write.
        let ended = reset.load(Ordering::SeqCst);
        gate.open();
        while !reset.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(!ended || guest.ram().read(ring, 16) == before, "an event after the reset");
    });
}

/// A datagram has arrived, and its sender is about to write its own completion, when the receiver's
/// adapter is reset.
#[test]
fn a_datagrams_event_is_not_written_after_a_reset() {
    ends_before_the_event(|p| p.gb.adapter.reset());
}

/// Destroys the receiver's QP and CQ.
#[test]
fn a_datagrams_event_is_not_written_for_a_destroyed_queue() {
    ends_before_the_event(|p| {
        p.gb.on_object(Admin::DestroyQp, p.b.qpn).expect("DESTROY_QP");
        for cqn in [p.b.send_cq.cqn, p.b.recv_cq.cqn] {
            p.gb.on_object(Admin::DestroyCq, cqn).expect("DESTROY_CQ");
        }
    });
}

/// Lets `end` run between the arrival of a datagram and the event that tells of it; there is none
/// then.
fn ends_before_the_event(end: impl Fn(&Pair)) {
    let mut p = Pair::ud();
    p.expect(64);
    p.b.recv_cq.arm(ARM_NEXT);
    p.settle();
    let wr = datagram(&[p.a.sge(0, 8)], p.there());
    p.a.post_send(&wr);
    let gate = p.ga.host.gate(Step::Write(p.a.send_cq.next_addr()));
    let before = p.gb.ram().read(p.b.events.addr, 16);
    let adapter = &p.ga.adapter;
    thread::scope(|scope| {
        let poll = scope.spawn(|| adapter.poll(0));
        gate.wait();
        end(&p);
        p.gb.host.interrupts(1);
        gate.open();
        assert!(poll.join().expect("poll").busy);
    });
    assert!(p.a.send_cq.poll().is_some(), "the datagram was sent");
    assert_eq!(p.gb.ram().read(p.b.events.addr, 16), before, "an event was written");
    assert_eq!(p.gb.host.interrupts(1), 0);
}

/// A worker has copied the list of UARs when one of them comes to another process, which rings at
/// once.
#[test]
fn the_next_owner_of_a_uar_is_heard() {
    let world = World::default();
    let guest = world.guest(1);
    let adapter = &guest.adapter;
    let e = Endpoint::new(&guest, Setup::default());
    // All numbers have been given once, so that the next is the one that is free.
    let allocate = || guest.on_object(Admin::AllocUar, e.context);
    while allocate().is_ok() {}
    let last = uar::UAR_COUNT - 1;
    while adapter.poll(0).busy {}
    let gate = guest.host.gate(look(last));
    thread::scope(|scope| {
        scope.spawn(|| adapter.poll(0));
        gate.wait();
        guest.on_object(Admin::FreeUar, last).expect("FREE_UAR");
        assert_eq!(guest.on_object(Admin::AllocUar, e.context), Ok(last));
        let mut cq = CompletionQueue::create(&guest, last, e.eqn, 4).expect("CQ");
        cq.arm(ARM_NEXT);
        gate.open();
    });
    while adapter.poll(0).busy {}
    let cqs = adapter.cq_records(0, 10).items;
    assert!(
        cqs.iter().any(|cq| cq.uar.get() == last && cq.armed.get() != 0),
        "a doorbell was lost"
    );
}

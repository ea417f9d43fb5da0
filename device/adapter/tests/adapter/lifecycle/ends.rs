//! Objects are destroyed, and others get their numbers and slots, while workers run. After RESET or
//! DESTROY was answered, the adapter writes nothing for the old object, whatever a worker was about
//! to write, and it loses no doorbell of the next owner.
//!
//! Shows: queues

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
use crate::host::Step;
use crate::messages::datagrams::datagram;
use crate::world::{Pair, World};

/// Time limit for a reset or a destruction that does not have to wait.
const AT_ONCE: Duration = Duration::from_millis(300);

/// Returns the step in which a worker loads the doorbell summary of a UAR.
fn load_summary(uar: u32) -> Step {
    Step::Load(UarIndex::new(uar).summary().offset())
}

/// A worker has copied the list of UARs, and is about to find a CQ armed, while the adapter is
/// reset.
#[test]
fn a_poll_that_began_before_a_reset_writes_no_event_after_it() {
    let world = World::default();
    let guest = world.guest_with(1, 3, Limits::default());
    let adapter = &guest.adapter;
    let settle = || while (0..3).fold(false, |busy, worker| adapter.poll(worker).busy | busy) {};
    let setup = Setup { kernel: true, ..Setup::default() };
    let [_, mut e] = [(); 2].map(|()| Endpoint::new(&guest, setup));
    e.connect(adapter.mac().0, e.qpn, |_| {});
    // Worker 1 has the QP in its list, and handles the doorbells of the QP and the CQ.
    assert_eq!([e.slot, e.send_cq.slot].map(|slot| SlotIndex::new(slot).group() % 3), [1; 2]);
    e.post_send(&Wr::new(Opcode::Write, &[]));
    settle();
    let qp = adapter.qp(e.qpn).expect("QP");
    let users = Arc::strong_count(&qp);
    let ring = e.events.addr;
    let before = guest.ram().read(ring, 16);

    let other = guest.host.gate(load_summary(0));
    let reset = AtomicBool::new(false);
    thread::scope(|scope| {
        // Worker 2 delays the reset, which has then handled worker 1.
        scope.spawn(|| adapter.poll(2));
        other.wait();
        scope.spawn(|| {
            adapter.reset();
            reset.store(true, Ordering::SeqCst);
        });
        let start = Instant::now();
        // The QP also refers to itself, as its own peer.
        while Arc::strong_count(&qp) > users - 2 && start.elapsed() < AT_ONCE {
            thread::yield_now();
        }
        let seen = Doorbell::new(e.send_cq.uar.into(), e.send_cq.slot.into()).cq_seen();
        let gate = guest.host.gate(Step::Load(seen.offset()));
        // As if the program had consumed no entry: the event is due.
        e.send_cq.arm(ARM_NEXT);
        scope.spawn(|| adapter.poll(1));
        gate.wait();
        other.open();
        let start = Instant::now();
        while !reset.load(Ordering::SeqCst) && start.elapsed() < AT_ONCE {
            thread::yield_now();
        }
        // When the reset has ended, the guest may use its memory again. Before that, the worker may
        // still write.
        let ended = reset.load(Ordering::SeqCst);
        gate.open();
        while !reset.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        assert!(!ended || guest.ram().read(ring, 16) == before, "an event after the reset");
    });
}

/// A datagram has arrived, and its sender is about to write its own completion, when the adapter of
/// the receiver is reset.
#[test]
fn a_datagrams_event_is_not_written_after_a_reset() {
    ends_before_the_event(|p| p.gb.adapter.reset());
}

/// Destroys the receiver's QP and CQs.
#[test]
fn a_datagrams_event_is_not_written_for_a_destroyed_queue() {
    ends_before_the_event(|p| {
        p.gb.on_object(Admin::DestroyQp, p.b.qpn).expect("DESTROY_QP");
        for cqn in [p.b.send_cq.cqn, p.b.recv_cq.cqn] {
            p.gb.on_object(Admin::DestroyCq, cqn).expect("DESTROY_CQ");
        }
    });
}

/// Runs `end` between the arrival of a datagram and the event that reports it. Checks that this
/// event is not written.
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

/// A worker has copied the list of UARs when a UAR gets a new owner, which rings a doorbell at
/// once.
#[test]
fn the_next_owner_of_a_uar_is_heard() {
    let world = World::default();
    let guest = world.guest(1);
    let adapter = &guest.adapter;
    let e = Endpoint::new(&guest, Setup::default());
    // All numbers have been allocated once. The next allocation returns the number that is freed.
    let allocate = || guest.on_object(Admin::AllocUar, e.context);
    while allocate().is_ok() {}
    let last = uar::UAR_COUNT - 1;
    while adapter.poll(0).busy {}
    let gate = guest.host.gate(load_summary(last));
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

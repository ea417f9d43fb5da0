//! Doorbells of a guest whose adapter has one worker: whatever the two do at the same time, what
//! was posted is executed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, fence};
use loom::thread;
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::{GuestMemory, HeldMemory, Lane};
use vrnic_models::model;

use crate::common::driver::{Guest, slot_offset};
use crate::common::host::TestHost;
use crate::common::pair::{Endpoint, Setup, World, Wr};
use crate::engine::Engine;
use crate::sleep;
use crate::waker::Waker;

/// The worker's part of an adapter.
struct Part(Arc<Adapter<TestHost>>);

impl Engine for Part {
    fn poll(&self) -> bool {
        self.0.poll(0).busy
    }

    fn set_asleep(&self, asleep: bool) {
        self.0.set_asleep(asleep);
    }

    fn has_work(&self) -> bool {
        self.0.has_work(0)
    }

    fn deadline(&self) -> Option<u64> {
        None
    }
}

/// Runs a worker until `done`.
fn work(adapter: &Arc<Adapter<TestHost>>, waker: &Waker, done: impl Fn() -> bool) {
    let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(Part(Arc::clone(adapter)))];
    let stop = AtomicBool::new(false);
    while !done() {
        if !sleep::poll(&engines) && !done() {
            sleep::sleep(waker, &engines, &stop, || {
                waker.park(Duration::MAX);
            });
        }
    }
}

/// Posts and rings as a guest's program does.
fn post(guest: &Guest, endpoint: &mut Endpoint) {
    // It is refused, which needs no peer.
    endpoint.post_send(guest, &Wr::new(Opcode::LocalInv, &[]));
    // The guest's OR is the full barrier as well.
    fence(Ordering::SeqCst);
    if guest.host.bar().armed() {
        let _nothing_to_control = guest.adapter.write_register(regs::KICK, 0);
    }
}

/// Returns whether entry `index` of a CQ has been written.
fn written(host: &TestHost, ring: u64, index: u32) -> bool {
    let mut stamp = [0; 4];
    host.hold(Lane::SHARED).read(ring + u64::from(index) * 64 + 60, &mut stamp).expect("ring");
    stamp == vrnic_abi::stamp(index).to_le_bytes()
}

/// A guest posts so often, while the worker may fall asleep at any step.
fn posts(preemptions: usize, times: u32) {
    model(preemptions, move || {
        let world = World::default();
        let guest = world.guest(1);
        let setup = Setup { kernel: true, signal_all: true, ..Setup::default() };
        let mut endpoint = Endpoint::new(&guest, setup);
        endpoint.connect(&guest, guest.adapter.mac(), endpoint.qpn, |_| {});
        guest.host.bar().model(slot_offset(endpoint.uar, endpoint.slot));
        let waker = Arc::new(Waker::new().expect("waker"));
        guest.host.set_waker(&waker);
        let (adapter, host) = (Arc::clone(&guest.adapter), guest.host.clone());
        let ring = endpoint.send_cq.ring;
        let worker = thread::spawn(move || {
            work(&adapter, &waker, || written(&host, ring, times - 1));
        });
        (0..times).for_each(|_| post(&guest, &mut endpoint));
        worker.join().expect("worker");
    });
}

#[test]
fn a_doorbell_is_never_slept_through() {
    posts(5, 1);
}

#[test]
fn nor_is_the_next_one() {
    posts(3, 2);
}

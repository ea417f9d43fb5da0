//! Doorbells of a guest whose adapter has one worker: whatever the two do at the same time, what
//! was posted is executed.
//!
//! Shows: daemon: doorbells while a worker falls asleep, in every order of steps

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::AtomicBool;
use loom::thread;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::cq::{CQE_LEN, STAMP_OFFSET};
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::regs;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::{GuestMemory, HeldMemory, Lane};
use vrnic_adapter::limits::Limits;
use vrnic_models::model;
use vrnic_packet::Nanos;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, InProcess};
use crate::engine::{Engine, Polled};
use crate::host::TestHost;
use crate::sleep;
use crate::waker::Waker;

/// The worker's part of an adapter.
struct Part(Arc<Adapter<TestHost>>);

impl Engine for Part {
    fn poll(&self, length: Duration) -> Polled {
        let polled = self.0.poll_for(0, length);
        Polled { busy: polled.busy, spent: polled.spent }
    }

    fn set_asleep(&self, asleep: bool) {
        self.0.set_asleep(asleep);
    }

    fn has_work(&self) -> bool {
        self.0.has_work(0)
    }

    fn deadline(&self) -> Option<Nanos> {
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
fn post(endpoint: &mut Endpoint) {
    // The request is refused, which needs no peer.
    endpoint.store_send(&Wr::new(Opcode::LocalInv, &[]));
    let InProcess { adapter, host, .. } = &*endpoint.guest;
    if host.words().ring(endpoint.sq_pi, endpoint.slot.into()) {
        let _nothing_to_control = adapter.write_register(regs::KICK, 0);
    }
}

/// Returns whether the entry of a CQ at this address has been written as number `index`.
fn written(host: &TestHost, entry: u64, index: u32) -> bool {
    let mut stamp = [0; 4];
    host.hold(Lane::SHARED)
        .read((entry + u64::from(STAMP_OFFSET)).into(), &mut stamp)
        .expect("ring");
    stamp == vrnic_abi::stamp(index).to_le_bytes()
}

/// A guest posts so often, while the worker may fall asleep at any step.
fn posts(preemptions: usize, times: u32) {
    model(preemptions, move || {
        let host = TestHost::new(&Arc::default());
        let guest = InProcess::guest(host, 1, &Arc::default(), 1, Limits::default());
        let setup = Setup { kernel: true, flags: QpFlags::SIGNAL_ALL, ..Setup::default() };
        let mut endpoint = Endpoint::new(&guest, setup);
        endpoint.connect(guest.mac(), endpoint.qpn, |_| {});
        let doorbell = Doorbell::new(endpoint.uar.into(), endpoint.slot.into());
        guest.host.words().model(doorbell);
        let waker = Arc::new(Waker::new().expect("waker"));
        guest.host.set_waker(&waker);
        let (adapter, host) = (Arc::clone(&guest.adapter), guest.host.clone());
        let last = endpoint.send_cq.addr + u64::from((times - 1) * CQE_LEN);
        let worker = thread::spawn(move || {
            work(&adapter, &waker, || written(&host, last, times - 1));
        });
        (0..times).for_each(|_| post(&mut endpoint));
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

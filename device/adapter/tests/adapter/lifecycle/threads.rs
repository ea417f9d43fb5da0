//! Two adapters with a worker thread each, and guests that send to each other while objects are
//! created and destroyed. The tests look for deadlocks, lost completions and torn messages.
//!
//! Shows: data

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use vrnic_abi::admin::{AllocMw, Inspected, MwType, Opcode as Admin, QpRecord, command};
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::qp::{Access, State, Type};
use vrnic_abi::sq::Opcode;

use vrnic_adapter::adapter::Adapter;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::srq::LOG_SHARED;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest, SharedQueue};
use crate::control::inspect;
use crate::host::TestHost;
use crate::memory::keys::bind;
use crate::world::{World, by_packets};

/// Longer than any step takes on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Ends the workers on drop, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a worker for each adapter, and a clock that moves by `tick` nanoseconds at a time, while
/// `run` runs. All workers have the number 0, so counters may be wrong; no test here reads them.
pub(crate) fn with_workers<T>(
    clock: &AtomicU64,
    adapters: Vec<Arc<Adapter<TestHost>>>,
    tick: u64,
    run: impl FnOnce() -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let stop = &stop;
    std::thread::scope(|scope| {
        let _stop = Stop(stop);
        for adapter in adapters {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if !adapter.poll(0).busy {
                        std::thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                clock.fetch_add(tick, Ordering::AcqRel);
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        run()
    })
}

pub(crate) fn wait(what: &str, mut poll: impl FnMut() -> Option<Cqe>) -> Cqe {
    let start = Instant::now();
    loop {
        if let Some(cqe) = poll() {
            return cqe;
        }
        assert!(start.elapsed() < TIMEOUT, "{what} never comes");
        std::thread::yield_now();
    }
}

/// Runs one side: sends, writes, reads and atomics to the other side. Creates and destroys other
/// objects in between.
fn side(mut own: Endpoint, far: (u64, u32), rounds: u32) -> Endpoint {
    let (far_buffer, far_key) = far;
    let guest = own.guest.clone();
    for n in 0..16 {
        own.post_recv(n, &[own.sge(1 << 20, 4096)]);
    }
    for round in 0..rounds {
        let data: Vec<u8> = (0..3000u32).map(|at| (at * 7 + round) as u8).collect();
        own.fill(0, &data);
        let write = Wr::new(Opcode::Write, &[own.sge(0, 3000)]).to(far_buffer + (2 << 20), far_key);
        let read =
            Wr::new(Opcode::Read, &[own.sge(65_536, 3000)]).to(far_buffer + (2 << 20), far_key);
        let mut add = Wr::new(Opcode::FetchAdd, &[own.sge(8192, 8)]);
        add.atomic = Some((1, 0));
        let add = add.to(far_buffer + (3 << 20), far_key);
        let send = Wr::new(Opcode::Send, &[own.sge(0, 100)]);
        for wr in [write, read, add, send] {
            own.store_send(&wr);
        }
        own.ring();
        let churn = guest.reg_flat(own.pdn, ALL, own.buffer, 1 << 20).expect("MR");
        for _ in 0..4 {
            let cqe = wait("a completion", || own.send_cq.poll());
            assert_eq!(status(&cqe), Status::Success, "round {round}");
        }
        assert_eq!(own.bytes(65_536, 3000), data, "round {round}");
        let cqe = wait("a receive", || own.recv_cq.poll());
        assert_eq!(status(&cqe), Status::Success);
        own.post_recv(0, &[own.sge(1 << 20, 4096)]);
        assert!(guest.on_object(Admin::DeregMr, churn).is_ok());
        if round % 16 == 0 {
            let other = Endpoint::new(&guest, Setup { log_cqes: 2, ..Setup::default() });
            assert!(guest.on_object(Admin::DestroyQp, other.qpn).is_ok());
        }
    }
    own
}

/// Two guests, each with its own worker, send to QPs of a third guest that share a receive queue.
/// Each receive is taken once, so its buffer contains the message that its completion describes.
#[test]
fn two_workers_take_from_one_shared_queue() {
    const ROUNDS: u64 = 2000;
    /// Number of entries of the shared queue.
    const ENTRIES: u64 = 1 << LOG_SHARED;
    let world = World::default();
    let guests = [world.guest(1), world.guest(2)];
    let there = world.guest(3);
    let base = Endpoint::new(&there, Setup::default());
    let mut srq = SharedQueue::new(&base);
    let tune = |attr: &mut vrnic_abi::qp::Attr| (attr.rnr_retry, attr.min_rnr_timer) = (7, 1);
    let mut receivers = vec![];
    let senders = guests.each_ref().map(|guest| {
        let sender = Endpoint::new(guest, Setup::default());
        let receiver = base.sibling(Type::Rc, srq.srqn);
        sender.connect(there.mac(), receiver.qpn, tune);
        receiver.connect(guest.mac(), sender.qpn, tune);
        receivers.push(receiver);
        sender
    });
    // With memory copies, the receiver has no work.
    let receiver = by_packets().then_some(&there);
    let adapters = guests.iter().chain(receiver).map(|guest| guest.adapter.clone()).collect();
    with_workers(&world.clock, adapters, 50_000, || {
        std::thread::scope(|scope| {
            for mut sender in senders {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        sender.fill(0, &round.to_le_bytes());
                        let wr = Wr::new(Opcode::Send, &[sender.sge(0, 8)]);
                        sender.post_send(&wr);
                        let cqe = wait("a send", || sender.send_cq.poll());
                        assert_eq!(status(&cqe), Status::Success);
                    }
                });
            }
            (0..ENTRIES).for_each(|wr_id| srq.post(wr_id, &[base.sge(wr_id * 8, 8)]));
            let mut next = [0; 2];
            while next != [ROUNDS; 2] {
                for (receiver, next) in receivers.iter_mut().zip(&mut next) {
                    let Some(cqe) = receiver.recv_cq.poll() else { continue };
                    let wr_id = cqe.wr_id.get();
                    assert_eq!(status(&cqe), Status::Success);
                    assert_eq!(base.bytes(wr_id * 8, 8), next.to_le_bytes());
                    *next += 1;
                    srq.post(wr_id, &[base.sge(wr_id * 8, 8)]);
                }
                std::thread::yield_now();
            }
        });
    });
}

#[test]
fn both_sides_at_once() {
    const ROUNDS: u32 = 300;
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let (a, b) = (Endpoint::new(&ga, Setup::default()), Endpoint::new(&gb, Setup::default()));
    let tune = |attr: &mut vrnic_abi::qp::Attr| (attr.rnr_retry, attr.min_rnr_timer) = (7, 1);
    a.connect(gb.mac(), b.qpn, tune);
    b.connect(ga.mac(), a.qpn, tune);
    let (far_a, far_b) = ((a.buffer, a.key), (b.buffer, b.key));
    let adapters = vec![ga.adapter.clone(), gb.adapter.clone()];
    let counter = |endpoint: &Endpoint| {
        u64::from_le_bytes(endpoint.bytes(3 << 20, 8).try_into().expect("8 bytes"))
    };
    let counts = with_workers(&world.clock, adapters, 10_000, || {
        std::thread::scope(|scope| {
            let other = scope.spawn(move || side(b, far_a, ROUNDS));
            let a = side(a, far_b, ROUNDS);
            let b = other.join().expect("side B");
            [counter(&a), counter(&b)]
        })
    });
    assert_eq!(counts, [u64::from(ROUNDS); 2]);
}

#[test]
fn an_adapter_is_reset_in_the_middle_of_its_peers_work() {
    let world = World::default();
    let ga = world.guest(1);
    let gb = world.guest(2);
    let resets = gb.adapter.clone();
    let adapters = vec![ga.adapter.clone(), gb.adapter.clone()];
    let (ask, asked) = mpsc::channel();
    let resetter = std::thread::spawn(move || {
        for () in asked {
            std::thread::sleep(Duration::from_micros(300));
            resets.reset();
        }
    });
    with_workers(&world.clock, adapters, 100_000, || {
        for round in 0..20 {
            let mut a = Endpoint::new(&ga, Setup::default());
            let b = Endpoint::new(&gb, Setup::default());
            a.connect(gb.mac(), b.qpn, |attr| attr.timeout = 8);
            b.connect(ga.mac(), a.qpn, |_| {});
            ask.send(()).expect("resetter");
            let last = loop {
                let wr = Wr::new(Opcode::Write, &[a.sge(0, 1 << 20)]).to(b.buffer, b.key);
                a.post_send(&wr);
                let cqe = wait("a completion", || a.send_cq.poll());
                if status(&cqe) != Status::Success {
                    break status(&cqe);
                }
            };
            // The requester may find the region deregistered before it finds the QP destroyed.
            let expected = [Status::RetryExcErr, Status::RemAccessErr];
            assert!(expected.contains(&last), "round {round}: {last:?}");
            assert_eq!(a.state(), State::Err);
            for (opcode, id) in [(Admin::DestroyQp, a.qpn), (Admin::DeregMr, a.key)] {
                assert!(ga.on_object(opcode, id).is_ok());
            }
            wait_for_reset(&gb);
            gb.bring_up();
        }
    });
    drop(ask);
    resetter.join().expect("resetter");
}

/// The ways to make a key invalid that a peer is using.
#[derive(Clone, Copy, Debug)]
enum End {
    LocalInv,
    Unbind,
    Deregister,
    Free,
}

/// When a key has become invalid, no bytes are written with it any more: while A writes in a loop,
/// B invalidates the key and fills the memory. When A has been refused, the memory must be
/// unchanged.
///
/// Shows: memory
#[test]
fn nothing_is_written_by_a_key_that_has_ended() {
    const LEN: u32 = 1 << 20;
    const REMOTE_WRITE: u32 = Access::REMOTE_WRITE.bits();
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let adapters = vec![ga.adapter.clone(), gb.adapter.clone()];
    let ends = [End::LocalInv, End::Unbind, End::Deregister, End::Free];
    with_workers(&world.clock, adapters, 10_000, || {
        for (round, end) in ends.into_iter().cycle().take(48).enumerate() {
            let mut a = Endpoint::new(&ga, Setup::default());
            let mut b = Endpoint::new(&gb, Setup::default());
            Endpoint::connect_pair(&a, &b);
            let region = gb
                .reg_flat(b.pdn, ALL | Access::MW_BIND.bits(), b.buffer, u64::from(LEN))
                .expect("MR");
            let kind = if matches!(end, End::Unbind) { MwType::Type1 } else { MwType::Type2 };
            let mut key = region;
            if !matches!(end, End::Deregister) {
                let params = AllocMw::new(b.pdn, kind);
                key = gb.command::<command::AllocMw>(&params).expect("MW").get();
                b.post_send(&bind(key, region, b.buffer, LEN.into(), REMOTE_WRITE));
                let cqe = wait("the binding", || b.send_cq.poll());
                assert_eq!(status(&cqe), Status::Success);
            }
            let write = Wr::new(Opcode::Write, &[a.sge(0, LEN)]).to(b.buffer, key);
            (0..8).for_each(|_| a.store_send(&write));
            a.ring();
            std::thread::sleep(Duration::from_micros(200 * (round as u64 % 7)));
            match end {
                End::LocalInv => b.post_send(&Wr::new(Opcode::LocalInv, &[]).to(0, key)),
                End::Unbind => b.post_send(&bind(key, region, b.buffer, 0, REMOTE_WRITE)),
                End::Deregister => assert!(gb.on_object(Admin::DeregMr, key).is_ok()),
                End::Free => assert!(gb.on_object(Admin::DeallocMw, key).is_ok()),
            }
            if matches!(end, End::LocalInv | End::Unbind) {
                let cqe = wait("the end of the key", || b.send_cq.poll());
                // A's next write may be refused, and make the QP fail, before the request
                // completes.
                assert!(matches!(status(&cqe), Status::Success | Status::WrFlushErr));
            }
            let canary = vec![0x5a; LEN as usize];
            b.fill(0, &canary);
            for _ in 0..8 {
                wait("a completion", || a.send_cq.poll());
            }
            assert!(b.bytes(0, LEN as usize) == canary, "round {round}, {end:?}");
            for (guest, endpoint) in [(&ga, &a), (&gb, &b)] {
                assert!(guest.on_object(Admin::DestroyQp, endpoint.qpn).is_ok());
                guest.drain_events();
            }
        }
    });
}

/// While A sends in a loop, the CQs of both sides grow and shrink. Each completion comes once, in
/// order.
#[test]
fn completion_queues_change_their_size_under_traffic() {
    const MESSAGES: u64 = 20_000;
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let setup = Setup { log_cqes: 4, ..Setup::default() };
    let (mut a, mut b) = (Endpoint::new(&ga, setup), Endpoint::new(&gb, setup));
    let tune = |attr: &mut vrnic_abi::qp::Attr| (attr.rnr_retry, attr.min_rnr_timer) = (7, 1);
    a.connect(gb.mac(), b.qpn, tune);
    b.connect(ga.mac(), a.qpn, tune);
    let adapters = vec![ga.adapter.clone(), gb.adapter.clone()];
    let rings: Vec<[u64; 2]> =
        [&ga, &gb].map(|guest| [guest.ram().alloc(64 << 9), guest.ram().alloc(64 << 9)]).to_vec();
    with_workers(&world.clock, adapters, 10_000, || {
        let (mut posted, mut resizes) = (0, 0);
        (0..16).for_each(|id| b.post_recv(id, &[]));
        let start = Instant::now();
        let (mut sent, mut received) = (0, 0);
        while sent < MESSAGES || received < MESSAGES {
            assert!(start.elapsed() < TIMEOUT, "{sent} sent, {received} received");
            while posted < MESSAGES && posted - sent < 16 {
                a.post_send(&Wr::new(Opcode::Send, &[]).id(posted));
                posted += 1;
            }
            // Neither queue can overflow, because it has room for all outstanding requests.
            let log = 4 + (resizes * 7 % 6) as u8;
            let ring = (resizes % 2) as usize;
            assert_eq!(a.send_cq.resize(rings[0][ring], log), Ok(()));
            assert_eq!(b.recv_cq.resize(rings[1][ring], log), Ok(()));
            resizes += 1;
            // Some entries are not polled before the next resize.
            for _ in 0..resizes % 5 {
                if let Some(cqe) = a.send_cq.poll() {
                    assert_eq!((cqe.wr_id.get(), status(&cqe)), (sent, Status::Success));
                    sent += 1;
                }
                if let Some(cqe) = b.recv_cq.poll() {
                    assert_eq!((cqe.wr_id.get(), status(&cqe)), (received, Status::Success));
                    b.post_recv(received + 16, &[]);
                    received += 1;
                }
            }
        }
        assert!(resizes > MESSAGES / 16, "{resizes} resizes");
    });
    assert!(a.send_cq.poll().is_none() && b.recv_cq.poll().is_none());
}

fn wait_for_reset(guest: &Guest) {
    let start = Instant::now();
    while guest.status().contains(vrnic_abi::regs::Status::ENABLED) {
        assert!(start.elapsed() < TIMEOUT, "the reset never ends");
        std::thread::yield_now();
    }
}

/// A message that is being received keeps the index of its receive queue to itself.
#[test]
fn a_queue_in_use_shows_no_more_requests_than_it_has() {
    const LEN: u32 = 4 << 20;
    let world = World::default();
    let (ga, gb) = (world.guest(1), world.guest(2));
    let (mut a, mut b) =
        (Endpoint::new(&ga, Setup::default()), Endpoint::new(&gb, Setup::default()));
    Endpoint::connect_pair(&a, &b);
    let adapters = vec![ga.adapter.clone(), gb.adapter.clone()];
    with_workers(&world.clock, adapters, 10_000, || {
        for round in 0..200u32 {
            // Later rounds have an index that is larger than the queue.
            b.post_recv(0, &[b.sge(0, LEN)]);
            let len = if round < 100 { 8 } else { LEN };
            a.post_send(&Wr::new(Opcode::Send, &[a.sge(0, len)]));
            wait("a completion", || {
                for qp in inspect::all::<QpRecord>(&gb, Inspected::Qp) {
                    let used = qp.rq.posted.get().wrapping_sub(qp.rq.next.get());
                    assert!(used <= qp.rq.size.get(), "{:?} in round {round}", qp.rq);
                }
                a.send_cq.poll()
            });
            wait("a receive", || b.recv_cq.poll());
        }
    });
}

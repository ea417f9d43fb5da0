// SPDX-License-Identifier: GPL-2.0 OR MIT
//! All queues against a thread that plays the adapter: many threads post and poll at once, and each
//! work request must complete exactly once. The adapter sees the rings through mappings of its
//! own, as the real one does.
//!
//! Shows: queues: all queues of a program against a thread that plays the adapter

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use vrnic_abi as abi;
use zerocopy::transmute;

use abi::cq::{Cqe, Opcode as CqOpcode};
use abi::qp::State;
use abi::sq::{Flags, Opcode};
use abi::uverbs::{CqResp, QpResp};

use crate::cq::CompletionQueue;
use crate::doorbell::Uar;
use crate::doorbell::tests::{slot_words, take_summary, uar};
use crate::heap::Shared;
use crate::layout::{CqRing, QpCap, QpExtras, QpLayout, QpRings};
use crate::lock::Sharing;
use crate::mapping::Mapping;
use crate::qp::{QpParts, QueuePair};
use crate::request::{Data, Payload, PostError, SendHeader};
use crate::ring::{Ring, Shape};

const QPN: u32 = 9;
const QP_SLOT: u32 = 16;
const CQ_SLOT: u32 = 40;
const SQ: Shape = Shape { log_size: 4, log_stride: 6 };
const CQ: Shape = Shape { log_size: 3, log_stride: 6 };
const POSTERS: u64 = 2;
const POLLERS: usize = 2;
const REQUESTS: u64 = 20_000;

/// Memory that two sides map.
struct Memory {
    fd: OwnedFd,
    len: usize,
}

impl Memory {
    fn new(shape: Shape) -> Self {
        let len = shape.bytes().next_multiple_of(4096);
        let fd = memfd_create("ring", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&fd, len as u64).expect("room");
        Self { fd, len }
    }

    fn map(&self) -> Mapping {
        Mapping::device(self.fd.as_fd(), 0, self.len).expect("mmap")
    }
}

/// The adapter's side.
struct Adapter {
    uar: Shared<Uar>,
    sends: Ring,
    completions: Arc<Mutex<Completions>>,
    in_device: bool,
    consumed: u32,
}

/// The ring that it writes completions to.
struct Completions {
    uar: Shared<Uar>,
    ring: Ring,
    written: u32,
}

impl Completions {
    fn used(&self) -> u32 {
        self.written.wrapping_sub(slot_words(&self.uar, CQ_SLOT).0)
    }

    /// Goes on in another ring, as RESIZE_CQ does.
    fn resize(&mut self, ring: Ring) -> Result<u32, Errno> {
        if self.used() > ring.size() {
            return Err(Errno::INVAL);
        }
        self.ring = ring;
        Ok(self.written)
    }
}

impl Adapter {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            if take_summary(&self.uar) == 0 {
                thread::yield_now();
                continue;
            }
            while self.posted() {
                let header = self.sends.entry(self.consumed);
                let wr_id = header[0].load(Ordering::Relaxed);
                self.complete(wr_id, stop);
                self.consumed = self.consumed.wrapping_add(1);
            }
        }
    }

    fn posted(&self) -> bool {
        if self.in_device {
            let stamp = self.sends.entry(self.consumed)[3].load(Ordering::Acquire) >> 32;
            stamp == u64::from(abi::stamp(self.consumed))
        } else {
            slot_words(&self.uar, QP_SLOT).0 != self.consumed
        }
    }

    fn complete(&mut self, wr_id: u64, stop: &AtomicBool) {
        let mut completions = self.completions.lock().expect("no panic");
        while completions.used() >= completions.ring.size() {
            if stop.load(Ordering::Acquire) {
                return;
            }
            drop(completions);
            thread::yield_now();
            completions = self.completions.lock().expect("no panic");
        }
        let words: [u64; 8] = transmute!(Cqe {
            wr_id: wr_id.into(),
            qpn: QPN.into(),
            wqe_index: self.consumed.into(),
            opcode: CqOpcode::Send as u8,
            stamp: abi::stamp(completions.written).into(),
            ..Cqe::default()
        });
        for (to, from) in completions.ring.entry(completions.written).iter().zip(words) {
            to.store(from, Ordering::Release);
        }
        completions.written = completions.written.wrapping_add(1);
    }
}

/// Returns a queue pair, its completion queue, and the adapter behind them.
fn bench(in_device: bool) -> (QueuePair, Shared<CompletionQueue>, Adapter) {
    let (send, completions) = (Memory::new(SQ), Memory::new(CQ));
    let uar = uar(1);
    let ring = CqRing { shape: CQ, memory: completions.map(), holding: None };
    let response = CqResp { slot: CQ_SLOT.into(), ..CqResp::default() };
    let cq = CompletionQueue::new(ring, &response, uar.clone(), Sharing::ANY).expect("valid");
    let cq = Shared::new(cq).expect("memory");
    let extras = QpExtras::default();
    let layout = QpLayout { send: Some(SQ), recv: None, send_in_device: in_device, extras };
    let rings = QpRings { layout, send: (!in_device).then(|| send.map()), recv: None };
    let cap =
        QpCap { max_send_wr: 16, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline: 32 };
    let response = QpResp { qpn: QPN.into(), slot: QP_SLOT.into(), ..QpResp::default() };
    let parts = QpParts {
        uar: uar.clone(),
        device_send: in_device.then(|| send.map()),
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        all_signaled: true,
        sharing: Sharing::ANY,
    };
    let qp = QueuePair::new(rings, &cap, &response, parts).expect("valid");
    qp.entered(State::Rts);
    let ring = Ring::new(completions.map(), CQ).expect("fits");
    let completions = Completions { uar: uar.clone(), ring, written: 0 };
    let adapter = Adapter {
        uar,
        sends: Ring::new(send.map(), SQ).expect("fits"),
        completions: Arc::new(Mutex::new(completions)),
        in_device,
        consumed: 0,
    };
    (qp, cq, adapter)
}

/// Posts the requests `first`, `first + POSTERS`, … in batches of growing length.
fn post(qp: &QueuePair, first: u64) {
    let mut next = first;
    for length in (1..=7).cycle() {
        if next >= REQUESTS {
            return;
        }
        let mut batch = qp.sends().expect("ready");
        for _ in 0..length {
            let (opcode, flags) = (Opcode::Send, Flags::empty());
            let header = SendHeader { wr_id: next, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 };
            match batch.push(header, Payload::Plain(Data::Inline(&[b"data"]))) {
                Ok(()) => next += POSTERS,
                Err(PostError::Full) => break,
                Err(error) => panic!("{error}"),
            }
            if next >= REQUESTS {
                break;
            }
        }
        drop(batch);
        thread::yield_now();
    }
}

fn run(in_device: bool) {
    let (qp, cq, mut adapter) = bench(in_device);
    let seen: Vec<AtomicU64> = (0..REQUESTS).map(|_| AtomicU64::new(0)).collect();
    let total = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| adapter.run(&stop));
        for first in 0..POSTERS {
            let qp = &qp;
            scope.spawn(move || post(qp, first));
        }
        for _ in 0..POLLERS {
            scope.spawn(|| {
                while total.load(Ordering::Acquire) < seen.len() {
                    let taken = cq.poll(5, |_, completion| {
                        seen[completion.wr_id as usize].fetch_add(1, Ordering::Relaxed);
                    });
                    if total.fetch_add(taken, Ordering::AcqRel) + taken >= seen.len() {
                        stop.store(true, Ordering::Release);
                    }
                    thread::yield_now();
                }
            });
        }
    });
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    assert_eq!(cq.poll(1, |_, _| ()), 0, "one completion for each request");
}

#[test]
fn each_request_completes_once_from_guest_memory() {
    run(false);
}

#[test]
fn each_request_completes_once_from_device_memory() {
    run(true);
}

/// Resizes the queue to 1 to 64 entries again and again; returns how often this succeeded.
fn keep_resizing(cq: &CompletionQueue, completions: &Mutex<Completions>, stop: &AtomicBool) -> u64 {
    let mut resizes = 0;
    for step in 0.. {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let shape = Shape { log_size: (step * 5 % 7) as u8, log_stride: 6 };
        let shared = Memory::new(shape);
        let resized = cq.resize(CqRing { shape, memory: shared.map(), holding: None }, |request| {
            assert_eq!(request.log_size, shape.log_size);
            let ring = Ring::new(shared.map(), shape).expect("fits");
            // The stamps are blank in the adapter's mapping too: it is the same memory.
            completions.lock().expect("no panic").resize(ring)
        });
        match resized {
            Ok(()) => resizes += 1,
            Err(error) => assert_eq!(error, Errno::INVAL, "too small for what waits"),
        }
        thread::yield_now();
    }
    resizes
}

/// The queue grows and shrinks under traffic. Each completion must come once, and the completions
/// of each poster in order.
#[test]
fn a_completion_queue_changes_its_size_under_traffic() {
    let (qp, cq, mut adapter) = bench(false);
    let completions = adapter.completions.clone();
    let stop = AtomicBool::new(false);
    let mut next: Vec<u64> = (0..POSTERS).collect();
    let mut total = 0;
    let resizes = thread::scope(|scope| {
        scope.spawn(|| adapter.run(&stop));
        for first in 0..POSTERS {
            let qp = &qp;
            scope.spawn(move || post(qp, first));
        }
        let resizer = scope.spawn(|| keep_resizing(&cq, &completions, &stop));
        while total < REQUESTS as usize {
            total += cq.poll(5, |_, completion| {
                let next = &mut next[(completion.wr_id % POSTERS) as usize];
                assert_eq!(completion.wr_id, *next);
                *next += POSTERS;
            });
            thread::yield_now();
        }
        stop.store(true, Ordering::Release);
        resizer.join().expect("no panic")
    });
    assert!(resizes > 100, "{resizes} resizes");
    assert_eq!(cq.poll(1, |_, _| ()), 0, "one completion for each request");
}

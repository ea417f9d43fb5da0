// SPDX-License-Identifier: GPL-2.0 OR MIT
//! All parts against an adapter that is a thread: many threads post and poll at once, and each
//! work request must complete exactly once. The adapter sees the rings through mappings of its
//! own, as the real one does.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vrnic_abi as abi;
use zerocopy::transmute;

use abi::cq::{Cqe, Opcode as CqOpcode};
use abi::qp::State;
use abi::sq::{Flags, Opcode};
use abi::uverbs::{CqResp, QpResp};

use crate::cq::CompletionQueue;
use crate::doorbell::Uar;
use crate::doorbell::tests::{slot_words, take_summary, uar};
use crate::lock::Sharing;
use crate::mapping::{Access, Mapping};
use crate::plan::{CqRing, QpCap, QpExtras, QpPlan, QpRings};
use crate::qp::{QpParts, QueuePair};
use crate::request::{Payload, PostError, SendHeader};
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
struct Shared(OwnedFd);

impl Shared {
    fn new() -> Self {
        let fd = memfd_create("ring", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&fd, 4096).expect("room");
        Self(fd)
    }

    fn map(&self) -> Mapping {
        Mapping::device(self.0.as_fd(), 0, 4096, Access::ReadWrite).expect("mmap")
    }
}

/// The adapter's side.
struct Adapter {
    uar: Arc<Uar>,
    sends: Ring,
    completions: Ring,
    in_device: bool,
    consumed: u32,
    written: u32,
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
        while self.written.wrapping_sub(slot_words(&self.uar, CQ_SLOT).0) >= self.completions.size()
        {
            if stop.load(Ordering::Acquire) {
                return;
            }
            thread::yield_now();
        }
        let words: [u64; 8] = transmute!(Cqe {
            wr_id: wr_id.into(),
            qpn: QPN.into(),
            wqe_index: self.consumed.into(),
            opcode: CqOpcode::Send as u8,
            stamp: abi::stamp(self.written).into(),
            ..Cqe::default()
        });
        for (to, from) in self.completions.entry(self.written).iter().zip(words) {
            to.store(from, Ordering::Release);
        }
        self.written = self.written.wrapping_add(1);
    }
}

/// A queue pair, its completion queue, and the adapter behind them.
fn bench(in_device: bool) -> (QueuePair, Arc<CompletionQueue>, Adapter) {
    let (send, completions) = (Shared::new(), Shared::new());
    let uar = uar(1);
    let ring = CqRing { shape: CQ, memory: completions.map() };
    let response = CqResp { slot: CQ_SLOT.into(), ..CqResp::default() };
    let cq = Arc::new(CompletionQueue::new(ring, &response, uar.clone()).expect("valid"));
    let extras = QpExtras::default();
    let plan = QpPlan { send: Some(SQ), recv: None, send_in_device: in_device, extras };
    let rings = QpRings { plan, send: (!in_device).then(|| send.map()), recv: None };
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
    let adapter = Adapter {
        uar,
        sends: Ring::new(send.map(), SQ).expect("fits"),
        completions: Ring::new(completions.map(), CQ).expect("fits"),
        in_device,
        consumed: 0,
        written: 0,
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
            match batch.push(header, Payload::Inline(&[b"data"])) {
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

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Each call that allocates is made with its first allocation failing, then with its second, and so
//! on until it succeeds. Each failure must be `ENOMEM` and leave nothing allocated.
//!
//! Shows: programs: a program that runs out of memory gets an error

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::qp::State;
use abi::sq::{Flags, Opcode};
use abi::uverbs::{CqResp, QpResp, SrqResp};
use vrnic_queues::allocator::Resource;
use vrnic_queues::cq::CompletionQueue;
use vrnic_queues::doorbell::{Uar, UarTable};
use vrnic_queues::heap::{Shared, boxed, copied};
use vrnic_queues::layout::{
    CqRing, Limits, QpCap, QpExtras, QpLayout, QpRings, SrqRing, WqeHeader,
};
use vrnic_queues::lock::Sharing;
use vrnic_queues::mapping::Mapping;
use vrnic_queues::policy::SqPolicy;
use vrnic_queues::qp::{QpParts, QueuePair};
use vrnic_queues::request::{Data, Payload, SendHeader};
use vrnic_queues::source::Source;
use vrnic_queues::srq::SharedRecvQueue;

thread_local! {
    /// The number of allocations of this thread that succeed before others fail.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
    /// The number of allocations that fail then.
    static FAILING: Cell<u32> = const { Cell::new(0) };
    /// The number of allocations that this thread has not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

// SAFETY: passes all calls to the system's allocator, or fails.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match (LEFT.get(), FAILING.get()) {
            (0, 0) => {}
            (0, failing) => {
                FAILING.set(failing - 1);
                return std::ptr::null_mut();
            }
            (left, _) => LEFT.set(left - 1),
        }
        LIVE.set(LIVE.get() + 1);
        // SAFETY: the caller passes what the system's allocator demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: the caller passes what the system's allocator demands.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Makes `call` with each of its allocations failing, alone and with all later ones, until the call
/// succeeds. Returns how many allocations it makes.
fn try_without_memory<T>(call: impl Fn() -> Result<T, Errno>) -> u32 {
    for failing in [1, u32::MAX] {
        for first in 0..100 {
            let before = LIVE.get();
            FAILING.set(failing);
            LEFT.set(first);
            let result = call();
            LEFT.set(u32::MAX);
            let error = result.map(drop).err();
            assert_eq!(LIVE.get(), before, "left after {first} allocations: {error:?}");
            match error {
                None if failing == 1 => break,
                None => return first,
                Some(error) => assert_eq!(error, Errno::NOMEM, "after {first} allocations"),
            }
        }
    }
    panic!("never enough memory");
}

const LIMITS: Limits = Limits { max_wr: 64, max_sge: 16, max_inline: 480, max_cqe: 64 };

fn memory(len: u32) -> Result<Mapping, Errno> {
    Mapping::anonymous(len as usize)
}

fn table() -> Result<UarTable, Errno> {
    Ok(UarTable::new(Shared::new(memory(4096)?)?))
}

fn uar() -> Result<Shared<Uar>, Errno> {
    table()?.get(1.into(), || memory(abi::uar::UAR_LEN))
}

fn cq() -> Result<Shared<CompletionQueue>, Errno> {
    let response = CqResp { slot: 20.into(), ..CqResp::default() };
    let ring = CqRing::allocate(8, &LIMITS, &Source::pages(Resource::Cq))?;
    Shared::new(CompletionQueue::new(ring, &response, uar()?, Sharing::ANY)?)
}

fn srq(cq: Option<Shared<CompletionQueue>>) -> Result<Shared<SharedRecvQueue>, Errno> {
    let response = SrqResp { srqn: 5.into(), slot: 21.into(), ..SrqResp::default() };
    let ring = SrqRing::allocate(4, 1, &LIMITS, &Source::pages(Resource::Srq))?;
    Shared::new(SharedRecvQueue::new(ring, &response, uar()?, Sharing::ANY, cq)?)
}

/// Returns a queue pair between two completion queues.
fn qp(policy: SqPolicy, srq: Option<Shared<SharedRecvQueue>>) -> Result<QueuePair, Errno> {
    let max_recv_wr = if srq.is_some() { 0 } else { 4 };
    let cap =
        QpCap { max_send_wr: 8, max_recv_wr, max_send_sge: 1, max_recv_sge: 1, max_inline: 64 };
    let extras = QpExtras { header: WqeHeader::Connected, ..QpExtras::default() };
    let layout = QpLayout::new(&cap, &LIMITS, policy, extras)?;
    let response = QpResp { qpn: 7.into(), slot: 22.into(), ..QpResp::default() };
    let parts = QpParts {
        uar: uar()?,
        device_send: layout.send_in_device.then(|| memory(4096)).transpose()?,
        send_cq: cq()?,
        recv_cq: cq()?,
        srq,
        all_signaled: false,
        sharing: Sharing::ANY,
    };
    QueuePair::new(QpRings::allocate(layout, &Source::pages(Resource::Qp))?, &cap, &response, parts)
}

#[test]
fn values_on_the_heap() {
    assert_eq!(try_without_memory(|| boxed([0u8; 64])), 1);
    assert_eq!(try_without_memory(|| copied(&[0u8; 64])), 1);
    assert_eq!(try_without_memory(|| Shared::new(())), 1);
}

#[test]
fn doorbell_pages() {
    // The kick page, the first UAR, its memory, the state of its life, room in the table; then
    // eight UARs.
    assert_eq!(try_without_memory(uar), 5);
    let more = || {
        let table = table()?;
        (1..9).try_for_each(|index: u32| {
            table.get(index.into(), || memory(abi::uar::UAR_LEN)).map(drop)
        })
    };
    assert_eq!(try_without_memory(more), 2 + 8 * 2 + 2);
}

#[test]
fn completion_queues() {
    let doors = try_without_memory(uar);
    assert_eq!(try_without_memory(cq), doors + 2);
    let cq = cq().expect("memory");
    let resize =
        || cq.resize(CqRing::allocate(16, &LIMITS, &Source::pages(Resource::Cq))?, |_| Ok(0));
    assert_eq!(try_without_memory(resize), 1);
}

#[test]
fn shared_receive_queues() {
    let plain = try_without_memory(|| srq(None));
    assert!(plain > try_without_memory(uar));
    let xrc = try_without_memory(|| srq(Some(cq()?)));
    // The credits, the change to the completion queue's feeders, and the place among these.
    assert_eq!(xrc, plain + try_without_memory(cq) + 3);
}

#[test]
fn queue_pairs() {
    let guest = try_without_memory(|| qp(SqPolicy::Guest, None));
    let queues = 2 * try_without_memory(cq) + try_without_memory(uar);
    // Two rings, the credits, a change to the feeders of each completion queue, and the place among
    // those of the first. If there is no memory for the last place, the change waits.
    assert_eq!(guest, queues + 6);
    let device = try_without_memory(|| qp(SqPolicy::Device, None));
    assert_eq!(device, guest + 1, "the identifiers of its requests");
    let shared = try_without_memory(|| qp(SqPolicy::Guest, Some(srq(None)?)));
    assert_eq!(shared, guest - 1 + try_without_memory(|| srq(None)));
}

#[test]
fn posting_allocates_nothing() {
    for policy in [SqPolicy::Guest, SqPolicy::Device] {
        let qp = qp(policy, None).expect("memory");
        qp.entered(State::Rts);
        let (opcode, flags) = (Opcode::Send, Flags::empty());
        let header = SendHeader { wr_id: 1, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 };
        let payload = Payload::Plain(Data::Inline(&[b"payload"]));
        let post = || {
            let mut staged = qp.stage().ok_or(Errno::INVAL)?;
            for _ in 0..2 {
                staged.push(header, payload).map_err(|_| Errno::INVAL)?;
            }
            staged.post();
            let mut batch = qp.sends().map_err(|_| Errno::INVAL)?;
            batch.push(header, payload).map_err(|_| Errno::INVAL)
        };
        assert_eq!(try_without_memory(post), 0, "{policy:?}");
    }
}

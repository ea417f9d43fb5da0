// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shows: queues: queue pairs of programs: posting, flushing, other posters, devices that went

use abi::cq::{Cqe, Opcode as CqOpcode, Status};
use abi::sq::Opcode;

use super::*;
use crate::allocator::Resource;
use crate::cq::Notify;
use crate::cq::tests::{complete, queue, send_cqe};
use crate::doorbell::tests::{end_life, mark, memory, slot_words, take_summary};
use crate::layout::{Limits, QpExtras, QpLayout};
use crate::mapping::tests::replace_by_one_page;
use crate::policy::SqPolicy;
use crate::request::{Data, Payload, SendHeader};
use crate::source::Source;

const SLOT: u32 = 16;
const QPN: u32 = 77;
const LIMITS: Limits = Limits { max_wr: 64, max_sge: 16, max_inline: 480, max_cqe: 64 };

struct Bench {
    qp: QueuePair,
    cq: Shared<CompletionQueue>,
    uar: Shared<Uar>,
}

fn bench(policy: SqPolicy, all_signaled: bool) -> Bench {
    bench_of(policy, all_signaled, QpExtras::default())
}

fn bench_of(policy: SqPolicy, all_signaled: bool, extras: QpExtras) -> Bench {
    let cap =
        QpCap { max_send_wr: 4, max_recv_wr: 2, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let layout = QpLayout::new(&cap, &LIMITS, policy, extras).expect("valid");
    let rings = QpRings::allocate(layout, &Source::pages(Resource::Qp)).expect("memory");
    let (cq, uar) = queue(16);
    let cq = Shared::new(cq).expect("memory");
    let response = QpResp { qpn: QPN.into(), slot: SLOT.into(), ..QpResp::default() };
    let parts = QpParts {
        uar: uar.clone(),
        device_send: layout.send_in_device.then(|| Mapping::anonymous(4096).expect("mmap")),
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        all_signaled,
        sharing: Sharing::ANY,
    };
    let qp = QueuePair::new(rings, &cap, &response, parts).expect("valid");
    Bench { qp, cq, uar }
}

fn header(wr_id: u64) -> SendHeader {
    let (opcode, flags) = (Opcode::Send, Flags::empty());
    SendHeader { wr_id, opcode, flags, imm: [0; 4], raddr: 0, rkey: 0 }
}

fn post(qp: &QueuePair, count: u64) -> Result<(), PostError> {
    let mut batch = qp.sends()?;
    (0..count).try_for_each(|wr_id| batch.push(header(wr_id), Payload::Plain(Data::Segments(&[]))))
}

#[test]
fn each_release_of_a_stream_changes_its_word_and_rings() {
    let other = bench(SqPolicy::Guest, false);
    other.qp.entered(State::Rts);
    assert_eq!(other.qp.release(), Err(Errno::INVAL));
    assert_eq!(other.qp.awaits_stream(), Err(Errno::INVAL));
    let toe = QpExtras { toe: true, ..QpExtras::default() };
    let bench = bench_of(SqPolicy::Guest, false, toe);
    assert_eq!((bench.qp.release(), bench.qp.awaits_stream()), (Err(Errno::NOTCONN), Ok(())));
    assert_eq!(take_summary(&bench.uar), 0);
    bench.qp.entered(State::Rts);
    assert_eq!(bench.qp.awaits_stream(), Err(Errno::ISCONN));
    for expected in [1, 2] {
        assert_eq!(bench.qp.release(), Ok(()));
        assert_eq!(mark(&bench.uar, SLOT, RELEASE_WORD), expected);
        assert_ne!(take_summary(&bench.uar), 0);
    }
}

#[test]
fn a_batch_rings_once_with_the_last_index() {
    let bench = bench(SqPolicy::Guest, false);
    bench.qp.entered(State::Rts);
    post(&bench.qp, 3).expect("room");
    assert_eq!(slot_words(&bench.uar, SLOT), (3, 0));
    assert_eq!(take_summary(&bench.uar), 1 << 1);
    post(&bench.qp, 0).expect("nothing");
    assert_eq!(take_summary(&bench.uar), 0);
}

#[test]
fn what_fits_is_posted_before_the_error() {
    let bench = bench(SqPolicy::Guest, false);
    bench.qp.entered(State::Rts);
    assert_eq!(post(&bench.qp, 9), Err(PostError::Full));
    assert_eq!(slot_words(&bench.uar, SLOT).0, 4);
    assert_eq!(take_summary(&bench.uar), 1 << 1);
    // One signaled completion gives back the entries of unsignaled ones before it.
    complete(&bench.cq, 0, send_cqe(QPN, 2, 2));
    assert_eq!(bench.cq.poll(1, |_, _| ()), 1);
    assert_eq!(post(&bench.qp, 9), Err(PostError::Full));
    assert_eq!(slot_words(&bench.uar, SLOT).0, 7);
}

#[test]
fn a_queue_in_the_device_needs_no_producer_index() {
    let bench = bench(SqPolicy::Device, false);
    bench.qp.entered(State::Rts);
    post(&bench.qp, 2).expect("room");
    assert_eq!(slot_words(&bench.uar, SLOT), (0, 0));
    assert_eq!(take_summary(&bench.uar), 1 << 1);
}

#[test]
fn staged_sends_ring_once_or_never() {
    for policy in [SqPolicy::Guest, SqPolicy::Device] {
        let bench = bench(policy, true);
        let stage = |count: u64| {
            let mut staged = bench.qp.stage().expect("has a send queue");
            for wr_id in 0..count {
                staged.push(header(wr_id), Payload::Plain(Data::Segments(&[])))?;
            }
            Ok(staged)
        };
        assert_eq!(stage(1).map(drop), Err(PostError::State));
        bench.qp.entered(State::Rts);
        stage(4).map(drop).expect("room");
        assert_eq!(stage(5).map(drop), Err(PostError::Full));
        assert_eq!((slot_words(&bench.uar, SLOT).0, take_summary(&bench.uar)), (0, 0));
        stage(0).expect("nothing").post();
        assert_eq!(take_summary(&bench.uar), 0);
        stage(3).expect("room").post();
        let posted = if policy == SqPolicy::Guest { 3 } else { 0 };
        assert_eq!((slot_words(&bench.uar, SLOT).0, take_summary(&bench.uar)), (posted, 1 << 1));
        assert_eq!(post(&bench.qp, 2), Err(PostError::Full), "one is left, for both ways");
        let flags = bench.qp.send.as_ref().expect("has one").lock().flags_at(0);
        assert_eq!(flags, Flags::SIGNALED.bits());
    }
}

#[test]
fn states_limit_what_may_be_posted() {
    let bench = bench(SqPolicy::Guest, false);
    assert_eq!(post(&bench.qp, 1), Err(PostError::State));
    assert_eq!(bench.qp.recvs().map(drop), Err(PostError::State));
    for state in [State::Init, State::Rtr] {
        bench.qp.entered(state);
        assert_eq!(post(&bench.qp, 1), Err(PostError::State));
        bench.qp.recvs().expect("allowed").push(1, &[]).expect("room");
    }
    bench.qp.entered(State::Err);
    post(&bench.qp, 1).expect("is flushed");
    assert_eq!(slot_words(&bench.uar, SLOT), (1, 2));
}

#[test]
fn reset_starts_all_over() {
    let bench = bench(SqPolicy::Guest, false);
    bench.qp.entered(State::Rts);
    post(&bench.qp, 4).expect("room");
    let mut batch = bench.qp.recvs().expect("allowed");
    batch.push(1, &[]).expect("room");
    drop(batch);
    complete(&bench.cq, 0, send_cqe(QPN, 0, 0));
    complete(&bench.cq, 1, Cqe { opcode: CqOpcode::Recv as u8, ..send_cqe(QPN, 1, 0) });
    bench.qp.entered(State::Reset);
    assert_eq!(bench.cq.poll(8, |_, _| ()), 0, "unpolled completions are gone");
    assert_eq!(slot_words(&bench.uar, SLOT), (0, 0));
    bench.qp.entered(State::Rts);
    post(&bench.qp, 4).expect("all entries are free");
    assert_eq!(slot_words(&bench.uar, SLOT).0, 4);
}

#[test]
fn sends_are_signaled_as_asked() {
    let bench = bench(SqPolicy::Guest, true);
    bench.qp.entered(State::Rts);
    post(&bench.qp, 1).expect("room");
    let other = super::tests::bench(SqPolicy::Guest, false);
    other.qp.entered(State::Rts);
    post(&other.qp, 1).expect("room");
    let flags = |qp: &QueuePair| qp.send.as_ref().expect("has one").lock().flags_at(0);
    assert_eq!(flags(&bench.qp), Flags::SIGNALED.bits());
    assert_eq!(flags(&other.qp), 0);
}

#[test]
fn a_dropped_queue_pair_leaves_no_completions() {
    let bench = bench(SqPolicy::Guest, false);
    complete(&bench.cq, 0, send_cqe(QPN, 0, 0));
    drop(bench.qp);
    assert_eq!(bench.cq.poll(8, |_, _| ()), 0);
}

/// Polls; returns the identifier of each completion, whether it is a receive, and its status.
fn polled(cq: &CompletionQueue) -> Vec<(u64, bool, Status)> {
    let mut seen = vec![];
    cq.poll(64, |_, c| seen.push((c.wr_id, c.opcode.is_recv(), c.status)));
    seen
}

const FLUSHED: Status = Status::WrFlushErr;

#[test]
fn a_dead_adapters_requests_are_flushed_in_order() {
    for policy in [SqPolicy::Guest, SqPolicy::Device] {
        let bench = bench(policy, false);
        bench.qp.entered(State::Rts);
        post(&bench.qp, 4).expect("room");
        bench.qp.recvs().expect("state").push(50, &[]).expect("room");
        bench.qp.recvs().expect("state").push(51, &[]).expect("room");
        assert_eq!(polled(&bench.cq), []);
        // Written just before the end: this and all sends before it are done.
        complete(&bench.cq, 0, send_cqe(QPN, 1, 1));
        end_life(&bench.uar);
        let sent = (1, false, Status::Success);
        let rest = [(2, false), (3, false), (50, true), (51, true)];
        let rest = rest.map(|(wr_id, is_recv)| (wr_id, is_recv, FLUSHED));
        assert_eq!(polled(&bench.cq), [&[sent][..], &rest].concat());
        assert_eq!(polled(&bench.cq), []);
        // Later requests go the same way, as long as there is room.
        assert_eq!(post(&bench.qp, 9), Err(PostError::Full));
        let later: Vec<_> = (0..4).map(|wr_id| (wr_id, false, FLUSHED)).collect();
        assert_eq!(polled(&bench.cq), later);
    }
}

/// The third entry of the send queue has the offset of the life word in its page.
#[test]
fn requests_posted_after_the_device_has_gone_are_flushed() {
    let bench = bench(SqPolicy::Device, false);
    bench.qp.entered(State::Rts);
    let entries = bench.qp.send.as_ref().expect("has one").lock().memory();
    replace_by_one_page(&[memory(&bench.uar).words(), &entries]);
    for _ in 0..3 {
        post(&bench.qp, 4).expect("room");
        let flushed: Vec<_> = (0..4).map(|wr_id| (wr_id, false, FLUSHED)).collect();
        assert_eq!(polled(&bench.cq), flushed);
    }
}

#[test]
fn a_series_gives_what_a_dead_adapter_leaves() {
    let bench = bench(SqPolicy::Guest, false);
    bench.qp.entered(State::Rts);
    post(&bench.qp, 3).expect("room");
    bench.cq.arm(Notify::Any);
    end_life(&bench.uar);
    let (mut series, first) = bench.cq.series().expect("flushed");
    assert_eq!((first.wr_id, first.status, first.qpn), (0, FLUSHED, QPN));
    assert_eq!(series.take().map(|next| next.wr_id), Some(1));
    drop(series);
    let (mut series, first) = bench.cq.series().expect("flushed");
    assert_eq!(first.wr_id, 2);
    assert!(series.take().is_none());
    drop(series);
    assert!(bench.cq.series().is_none());
}

#[test]
fn only_a_queues_own_half_is_flushed_there_and_nothing_after_its_end() {
    let Bench { qp, cq, uar } = bench(SqPolicy::Guest, false);
    let (other, other_uar) = queue(16);
    other.attach(QPN.into(), &qp.credits, Halves::RECVS).expect("memory");
    qp.entered(State::Rts);
    post(&qp, 2).expect("room");
    qp.recvs().expect("state").push(50, &[]).expect("room");
    end_life(&other_uar);
    assert_eq!(polled(&other), [(50, true, FLUSHED)]);
    drop(qp);
    end_life(&uar);
    assert_eq!(polled(&cq), []);
}

/// Shows: queues
#[test]
fn queues_of_another_poster_take_no_requests() {
    for policy in [SqPolicy::Guest, SqPolicy::Device] {
        let bench = bench(policy, false);
        let Bench { qp, cq, uar } = &bench;
        qp.entered(State::Rts);
        post(qp, 2).expect("room");
        complete(cq, 0, send_cqe(QPN, 0, 0));
        assert_eq!(cq.poll(1, |_, _| ()), 1);
        take_summary(uar);
        let taken = qp.hand_over(Halves::SENDS).expect("it has one");
        let ring = taken.send.expect("handed over");
        assert_eq!((ring.entries, ring.stride, ring.next, ring.freed), (4, 64, 2, 1));
        assert_eq!((ring.place == Place::Device), (policy == SqPolicy::Device));
        assert_eq!((ring.word, taken.bell.bit, taken.recv), (SLOT * 64, 1 << (SLOT / 16), None));
        assert_eq!((taken.qpn.get(), taken.header), (QPN, WqeHeader::Connected));

        let before = slot_words(uar, SLOT);
        assert_eq!(post(qp, 1), Err(PostError::HandedOver));
        let mut staged = qp.stage().expect("it has a send queue");
        let data = Payload::Plain(Data::Segments(&[]));
        assert_eq!(staged.push(header(9), data), Err(PostError::HandedOver));
        staged.post();
        assert_eq!((slot_words(uar, SLOT), take_summary(uar)), (before, 0));
        qp.recvs().expect("ready").push(1, &[]).expect("the other queue goes on");

        let taken = qp.hand_over(Halves { sends: true, recvs: true }).expect("it has both");
        let recv = taken.recv.expect("handed over");
        assert_eq!((recv.word, recv.next, recv.freed), (SLOT * 64 + 4, 1, 0));
        assert_eq!((recv.entries, recv.stride), (2, 32));
        assert_eq!(qp.recvs().expect("ready").push(2, &[]), Err(PostError::HandedOver));

        // The adapter begins at zero again, and the library still posts nothing.
        qp.entered(State::Reset);
        qp.entered(State::Rts);
        assert_eq!(post(qp, 1), Err(PostError::HandedOver));
        let ring = qp.hand_over(Halves::SENDS).expect("again").send.expect("handed over");
        assert_eq!((ring.next, ring.freed), (0, 0));
    }
}

#[test]
fn there_must_be_a_queue_to_hand_over() {
    let toe = QpExtras { toe: true, ..QpExtras::default() };
    let stream = bench_of(SqPolicy::Guest, false, toe);
    assert_eq!(stream.qp.hand_over(Halves::SENDS), Err(Errno::INVAL));
    let plain = bench(SqPolicy::Guest, false);
    assert_eq!(plain.qp.hand_over(Halves::default()), Err(Errno::INVAL));
    plain.qp.entered(State::Rts);
    post(&plain.qp, 1).expect("nothing was handed over");
}

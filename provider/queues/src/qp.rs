// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The queue pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::qp::State;
use abi::sq::{Flags, Sge};
use abi::uverbs::QpResp;

use crate::cq::{CompletionQueue, Credits};
use crate::doorbell::{QpDoorbell, Uar};
use crate::lock::{Guard, Sharing, SpinLock};
use crate::mapping::Mapping;
use crate::plan::{QpCap, QpRings, SendForm};
use crate::recv::RecvQueue;
use crate::request::{Payload, PostError, SendHeader, SendLimits};
use crate::ring::Ring;
use crate::send::{Place, SendQueue};
use crate::srq::SharedRecvQueue;

/// What a queue pair is made of, beside its rings.
#[derive(Debug)]
pub struct QpParts {
    /// Its doorbell page.
    pub uar: Arc<Uar>,
    /// The mapped send queue, where that lies in the adapter's memory.
    pub device_send: Option<Mapping>,
    /// Where its sends complete.
    pub send_cq: Arc<CompletionQueue>,
    /// Where its receives complete.
    pub recv_cq: Arc<CompletionQueue>,
    /// What receives are taken from, in place of a queue of its own.
    pub srq: Option<Arc<SharedRecvQueue>>,
    /// Whether each send completes with an entry, asked for or not.
    pub all_signaled: bool,
    /// Who posts.
    pub sharing: Sharing,
}

/// A queue pair, for as many threads as its [`Sharing`] tells.
#[derive(Debug)]
pub struct QueuePair {
    qpn: u32,
    send: Option<SpinLock<SendQueue>>,
    recv: Option<SpinLock<RecvQueue>>,
    credits: Arc<Credits>,
    door: QpDoorbell,
    /// A [`State`], as the user set it last.
    state: AtomicU8,
    /// What every send has, asked for or not.
    always: Flags,
    form: SendForm,
    send_cq: Arc<CompletionQueue>,
    recv_cq: Arc<CompletionQueue>,
}

impl QueuePair {
    /// The queue pair on `rings`, as the kernel created it for `cap`. Its completions can be
    /// polled from now on.
    ///
    /// # Errors
    /// `EIO` when the kernel's answer makes no sense.
    pub fn new(
        rings: QpRings,
        cap: &QpCap,
        response: &QpResp,
        parts: QpParts,
    ) -> Result<Self, Errno> {
        let form = rings.plan.extras.form;
        let (place, memory) = match rings.plan.send_in_device {
            true => (Place::Device, parts.device_send),
            false => (Place::Guest, rings.send),
        };
        let send = match rings.plan.send {
            Some(shape) => {
                let ring = memory.and_then(|memory| Ring::new(memory, shape)).ok_or(Errno::IO)?;
                let max_command_sge = rings.plan.extras.max_command_sge;
                let max_inline = match max_command_sge {
                    0 => form.inline_capacity(shape.stride()),
                    // The rest is for the command's data.
                    _ => cap.max_inline,
                };
                let limits = SendLimits { max_sge: cap.max_send_sge, max_inline, max_command_sge };
                let queue = SendQueue::new(ring, place, limits);
                Some(SpinLock::shared_by(parts.sharing, queue))
            }
            None => None,
        };
        let recv = match rings.plan.recv {
            Some(shape) => {
                let memory = rings.recv.ok_or(Errno::IO)?;
                let ring = Ring::new(memory, shape).ok_or(Errno::IO)?;
                Some(SpinLock::shared_by(parts.sharing, RecvQueue::new(ring, cap.max_recv_sge)))
            }
            None => None,
        };
        let qp = Self {
            qpn: response.qpn.get(),
            send,
            recv,
            credits: Arc::new(Credits::new(parts.srq.map(|srq| srq.credits().clone()))),
            door: QpDoorbell::new(parts.uar, response.slot.get())?,
            state: AtomicU8::new(State::Reset as u8),
            form,
            always: if parts.all_signaled { Flags::SIGNALED } else { Flags::empty() },
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
        };
        qp.send_cq.attach(qp.qpn, &qp.credits);
        qp.recv_cq.attach(qp.qpn, &qp.credits);
        Ok(qp)
    }

    /// What its sends name: whether they are [`Payload::Datagram`]s, [`Payload::Xrc`], or others.
    #[must_use]
    #[inline]
    pub fn form(&self) -> SendForm {
        self.form
    }

    /// Begins to post sends: the batch holds the queue's lock, and rings once on drop.
    ///
    /// # Errors
    /// [`PostError::State`] before Ready to Send, [`PostError::NoQueue`].
    #[inline]
    pub fn sends(&self) -> Result<SendBatch<'_>, PostError> {
        if !self.takes_sends() {
            return Err(PostError::State);
        }
        let queue = self.send.as_ref().ok_or(PostError::NoQueue)?.lock();
        let start = queue.producer();
        Ok(SendBatch { qp: self, queue, start })
    }

    /// Begins to post sends that are posted together or not at all; the queue's lock is held until then. `None` without
    /// a send queue; in a state that takes no sends each is refused.
    #[inline]
    pub fn stage(&self) -> Option<StagedSends<'_>> {
        let queue = self.send.as_ref()?.lock();
        let start = queue.producer();
        Some(StagedSends { qp: self, queue, start })
    }

    /// Whether sends may be posted.
    #[inline]
    fn takes_sends(&self) -> bool {
        !matches!(self.state(), Some(State::Reset | State::Init | State::Rtr))
    }

    /// Begins to post receives: the batch holds the queue's lock, and publishes once on drop.
    ///
    /// # Errors
    /// [`PostError::State`] in Reset, [`PostError::NoQueue`].
    #[inline]
    pub fn recvs(&self) -> Result<RecvBatch<'_>, PostError> {
        if matches!(self.state(), Some(State::Reset)) {
            return Err(PostError::State);
        }
        let queue = self.recv.as_ref().ok_or(PostError::NoQueue)?.lock();
        let start = queue.producer();
        Ok(RecvBatch { qp: self, queue, start })
    }

    /// The adapter has taken the QP into `state`. Reset empties both queues and drops the
    /// completions that nobody has polled.
    pub fn entered(&self, state: State) {
        if state == State::Reset {
            self.send_cq.purge(self.qpn);
            self.recv_cq.purge(self.qpn);
            let mut send = self.send.as_ref().map(SpinLock::lock);
            let mut recv = self.recv.as_ref().map(SpinLock::lock);
            if let Some(queue) = &mut send {
                queue.reset();
            }
            if let Some(queue) = &mut recv {
                queue.reset();
            }
            self.credits.reset();
            self.door.clear();
        }
        self.state.store(state as u8, Ordering::Release);
    }

    #[inline]
    fn state(&self) -> Option<State> {
        State::from_raw(self.state.load(Ordering::Acquire))
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.send_cq.detach(self.qpn, &self.credits);
        self.recv_cq.detach(self.qpn, &self.credits);
    }
}

/// Sends being posted with one doorbell.
#[derive(Debug)]
pub struct SendBatch<'a> {
    qp: &'a QueuePair,
    queue: Guard<'a, SendQueue>,
    start: u32,
}

impl SendBatch<'_> {
    /// Adds a request.
    ///
    /// # Errors
    /// As [`PostError`] tells; the queue is as before then.
    #[inline(always)]
    pub fn push(&mut self, mut header: SendHeader, payload: Payload<'_>) -> Result<(), PostError> {
        header.flags |= self.qp.always;
        let freed = self.qp.credits.send.load(Ordering::Acquire);
        self.queue.push(freed, &header, payload)
    }
}

impl Drop for SendBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        let producer = self.queue.producer();
        if producer != self.start {
            match self.queue.place() {
                Place::Guest => self.qp.door.post_sends(producer),
                Place::Device => self.qp.door.look(),
            }
        }
    }
}

/// Sends that are posted together, or dropped together.
#[derive(Debug)]
pub struct StagedSends<'a> {
    qp: &'a QueuePair,
    queue: Guard<'a, SendQueue>,
    /// The first that was not posted.
    start: u32,
}

impl StagedSends<'_> {
    /// As [`QueuePair::form`].
    #[must_use]
    #[inline]
    pub fn form(&self) -> SendForm {
        self.qp.form()
    }

    /// Adds a request.
    ///
    /// # Errors
    /// As [`PostError`] tells; the others are as before then.
    #[inline]
    pub fn push(&mut self, mut header: SendHeader, payload: Payload<'_>) -> Result<(), PostError> {
        if !self.qp.takes_sends() {
            return Err(PostError::State);
        }
        header.flags |= self.qp.always;
        let freed = self.qp.credits.send.load(Ordering::Acquire);
        self.queue.stage(freed, &header, payload)
    }

    /// Posts them with one doorbell.
    #[inline]
    pub fn post(mut self) {
        let producer = self.queue.producer();
        if producer == self.start {
            return;
        }
        self.queue.commit();
        self.start = producer;
        match self.queue.place() {
            Place::Guest => self.qp.door.post_sends(producer),
            Place::Device => self.qp.door.look(),
        }
    }
}

impl Drop for StagedSends<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.roll_back(self.start);
    }
}

/// Receives being posted together.
#[derive(Debug)]
pub struct RecvBatch<'a> {
    qp: &'a QueuePair,
    queue: Guard<'a, RecvQueue>,
    start: u32,
}

impl RecvBatch<'_> {
    /// Adds a receive.
    ///
    /// # Errors
    /// As [`PostError`] tells; the queue is as before then.
    #[inline]
    pub fn push(&mut self, wr_id: u64, segments: &[Sge]) -> Result<(), PostError> {
        let freed = self.qp.credits.recv.load(Ordering::Acquire);
        self.queue.push(freed, wr_id, segments)
    }
}

impl Drop for RecvBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        let producer = self.queue.producer();
        if producer != self.start {
            self.qp.door.post_recvs(producer);
        }
    }
}

#[cfg(test)]
mod tests {
    use abi::cq::{Cqe, Opcode as CqOpcode};
    use abi::sq::Opcode;

    use super::*;
    use crate::cq::tests::{complete, queue, send_cqe};
    use crate::doorbell::tests::{slot_words, take_summary};
    use crate::plan::{Limits, QpExtras, QpPlan, SqPolicy};

    const SLOT: u32 = 16;
    const QPN: u32 = 77;
    const LIMITS: Limits = Limits { max_wr: 64, max_sge: 16, max_inline: 480, max_cqe: 64 };

    struct Bench {
        qp: QueuePair,
        cq: Arc<CompletionQueue>,
        uar: Arc<Uar>,
    }

    fn bench(policy: SqPolicy, all_signaled: bool) -> Bench {
        let cap = QpCap {
            max_send_wr: 4,
            max_recv_wr: 2,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let plan = QpPlan::new(&cap, &LIMITS, policy, QpExtras::default()).expect("valid");
        let rings = QpRings::allocate(plan).expect("memory");
        let (cq, uar) = queue(16);
        let cq = Arc::new(cq);
        let response = QpResp { qpn: QPN.into(), slot: SLOT.into(), ..QpResp::default() };
        let parts = QpParts {
            uar: uar.clone(),
            device_send: plan.send_in_device.then(|| Mapping::anonymous(4096).expect("mmap")),
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
        (0..count).try_for_each(|wr_id| batch.push(header(wr_id), Payload::Segments(&[])))
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
                    staged.push(header(wr_id), Payload::Segments(&[]))?;
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
            assert_eq!(
                (slot_words(&bench.uar, SLOT).0, take_summary(&bench.uar)),
                (posted, 1 << 1)
            );
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
}

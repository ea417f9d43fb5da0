// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The queue pair. Requests are posted by batches, which hold a queue's lock.

mod batch;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::Qpn;
use abi::connection::RELEASE_WORD;
use abi::doorbell::RQ_PI;
use abi::qp::State;
use abi::sq::Flags;
use abi::uverbs::QpResp;

pub use self::batch::{RecvBatch, SendBatch, StagedSends};
pub use crate::cq::Halves;
use crate::cq::{CompletionQueue, Credits};
use crate::doorbell::{QpDoorbell, Uar};
use crate::handover::{QpHandover, RingPlace};
use crate::heap::Shared;
use crate::layout::{QpCap, QpExtras, QpLayout, QpRings, WqeHeader};
use crate::lock::{Sharing, SpinLock};
use crate::mapping::Mapping;
use crate::recv::RecvQueue;
use crate::request::{PostError, SendLimits};
use crate::ring::Ring;
use crate::send::{Place, SendQueue};
use crate::srq::SharedRecvQueue;

/// The parts of a queue pair, other than its rings.
#[derive(Debug)]
pub struct QpParts {
    /// The doorbell page.
    pub uar: Shared<Uar>,
    /// The mapped send queue, if it is in the adapter's memory.
    pub device_send: Option<Mapping>,
    /// The completion queue of its sends.
    pub send_cq: Shared<CompletionQueue>,
    /// The completion queue of its receives.
    pub recv_cq: Shared<CompletionQueue>,
    /// The shared receive queue, if it has no receive queue of its own.
    pub srq: Option<Shared<SharedRecvQueue>>,
    /// Each send completes with an entry, whether the request asks for it or not.
    pub all_signaled: bool,
    /// The threads that may post.
    pub sharing: Sharing,
}

/// A queue pair. Its [`Sharing`] determines which threads may use it.
#[derive(Debug)]
pub struct QueuePair {
    qpn: Qpn,
    send: Option<SpinLock<SendQueue>>,
    recv: Option<SpinLock<RecvQueue>>,
    credits: Shared<Credits>,
    door: QpDoorbell,
    /// The [`State`] that the user set last.
    state: AtomicU8,
    /// Flags that every send has.
    always: Flags,
    wqe_header: WqeHeader,
    /// True if it has a TCP connection that carries bytes: posting receives rings the doorbell.
    recvs_ring: bool,
    /// Number of requests for the bytes of the receive in progress.
    releases: AtomicU32,
    send_cq: Shared<CompletionQueue>,
    recv_cq: Shared<CompletionQueue>,
}

impl QueuePair {
    /// Returns the queue pair on `rings`, as the kernel created it for `cap`. From now on its
    /// completions can be polled.
    ///
    /// # Errors
    /// `EIO` if the kernel's answer is invalid; `ENOMEM`.
    pub fn new(
        rings: QpRings,
        cap: &QpCap,
        response: &QpResp,
        parts: QpParts,
    ) -> Result<Self, Errno> {
        let QpExtras { header: wqe_header, toe: recvs_ring, .. } = rings.layout.extras;
        let (send, recv) = queues(rings, cap, parts.device_send)?;
        let credits = Credits {
            sends: send.as_ref().map(SendQueue::posted),
            recvs: recv.as_ref().map(RecvQueue::posted),
            shared: parts.srq.map(|srq| srq.credits().clone()),
            ..Credits::default()
        };
        let lock = parts.sharing;
        let qp = Self {
            qpn: response.qpn,
            send: send.map(|queue| SpinLock::shared_by(lock, queue)),
            recv: recv.map(|queue| SpinLock::shared_by(lock, queue)),
            credits: Shared::new(credits)?,
            door: QpDoorbell::new(parts.uar, response.slot)?,
            state: AtomicU8::new(State::Reset as u8),
            wqe_header,
            recvs_ring,
            releases: AtomicU32::new(0),
            always: if parts.all_signaled { Flags::SIGNALED } else { Flags::empty() },
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
        };
        qp.send_cq.attach(qp.qpn, &qp.credits, Halves::SENDS)?;
        qp.recv_cq.attach(qp.qpn, &qp.credits, Halves::RECVS)?;
        Ok(qp)
    }

    /// Returns the header of its send WQEs, on which the [`Payload`] of requests depends.
    ///
    /// [`Payload`]: crate::request::Payload
    #[must_use]
    #[inline]
    pub fn wqe_header(&self) -> WqeHeader {
        self.wqe_header
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
        Ok(SendBatch::new(self, queue))
    }

    /// Stores a mark in a word of its doorbell, and rings. Returns `None` if there is no such word.
    pub fn mark(&self, word: u32, mark: u32) -> Option<()> {
        self.door.mark(word, mark)
    }

    /// Returns whether it can get a TCP connection that carries bytes.
    ///
    /// # Errors
    /// `EINVAL` for a queue pair of another type, `EISCONN` if it has or had one.
    pub fn awaits_stream(&self) -> Result<(), Errno> {
        match (self.recvs_ring, self.takes_sends()) {
            (false, _) => Err(Errno::INVAL),
            (true, true) => Err(Errno::ISCONN),
            (true, false) => Ok(()),
        }
    }

    /// Asks the adapter to complete the receive in progress of a TCP connection that carries bytes.
    ///
    /// # Errors
    /// `EINVAL` for a queue pair of another type, `ENOTCONN` before it has a connection.
    pub fn release(&self) -> Result<(), Errno> {
        if !self.recvs_ring {
            return Err(Errno::INVAL);
        }
        if !self.takes_sends() {
            return Err(Errno::NOTCONN);
        }
        let request = self.releases.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.door.mark(RELEASE_WORD, request).ok_or(Errno::IO)
    }

    /// Begins to post sends that are posted either together or not at all, and holds the queue's
    /// lock until then. Returns `None` without a send queue. In a state that accepts no sends, each
    /// one is refused.
    #[inline]
    pub fn stage(&self) -> Option<StagedSends<'_>> {
        let queue = self.send.as_ref()?.lock();
        Some(StagedSends::new(self, queue))
    }

    /// Gives these queues to another poster. From now on this library posts nothing to them; a
    /// request fails with [`PostError::HandedOver`]. When this is called again, it returns the
    /// same, unless the QP was reset meanwhile: then both indices are zero.
    ///
    /// # Errors
    /// `EINVAL` if there is no queue to hand over, or if the QP has a TCP connection that carries
    /// bytes.
    pub fn hand_over(&self, queues: Halves) -> Result<QpHandover, Errno> {
        let missing = queues.sends && self.send.is_none() || queues.recvs && self.recv.is_none();
        if missing || self.recvs_ring || queues == Halves::default() {
            return Err(Errno::INVAL);
        }
        let send = self.send.as_ref().filter(|_| queues.sends).map(|queue| {
            let mut queue = queue.lock();
            let (place, next) = (queue.place(), queue.producer());
            let ring = RingPlace::of(queue.hand_over(), place, self.door.offset(), next);
            RingPlace { freed: self.credits.send.load(Ordering::Acquire), ..ring }
        });
        let recv = self.recv.as_ref().filter(|_| queues.recvs).map(|queue| {
            let mut queue = queue.lock();
            let (word, next) = (self.door.offset() + RQ_PI, queue.producer());
            let ring = RingPlace::of(queue.hand_over(), Place::Guest, word, next);
            RingPlace { freed: self.credits.recv.load(Ordering::Acquire), ..ring }
        });
        let (qpn, header, bell) = (self.qpn, self.wqe_header, self.door.bell());
        Ok(QpHandover { qpn, header, bell, send, recv })
    }

    /// Returns whether sends may be posted.
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
        Ok(RecvBatch::new(self, queue))
    }

    /// Records that the adapter has changed the QP's state. Reset empties both queues and drops the
    /// completions that were not polled.
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

/// Returns the queues on `rings`; the send queue is in `device_send` if it lies in the adapter's
/// memory.
///
/// # Errors
/// `EIO` if there is less memory than the layout needs; `ENOMEM`.
fn queues(
    rings: QpRings,
    cap: &QpCap,
    device_send: Option<Mapping>,
) -> Result<(Option<SendQueue>, Option<RecvQueue>), Errno> {
    let QpLayout { send, recv, send_in_device, extras } = rings.layout;
    let (place, memory) = match send_in_device {
        true => (Place::Device, device_send),
        false => (Place::Guest, rings.send),
    };
    let ring = |memory: Option<Mapping>, shape| Ring::new(memory.ok_or(Errno::IO)?, shape);
    let send = match send {
        Some(shape) => {
            let max_command_sge = extras.max_command_sge;
            let max_inline = match max_command_sge {
                0 => extras.header.inline_capacity(shape.stride()),
                // The rest is for the data of a command.
                _ => cap.max_inline,
            };
            let limits = SendLimits {
                max_sge: cap.max_send_sge,
                max_inline,
                max_command_sge,
                max_headers: extras.max_headers,
            };
            Some(SendQueue::new(ring(memory, shape)?, place, limits)?)
        }
        None => None,
    };
    let recv = match recv {
        Some(shape) => Some(RecvQueue::new(ring(rings.recv, shape)?, cap.max_recv_sge)),
        None => None,
    };
    Ok((send, recv))
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The queue pair. What is posted to it goes through batches, which hold a queue's lock.

mod batch;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use vrnic_abi as abi;

use abi::qp::State;
use abi::sq::Flags;
use abi::uverbs::QpResp;

pub use self::batch::{RecvBatch, SendBatch, StagedSends};
use crate::cq::{CompletionQueue, Credits, Halves};
use crate::doorbell::{QpDoorbell, Uar};
use crate::heap::Shared;
use crate::layout::{QpCap, QpLayout, QpRings, WqeHeader};
use crate::lock::{Sharing, SpinLock};
use crate::mapping::Mapping;
use crate::recv::RecvQueue;
use crate::request::{PostError, SendLimits};
use crate::ring::Ring;
use crate::send::{Place, SendQueue};
use crate::srq::SharedRecvQueue;

/// What a queue pair is made of, beside its rings.
#[derive(Debug)]
pub struct QpParts {
    /// Its doorbell page.
    pub uar: Shared<Uar>,
    /// The mapped send queue, where that lies in the adapter's memory.
    pub device_send: Option<Mapping>,
    /// Where its sends complete.
    pub send_cq: Shared<CompletionQueue>,
    /// Where its receives complete.
    pub recv_cq: Shared<CompletionQueue>,
    /// What receives are taken from, in place of a queue of its own.
    pub srq: Option<Shared<SharedRecvQueue>>,
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
    credits: Shared<Credits>,
    door: QpDoorbell,
    /// A [`State`], as the user set it last.
    state: AtomicU8,
    /// What every send has, asked for or not.
    always: Flags,
    wqe_header: WqeHeader,
    send_cq: Shared<CompletionQueue>,
    recv_cq: Shared<CompletionQueue>,
}

impl QueuePair {
    /// The queue pair on `rings`, as the kernel created it for `cap`. Its completions can be
    /// polled from now on.
    ///
    /// # Errors
    /// `EIO` when the kernel's answer makes no sense; `ENOMEM`.
    pub fn new(
        rings: QpRings,
        cap: &QpCap,
        response: &QpResp,
        parts: QpParts,
    ) -> Result<Self, Errno> {
        let wqe_header = rings.layout.extras.header;
        let (send, recv) = queues(rings, cap, parts.device_send)?;
        let credits = Credits {
            sends: send.as_ref().map(SendQueue::posted),
            recvs: recv.as_ref().map(RecvQueue::posted),
            shared: parts.srq.map(|srq| srq.credits().clone()),
            ..Credits::default()
        };
        let lock = parts.sharing;
        let qp = Self {
            qpn: response.qpn.get(),
            send: send.map(|queue| SpinLock::shared_by(lock, queue)),
            recv: recv.map(|queue| SpinLock::shared_by(lock, queue)),
            credits: Shared::new(credits)?,
            door: QpDoorbell::new(parts.uar, response.slot.get())?,
            state: AtomicU8::new(State::Reset as u8),
            wqe_header,
            always: if parts.all_signaled { Flags::SIGNALED } else { Flags::empty() },
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
        };
        qp.send_cq.attach(qp.qpn, &qp.credits, Halves::SENDS)?;
        qp.recv_cq.attach(qp.qpn, &qp.credits, Halves::RECVS)?;
        Ok(qp)
    }

    /// The header of its send WQEs: with it sends are [`Payload::Datagram`], [`Payload::Xrc`], or others.
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

    /// Begins to post sends that are posted together or not at all; the queue's lock is held until then. `None` without
    /// a send queue; in a state that takes no sends each is refused.
    #[inline]
    pub fn stage(&self) -> Option<StagedSends<'_>> {
        let queue = self.send.as_ref()?.lock();
        Some(StagedSends::new(self, queue))
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
        Ok(RecvBatch::new(self, queue))
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

/// The queues on `rings`, the one for sends in `device_send` if it lies in the adapter's memory.
///
/// # Errors
/// `EIO` when there is less memory than planned; `ENOMEM`.
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
                // The rest is for the command's data.
                _ => cap.max_inline,
            };
            let limits = SendLimits { max_sge: cap.max_send_sge, max_inline, max_command_sge };
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

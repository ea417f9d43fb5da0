//! Shared receive queues: receives for many QPs, which may belong to different workers.
//!
//! A QP that takes a receive copies it out of the ring under the SRQ's lock, which only QPs of this
//! SRQ take. So its entry is free from then on, whatever the order in which the QPs complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use vrnic_abi::admin::{NONE, RingRecord, SrqRecord, SrqStatus};
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::Kind;
use vrnic_abi::{ContextId, Pdn, Qpn, Srqn, Xrcdn};

use crate::domain::{Domain, User};
use crate::host::{DoorbellBar, HeldMemory, Host};
use crate::memory::pages::Ring;
use crate::objects::context::QueueContext;
use crate::objects::cq::Cq;
use crate::requests::wqe::RecvWqe;
use crate::stats::Counter;

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    /// The number of the SRQ.
    pub srqn: Srqn,
    /// The PD of its receives.
    pub pdn: Pdn,
    /// The function to which it belongs.
    pub domain: Domain,
    /// The context that the SRQ belongs to.
    pub context: ContextId,
    /// The address of its doorbell.
    pub doorbell: Doorbell,
    /// The number of QPs that take receives from it.
    pub users: AtomicU32,
    /// The additional state of an SRQ for XRC targets.
    pub xrc: Option<Xrc>,
    inner: Mutex<Inner>,
    /// True once it has been destroyed; set under the lock.
    dead: AtomicBool,
}

/// Additional state of an SRQ for XRC targets.
#[derive(Debug)]
pub struct Xrc {
    /// The XRC domain.
    pub xrcdn: Xrcdn,
    /// The CQ of its receives.
    pub cq: Arc<Cq>,
}

#[derive(Debug)]
struct Inner {
    ring: Ring,
    /// Index of the next receive.
    ci: u32,
    /// An event is raised once when fewer receives than this are posted; never if it is zero.
    limit: u32,
    /// True if its index or memory is faulty. No more receives are taken then.
    failed: bool,
}

/// The queue is or was faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A ring has no room for the receives that are posted, or fewer entries than the armed limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl Srq {
    /// Creates an empty queue in `ring`, with this doorbell, for receives with the keys of a user.
    #[must_use]
    pub fn new(
        srqn: Srqn,
        user: User,
        context: ContextId,
        doorbell: Doorbell,
        ring: Ring,
        xrc: Option<Xrc>,
    ) -> Self {
        Self {
            srqn,
            pdn: user.pdn,
            domain: user.domain,
            context,
            doorbell,
            users: AtomicU32::new(0),
            xrc,
            inner: Mutex::new(Inner { ring, ci: 0, limit: 0, failed: false }),
            dead: AtomicBool::new(false),
        }
    }

    /// Returns the queue as a user of keys.
    #[must_use]
    pub fn user(&self) -> User {
        User { pdn: self.pdn, qpn: Qpn::default(), domain: self.domain }
    }

    /// Takes the next receive, and copies its bytes to `raw`. Returns `None` if none is posted.
    ///
    /// # Errors
    /// Returns an error if the producer index or the memory is or was faulty. No more receives are
    /// taken then.
    pub fn take<'a, H: Host + 'a>(
        &self,
        turn: &impl QueueContext<'a, H>,
        raw: &mut [u8],
    ) -> Result<Option<RecvWqe>, Failed> {
        let mut inner = self.inner.lock();
        if inner.failed {
            return Err(Failed);
        }
        let index = inner.ci;
        let posted = self.posted(turn.host(), index);
        if posted == 0 {
            return Ok(None);
        }
        let bytes = raw.get_mut(..inner.ring.stride()).ok_or(Failed)?;
        let read = inner.ring.addr(index).filter(|_| posted <= inner.ring.size());
        if read.is_none_or(|addr| turn.memory().read(addr, bytes).is_err()) {
            inner.failed = true;
            drop(inner);
            self.report_failure(turn, posted);
            return Err(Failed);
        }
        inner.ci = index.wrapping_add(1);
        let reached = posted - 1 < inner.limit;
        if reached {
            inner.limit = 0;
        }
        drop(inner);
        if reached {
            turn.report(Kind::SrqLimit, self.srqn);
        }
        turn.step(Counter::RecvWrs);
        Ok(Some(RecvWqe::parse(bytes, index, self.user())))
    }

    /// Returns a snapshot for inspection.
    #[must_use]
    pub fn record(&self, host: &impl DoorbellBar) -> SrqRecord {
        let inner = self.inner.lock();
        SrqRecord {
            srqn: self.srqn,
            pdn: self.pdn,
            context: self.context,
            uar: self.doorbell.uar(),
            slot: self.doorbell.slot(),
            users: self.users.load(Ordering::Relaxed).into(),
            xrcdn: self.xrc.as_ref().map_or(NONE.into(), |xrc| xrc.xrcdn),
            ring: RingRecord {
                size: inner.ring.size().into(),
                posted: host.bar_load32(self.doorbell.srq_pi()).into(),
                next: inner.ci.into(),
            },
            limit: inner.limit.into(),
            failed: u32::from(inner.failed).into(),
        }
    }

    /// Arms the limit event. Returns whether it is due already, in which case the caller reports
    /// it.
    ///
    /// # Errors
    /// Returns an error if the limit exceeds the number of entries.
    pub fn arm(&self, host: &impl DoorbellBar, limit: u32) -> Result<bool, Failed> {
        let mut inner = self.inner.lock();
        if limit > inner.ring.size() {
            return Err(Failed);
        }
        let reached = self.posted(host, inner.ci) < limit;
        inner.limit = if reached { 0 } else { limit };
        Ok(reached)
    }

    /// Returns log2 of the number of bytes of an entry.
    #[must_use]
    pub fn log_stride(&self) -> u8 {
        self.inner.lock().ring.log_stride()
    }

    /// Continues in another ring, which contains the posted receives at their indices. A queue that
    /// has failed stays so.
    ///
    /// # Errors
    /// [`NoRoom`]; the queue is unchanged then.
    pub fn resize(&self, host: &impl DoorbellBar, ring: Ring) -> Result<(), NoRoom> {
        let mut inner = self.inner.lock();
        let posted = self.posted(host, inner.ci);
        if posted.max(inner.limit) > ring.size() {
            return Err(NoRoom);
        }
        inner.ring = ring;
        Ok(())
    }

    /// Returns the result of QUERY_SRQ.
    #[must_use]
    pub fn status(&self, host: &impl DoorbellBar) -> SrqStatus {
        let inner = self.inner.lock();
        let posted = self.posted(host, inner.ci).min(inner.ring.size());
        SrqStatus {
            limit: inner.limit.into(),
            posted: posted.into(),
            failed: u32::from(inner.failed).into(),
        }
    }

    /// Publishes to the guest which entries are free. This is necessary after the end of a QP,
    /// because some of its receives may have no completion that shows it.
    pub fn publish(&self, host: &impl DoorbellBar) {
        let inner = self.inner.lock();
        // A destroyed queue has no slot.
        if !self.is_dead() {
            host.bar_store32(self.doorbell.srq_freed(), inner.ci);
        }
    }

    /// Returns whether it has been destroyed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Runs `write`, which completes a receive of this queue, unless the queue has been destroyed.
    /// In that case its CQ may have been destroyed, too.
    pub fn while_alive<R>(&self, write: impl FnOnce() -> R) -> Option<R> {
        let _inner = self.inner.lock();
        (!self.is_dead()).then(write)
    }

    /// Ends the queue. On return nothing is taken from it or completed for it any more.
    pub fn end(&self) {
        let mut inner = self.inner.lock();
        self.dead.store(true, Ordering::Release);
        inner.failed = true;
    }

    fn posted(&self, host: &impl DoorbellBar, ci: u32) -> u32 {
        host.bar_load32(self.doorbell.srq_pi()).wrapping_sub(ci)
    }

    #[cold]
    fn report_failure<'a, H: Host + 'a>(&self, turn: &impl QueueContext<'a, H>, posted: u32) {
        turn.warn(|name| {
            tracing::warn!(
                function = name,
                srqn = %self.srqn,
                posted,
                "the shared receive queue has failed: its producer index is beyond the ring, or its memory is gone"
            );
        });
        turn.report(Kind::SrqError, self.srqn);
    }
}

//! The context of a QP's turn.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::cq::{Opcode, Status};
use vrnic_abi::eq::Kind;
use vrnic_faults::Site;
use vrnic_packet::Nanos;

use crate::domain::Domain;
use crate::host::{HeldMemory, Host};
use crate::memory::tpt::{Denied, Tpt, User};
use crate::objects::completion::Completion;
use crate::objects::context::QueueContext;
use crate::objects::core::Core;
use crate::objects::counter_sets::CounterSet;
use crate::objects::cq::{Cq, Due, Overflow, Resumed};
use crate::objects::faults::injection::Here;
use crate::objects::qp::Qp;
use crate::slice::{Slice, cost};
use crate::stats::{Counter, InLane};

/// Number of moved bytes after which the clock is read again.
const TIME_KEEPS: u64 = 16 << 10;

/// The work that a QP may do in its turn.
#[derive(Debug)]
pub struct Allowance<'a, H: Host> {
    /// Maximum number of bytes that it moves.
    pub budget: u64,
    /// The remaining time of the worker's poll.
    pub slice: &'a Slice<'a, H>,
}

/// An adapter with its guest's memory held during a turn. The memory and the time are accessed once
/// for the whole turn.
pub struct TurnContext<'a, H: Host> {
    /// The core of the adapter.
    pub core: &'a Arc<Core<H>>,
    /// The memory of the adapter's guest.
    pub memory: H::Held<'a>,
    /// The table of the adapter's keys.
    pub tpt: &'a Tpt,
    /// The time of the poll.
    pub slice: &'a Slice<'a, H>,
    /// The function of this memory.
    domain: Domain,
    time: Cell<Option<Nanos>>,
    /// Number of bytes moved since `time` was read.
    moved: Cell<u64>,
    counters: InLane<'a>,
    /// The set that also counts the work of the QP, if it has one.
    set: Option<Arc<CounterSet>>,
    /// True if the work of the turn takes the slow path, because something is in use that rarely
    /// is: rules for faults, a trace, ceilings, optional counters, or a CQ that holds entries back.
    pub(crate) slow_path: bool,
    /// True if only the worker's own copy of the counters counts.
    counts_plainly: bool,
}

impl<'a, H: Host> TurnContext<'a, H> {
    /// Holds the guest's memory for `qp`, a QP of this adapter.
    #[inline]
    pub fn new(core: &'a Arc<Core<H>>, qp: &'a Qp<H>, slice: &'a Slice<'a, H>) -> Self {
        let mut this = Self::of_adapter(core, &qp.tpt, slice);
        this.slow_path |= qp.holding;
        if qp.is_counted.load(Ordering::Relaxed) {
            this.set = core.counted.get(qp.qpn);
            this.counts_plainly &= this.set.is_none();
        }
        this
    }

    /// Holds the guest's memory as [`Self::new`] does, for work of the half `asker` of the QP that
    /// is done again later if memory is absent.
    #[inline]
    pub fn patient(
        core: &'a Arc<Core<H>>,
        qp: &'a Qp<H>,
        asker: u64,
        slice: &'a Slice<'a, H>,
    ) -> Self {
        let this = Self::new(core, qp, slice);
        this.memory.attend(asker);
        this
    }

    /// Holds the guest's memory for an adapter with these regions.
    #[inline]
    pub fn of_adapter(core: &'a Arc<Core<H>>, tpt: &'a Tpt, slice: &'a Slice<'a, H>) -> Self {
        let (lane, domain) = (slice.lane(), core.domain());
        let (memory, counters) = (core.host().hold(lane), core.stats().in_lane(lane));
        let (time, moved, set) = (Cell::new(None), Cell::new(0), None);
        let (slow_path, counts_plainly) = (core.is_unusual(), counters.is_own());
        Self {
            core,
            memory,
            tpt,
            slice,
            domain,
            time,
            moved,
            counters,
            set,
            slow_path,
            counts_plainly,
        }
    }

    /// Checks that the memory belongs to the function of `user`.
    ///
    /// # Errors
    /// [`Denied::Foreign`] if it is not.
    #[inline(always)]
    pub fn is_of(&self, user: User) -> Result<(), Denied> {
        if self.domain == user.domain { Ok(()) } else { Err(Denied::Foreign) }
    }

    /// Returns the host.
    #[inline]
    pub fn host(&self) -> &'a H {
        self.core.host()
    }

    /// Adds one to a counter.
    #[inline]
    pub fn step(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, value: u64) {
        if self.counts_plainly {
            self.counters.add_own(counter, value);
        } else {
            self.add_to_all(counter, value);
        }
    }

    /// Adds to a counter of the set, if there is one, and of the adapter.
    #[cold]
    fn add_to_all(&self, counter: Counter, value: u64) {
        if let Some(set) = &self.set {
            set.counters.add(counter, value);
        }
        self.counters.add(counter, value);
    }

    /// Returns whether a rule for faults or a trace looks at this place. Those that are set during
    /// the turn may do so only from the next turn on.
    #[inline]
    pub(crate) fn looks_at(&self, site: Site) -> bool {
        self.slow_path && self.core.injection.looks_at(site)
    }

    /// Returns the function and the present time, for rules for faults.
    pub(crate) fn faults_here(&self) -> Here<'_> {
        self.core.here()
    }

    /// Writes a completion and reports an event if one is due.
    ///
    /// # Errors
    /// Returns an error if the CQ has overflowed. Its QPs cannot continue.
    pub fn complete(&self, cq: &Arc<Cq>, completion: &Completion) -> Result<(), Overflow> {
        if self.complete_quietly(cq, completion)? {
            self.fire(cq);
        }
        Ok(())
    }

    /// Reports an event of a CQ.
    pub fn fire(&self, cq: &Cq) {
        self.slice.charge(cost::EVENT);
        cq.fire(&self.core.caller(self.slice.lane()));
    }

    /// Writes a completion. Returns true if an event is due, which [`Self::fire`] reports. The
    /// first call that finds the CQ full raises the CQ's error event and ends all QPs that use it.
    ///
    /// # Errors
    /// Returns an error if the CQ has overflowed. Its QPs cannot continue.
    #[inline]
    pub fn complete_quietly(
        &self,
        cq: &Arc<Cq>,
        completion: &Completion,
    ) -> Result<bool, Overflow> {
        let pushed = if self.looks_at(Site::Entry)
            && self.core.injection.fills(self.faults_here(), cq.cqn.get(), completion)
        {
            Err(cq.overflow(self))
        } else {
            cq.push(self, completion)
        };
        match pushed {
            Ok(due) => {
                if completion.status != Status::Success {
                    self.count_failure(completion);
                }
                if let Due::Later { due, listed } = due {
                    self.core.moderation.add(cq, due, listed);
                }
                Ok(due == Due::Now)
            }
            Err(overflow) => {
                if overflow == Overflow::Now {
                    self.core.cq_failed(cq);
                }
                Err(overflow)
            }
        }
    }

    /// Writes some of the entries that a holding CQ holds back, and reports their event if one is
    /// due. Returns what is left to do.
    pub fn resume(&self, cq: &Arc<Cq>) -> Resumed {
        let Ok(resumed) = cq.resume(self) else {
            self.core.cq_failed(cq);
            return Resumed::default();
        };
        for due in &resumed.due {
            match *due {
                Due::No => {}
                Due::Now => self.fire(cq),
                Due::Later { due, listed } => self.core.moderation.add(cq, due, listed),
            }
        }
        resumed
    }

    /// Counts a failed completion by its status.
    #[cold]
    fn count_failure(&self, completion: &Completion) {
        let receive = matches!(completion.opcode, Opcode::Recv | Opcode::RecvWriteImm);
        self.step(match (receive, completion.status) {
            (true, Status::WrFlushErr) => Counter::RespCqeFlushError,
            (true, _) => Counter::RespCqeError,
            (false, Status::WrFlushErr) => Counter::ReqCqeFlushError,
            (false, _) => Counter::ReqCqeError,
        });
        if receive {
            return;
        }
        match completion.status {
            Status::LocProtErr => self.step(Counter::LocalProtectionErr),
            Status::LocQpOpErr | Status::LocLenErr => self.step(Counter::LocalQpOpErr),
            Status::MwBindErr => self.step(Counter::MemMgmtOpErr),
            Status::RemAccessErr => self.step(Counter::ReqRemoteAccessErrors),
            Status::RemInvReqErr => self.step(Counter::ReqRemoteInvalidRequest),
            Status::RetryExcErr => self.step(Counter::RetryExceededErr),
            Status::RnrRetryExcErr => self.step(Counter::RetryRnrExceededErr),
            _ => {}
        }
    }

    /// Records that bytes were moved, which takes time.
    #[inline]
    pub fn moved(&self, bytes: u64) {
        let moved = self.moved.get().saturating_add(bytes);
        self.moved.set(moved);
        if moved >= TIME_KEEPS {
            self.time.set(None);
        }
    }

    /// Returns the time. The clock is read at the first call and after a long copy only, because
    /// reading it costs as much as a short message.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.time.get().unwrap_or_else(|| {
            let now = self.host().now();
            self.time.set(Some(now));
            self.moved.set(0);
            now
        })
    }
}

impl<'a, H: Host> QueueContext<'a, H> for TurnContext<'a, H> {
    #[inline]
    fn host(&self) -> &'a H {
        self.core.host()
    }

    #[inline]
    fn memory(&self) -> &H::Held<'a> {
        &self.memory
    }

    #[inline]
    fn now(&self) -> Nanos {
        self.now()
    }

    #[inline]
    fn step(&self, counter: Counter) {
        self.step(counter);
    }

    #[cold]
    fn warn(&self, warn: impl FnOnce(&str)) {
        self.core.warn(warn);
    }

    #[cold]
    fn report(&self, kind: Kind, id: impl Into<u32>) {
        self.core.report(kind, id);
    }
}

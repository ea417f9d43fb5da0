//! Work requests that are not completed, in the order of the send queue.
//!
//! A work request waits, is appended to the stream, and is complete when the peer has acknowledged
//! all of it, or has answered it in the case of a READ or atomic. Completions have the order of the
//! queue. When the stream ends, a work request is flushed only after TCP no longer uses its memory.
//!
//! Messages of RFC 7306 are not negotiated, and immediate data has no answer. So a READ without
//! payload follows immediate data until the peer has answered such a READ or an atomic: a peer that
//! does not know immediate data ends the stream before it answers.

use std::collections::VecDeque;

use super::answers::Answers;
use super::completion::{Mark, SendState, Tracker};
use super::early_segments::Octets;
use super::memory::Memory;
use super::terminate;
use super::work::{Completion, MESSAGE_MAX, Outcome, Rejected, Work, WorkRequest};
use crate::tcp::{StreamPos, Undone};
use crate::wire::ddp::{Msn, Tagged};
use crate::wire::terminate::Cause;

/// Configuration of a requester.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// Maximum number of work requests that are not completed.
    pub capacity: usize,
    /// True if messages of RFC 7306 may be sent.
    pub extensions: bool,
}

/// The progress of a work request.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The work request is not in the stream.
    Waiting,
    /// The work request is in the stream.
    Sent {
        mark: Mark,
        end: StreamPos,
        /// True if its memory is not read again, so that it is complete as soon as it has been
        /// sent.
        private: bool,
    },
}

impl Stage {
    /// Returns whether nothing must be sent again: all octets have been acknowledged, or have been
    /// sent from a private copy.
    fn is_complete(self, tracker: &Tracker, send_state: SendState, sent: StreamPos) -> bool {
        match self {
            Self::Waiting => false,
            Self::Sent { mark, end, private } => {
                tracker.is_complete(mark, send_state) || private && end <= sent
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Item {
    request: WorkRequest,
    stage: Stage,
    /// True if its answer has not arrived.
    unanswered: bool,
    /// True if it was complete when the stream ended.
    complete: bool,
}

/// The work request that caused a failure.
#[derive(Clone, Copy, Debug)]
enum Blame {
    None,
    Oldest(Outcome),
    Item(u64, Outcome),
}

/// The reason for which a response ends the stream: the cause for the Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mistake(pub Cause);

/// Work requests that are not completed.
#[derive(Debug)]
pub struct Requester {
    config: RequesterConfig,
    items: VecDeque<Item>,
    /// The number of the first item. Numbers are consecutive.
    first: u64,
    /// Number of items at the front that are in the stream.
    started: usize,
    answers: Answers,
    /// Maximum number of outstanding READs and atomics.
    ord: u16,
    /// True if the peer has executed a message of RFC 7306.
    proven: bool,
    failed: Option<Blame>,
    /// True if the stream has ended, and `complete` of all items has been set.
    settled: bool,
}

impl Requester {
    /// Creates a requester.
    #[must_use]
    pub const fn new(config: RequesterConfig, ord: u16) -> Self {
        Self {
            items: VecDeque::new(),
            first: 0,
            started: 0,
            answers: Answers::new(),
            ord,
            proven: false,
            failed: None,
            settled: false,
            config,
        }
    }

    /// Gives memory back that is not in use.
    pub fn shrink(&mut self) {
        if self.items.is_empty() {
            self.items = VecDeque::new();
        }
        self.answers.shrink();
    }

    /// Sets the maximum number of outstanding READs and atomics. Returns `false` if it is zero and
    /// one is posted; all work has then failed.
    #[must_use]
    pub fn set_ord(&mut self, ord: u16) -> bool {
        self.ord = ord;
        let asks = self.items.iter().position(|item| item.request.work.has_answer());
        let Some(at) = asks.filter(|_| ord == 0) else { return true };
        self.fail_with(Blame::Item(self.first + at as u64, Outcome::RemoteOperational));
        false
    }

    /// Returns whether the maximum number of outstanding READs and atomics may become this one:
    /// none is outstanding, nor is one posted that could never be sent.
    #[must_use]
    pub fn may_change_ord(&self, ord: u16) -> bool {
        let asks = || self.items.iter().any(|item| item.request.work.has_answer());
        self.answers.is_empty() && (ord > 0 || !asks())
    }

    /// Appends a work request.
    ///
    /// # Errors
    /// The reason for which it is not accepted.
    pub fn push(&mut self, request: WorkRequest) -> Result<(), Rejected> {
        let work = request.work;
        if self.failed.is_some() {
            return Err(Rejected::Closed);
        }
        if work.is_extension() && !self.config.extensions || work.has_answer() && self.ord == 0 {
            return Err(Rejected::Operation);
        }
        let atomic = matches!(work, Work::Atomic(..));
        if request.length > MESSAGE_MAX || (atomic && request.length != 8) {
            return Err(Rejected::Length);
        }
        if self.items.len() >= self.config.capacity {
            return Err(Rejected::Full);
        }
        let unanswered = work.has_answer();
        self.items.push_back(Item { request, stage: Stage::Waiting, unanswered, complete: false });
        Ok(())
    }

    /// Returns the next work request that may be appended to the stream.
    #[must_use]
    pub fn next(&self) -> Option<&WorkRequest> {
        let request = &self.items.get(self.started)?.request;
        let asks = request.work.has_answer() || self.asks_for_proof(&request.work);
        let full = asks && self.answers.len() >= usize::from(self.ord);
        let fenced = request.fence && !self.answers.is_empty();
        (!full && !fenced && self.failed.is_none()).then_some(request)
    }

    /// Returns whether a READ without payload follows the messages of this operation, because the
    /// peer may not know them.
    #[must_use]
    pub const fn asks_for_proof(&self, work: &Work) -> bool {
        matches!(work, Work::WriteImmediate(..)) && !self.proven && self.ord > 0
    }

    /// Records that the next work request has been appended.
    pub fn started(&mut self, mark: Mark, end: StreamPos, private: bool) {
        let number = self.first + self.started as u64;
        let Some(item) = self.items.get(self.started) else { return };
        let proof = self.asks_for_proof(&item.request.work);
        let Some(item) = self.items.get_mut(self.started) else { return };
        item.stage = Stage::Sent { mark, end, private };
        item.unanswered |= proof;
        self.started += 1;
        match item.request.work {
            _ if proof => self.answers.ask_read(Some(number), Tagged::default(), 0),
            Work::Read { sink, .. } => {
                self.answers.ask_read(Some(number), sink, item.request.length);
            }
            Work::Atomic(..) => self.answers.ask_atomic(number),
            _ => {}
        }
    }

    /// Returns the number for the request of the next atomic.
    #[must_use]
    pub const fn atomic_id(&self) -> u32 {
        // CAST: the response returns the low bits of the number.
        (self.first + self.started as u64) as u32
    }

    /// Records a READ without payload that belongs to no work request.
    pub fn first_read(&mut self, sink: Tagged) {
        self.answers.ask_read(None, sink, 0);
    }

    /// Processes octets of the response of a READ, which must be the next ones. Returns false if
    /// nothing has changed, and they must be passed again.
    ///
    /// # Errors
    /// The cause of the end of the stream.
    pub fn read_response(
        &mut self,
        at: Tagged,
        last: bool,
        octets: Octets<'_>,
        memory: &mut impl Memory,
    ) -> Result<bool, Mistake> {
        let answer = self.answers.read(at, last, octets.len());
        let (item, offset) = answer.map_err(|cause| self.bad_response(cause))?;
        if let Some(here) = octets.here()
            && !self.store(item, offset, here, memory)?
        {
            self.answers.take_back(octets.len());
            return Ok(false);
        }
        if last {
            self.answered();
        }
        Ok(true)
    }

    /// Stores octets of the response of a READ that have arrived out of order, if it is certain to
    /// which READ they belong. Returns whether it did.
    pub fn response_ahead(
        &self,
        at: Tagged,
        last: bool,
        octets: &[u8],
        memory: &mut impl Memory,
    ) -> bool {
        let found = self.answers.read_ahead(at, last, octets);
        let Some((number, offset)) = found else { return false };
        let item = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(item) = item.and_then(|at| self.items.get(at)) else { return false };
        let free = !octets.is_empty() && self.failed.is_none();
        free && memory.store_ahead(item.request.id, offset, octets)
    }

    /// Processes the response of the atomic with this number. `old` is the old value of its word.
    ///
    /// # Errors
    /// The cause of the end of the stream.
    pub fn atomic_response(
        &mut self,
        msn: Msn,
        id: u32,
        old: u64,
        memory: &mut impl Memory,
    ) -> Result<(), Mistake> {
        let item = self.answers.atomic(msn, id).map_err(|cause| self.bad_response(cause))?;
        // The memory of a result is never written later.
        self.store(item, 0, &old.to_ne_bytes(), memory)?;
        self.answered();
        Ok(())
    }

    /// Stores octets. Returns false if they must be passed again.
    fn store(
        &mut self,
        item: Option<u64>,
        at: u32,
        octets: &[u8],
        memory: &mut impl Memory,
    ) -> Result<bool, Mistake> {
        let Some(number) = item.filter(|_| !octets.is_empty()) else { return Ok(true) };
        let id = self.item_mut(number).map(|item| item.request.id);
        match id.ok_or(Undone::Gone).and_then(|id| memory.store(id, at, octets)) {
            Ok(()) => return Ok(true),
            Err(Undone::Later) => return Ok(false),
            Err(Undone::Gone) => {}
        }
        self.fail_with(Blame::Item(number, Outcome::Local));
        Err(Mistake(Cause::DdpCatastrophic))
    }

    /// Handles the complete answer of the oldest READ or atomic.
    fn answered(&mut self) {
        let answered = self.answers.answered();
        let Some(item) = answered.and_then(|number| self.item_mut(number)) else { return };
        item.unanswered = false;
        let extension = item.request.work.is_extension();
        self.proven |= extension;
    }

    fn item_mut(&mut self, number: u64) -> Option<&mut Item> {
        let at = number.checked_sub(self.first)?;
        self.items.get_mut(usize::try_from(at).ok()?)
    }

    fn bad_response(&mut self, cause: Cause) -> Mistake {
        if let Some(number) = self.answers.oldest() {
            self.fail_with(Blame::Item(number, Outcome::BadResponse));
        }
        Mistake(cause)
    }

    /// Ends all work. Work requests that are not complete are flushed.
    pub fn fail(&mut self) {
        self.fail_with(Blame::None);
    }

    /// Ends all work because of the peer's Terminate. The outcome goes to the oldest work request
    /// that the cause can concern and that the peer has not acknowledged, or else to the oldest one
    /// of all. The others are flushed.
    pub fn fail_remote(
        &mut self,
        cause: Cause,
        tracker: &Tracker,
        send_state: SendState,
        sent: StreamPos,
    ) {
        // A peer that does not know an opcode may have acknowledged its octets.
        let unknown = cause == Cause::Opcode;
        let concerned = |item: &Item| {
            let acknowledged = item.stage.is_complete(tracker, send_state, sent);
            let open = !acknowledged || unknown && item.unanswered;
            open && terminate::concerns(cause, &item.request.work)
        };
        let (at, outcome) = (self.items.iter().position(concerned), terminate::outcome(cause));
        let item = |at| Blame::Item(self.first + at as u64, outcome);
        self.fail_with(at.map_or(Blame::Oldest(outcome), item));
    }

    /// Returns whether an operation of RFC 7306 that is not completed is in the stream.
    #[must_use]
    pub fn has_sent_extension(&self) -> bool {
        self.items.iter().take(self.started).any(|item| item.request.work.is_extension())
    }

    /// Ends all work because the memory of this work request could not be read.
    pub fn fail_local(&mut self, id: u64) {
        let place = self.items.iter().position(|item| item.request.id == id);
        let blame = place.map(|at| Blame::Item(self.first + at as u64, Outcome::Local));
        self.fail_with(blame.unwrap_or(Blame::None));
    }

    fn fail_with(&mut self, blame: Blame) {
        // Only the first error is reported.
        self.failed.get_or_insert(blame);
    }

    /// Records which work requests are complete when the stream ends. What the peer acknowledges
    /// later has been dropped.
    pub fn settle(&mut self, tracker: &Tracker, send_state: SendState, sent: StreamPos) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        // Completions have the order of the queue, so none can follow an incomplete work request.
        let mut all = true;
        for item in &mut self.items {
            all &= item.stage.is_complete(tracker, send_state, sent) && !item.unanswered;
            item.complete = all;
        }
    }

    /// Limits the stream to this position after it has ended. Work requests beyond it do not need
    /// the rest of their memory.
    pub fn truncate(&mut self, cut: Mark, at: StreamPos) {
        for item in &mut self.items {
            if let Stage::Sent { mark, end, .. } = &mut item.stage
                && *end > at
            {
                (*mark, *end) = (cut, at);
            }
        }
    }

    /// Returns the next completion, in the order of the queue. `sent` is the first position that
    /// was never sent. `gone` is true if TCP reads no memory any more.
    pub fn next_completion(
        &mut self,
        tracker: &Tracker,
        send_state: SendState,
        sent: StreamPos,
        gone: bool,
    ) -> Option<Completion> {
        let item = *self.items.front()?;
        let private = !matches!(item.stage, Stage::Sent { private: false, .. });
        let free = item.stage.is_complete(tracker, send_state, sent);
        let complete = if self.settled { item.complete } else { free && !item.unanswered };
        let outcome = match self.failed {
            _ if complete => Outcome::Success,
            Some(blame) if free || private || gone => self.judge(blame),
            _ => return None,
        };
        self.items.pop_front();
        self.first += 1;
        self.started = self.started.saturating_sub(1);
        Some(Completion { id: item.request.id, outcome, signaled: item.request.signaled })
    }

    /// Returns the outcome of the oldest work request after a failure.
    fn judge(&mut self, blame: Blame) -> Outcome {
        match blame {
            Blame::Oldest(outcome) => {
                self.failed = Some(Blame::None);
                outcome
            }
            Blame::Item(number, outcome) if number == self.first => outcome,
            Blame::Item(..) | Blame::None => Outcome::Flushed,
        }
    }

    /// Returns whether all work requests have ended. Their completions may not have been taken yet.
    #[must_use]
    pub fn is_quiet(&self, tracker: &Tracker, send_state: SendState, sent: StreamPos) -> bool {
        let ended =
            |item: &Item| item.stage.is_complete(tracker, send_state, sent) && !item.unanswered;
        self.items.iter().all(ended) && (self.answers.is_empty() || self.failed.is_some())
    }

    /// Returns whether all work requests have been completed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // After the end, no answers are awaited.
        self.items.is_empty() && (self.answers.is_empty() || self.failed.is_some())
    }

    /// Returns the number of work requests that are not completed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }
}

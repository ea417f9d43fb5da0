//! Memory of the guest that is not mapped into this process, such as BARs of other devices, and
//! that the VMM reads and writes for the adapter.
//!
//! A worker never waits for the VMM. An access to such memory fails at first, and starts a
//! [`Transfer`]. A thread of its own (`host/external_thread.rs`) executes one transfer after the
//! other. The access is tried again until its transfer has ended: a read then gets the bytes,
//! and a write succeeds because the bytes have arrived. When the whole operation has succeeded, its
//! transfers are removed ([`ExternalMemory::settle`]), so bytes are read again for each operation.
//!
//! For messages in packets, which are much shorter than a transfer, bytes are read before they are
//! needed ([`ExternalMemory::announce`]), and bytes to write are handed over: the writer continues,
//! and later asks whether all of them have arrived ([`ExternalMemory::hand_over`]).
//!
//! Each transfer belongs to an *asker*: one half of a QP. No other one gets its bytes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `counts` | counts of transfers |
//! | `job` | a transfer that the thread executes |
//! | `wait` | waits for the end of transfers |

mod counts;
mod job;
mod wait;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use vrnic_adapter::host::{Awaited, HandedOver};

pub use self::counts::Counts;
use self::job::{Bytes, Job};
use self::wait::Known;
use super::messages::{End, Messages, Unanswered};
use super::transfer::{Claim, Direction, Span, Stage, Transfer};

/// Maximum number of bytes of a transfer.
const MAX_TRANSFER: usize = 128 << 10;
/// Maximum number of bytes of the transfers of an asker: source and target of a piece of a message.
const MAX_BYTES: usize = 4 * MAX_TRANSFER;
/// Maximum number of bytes of an asker that are announced, so that others can be read.
const MAX_ANNOUNCED: usize = MAX_BYTES / 2;
/// Maximum number of transfers of an asker.
const MAX_TRANSFERS: usize = 320;
/// Maximum number of askers that have transfers. The others wait.
const MAX_ASKERS: usize = 32;
/// Maximum number of times that bytes are written again, because they have changed before their
/// write was confirmed.
const MAX_CHANGES: usize = 2;
/// Time after which the result of a transfer is too old to be used.
const MAX_AGE: Duration = Duration::from_millis(250);
/// Longest time of a transfer that counts for the average.
const LONGEST: Duration = Duration::from_millis(1);

/// The transfers of an adapter.
#[derive(Debug, Default)]
pub struct ExternalMemory {
    state: Mutex<State>,
    /// Notified when a transfer waits, and when one has ended.
    changed: Condvar,
    /// True if there has been a transfer.
    used: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The connection of the VMM.
    messages: Option<Arc<dyn Messages>>,
    askers: HashMap<u64, Vec<Transfer>>,
    /// The transfers that wait, by asker and number.
    queue: VecDeque<(u64, u64)>,
    /// The number of the next transfer.
    next: u64,
    /// The transfer that is with the VMM.
    running: Option<Running>,
    /// The writes that the VMM has not answered in time.
    late: Vec<Known>,
    /// The number of times that all transfers have been ended.
    epoch: u64,
    /// True if no command may wait for transfers, because a reset is about to begin.
    hurries: bool,
    /// True when the thread must end.
    ended: bool,
    counts: Counts,
    /// The time at which the transfer that is with the VMM has begun.
    begun: Option<Instant>,
    /// The average time of a transfer.
    lasting: Duration,
}

/// The transfer that is with the VMM.
#[derive(Debug)]
struct Running {
    known: Known,
    end: Arc<End>,
}

impl ExternalMemory {
    /// Copies bytes out for a message, up to the end of a transfer. Returns their number, or `None`
    /// if they are not there. A transfer has then been started if there was room for one.
    pub(super) fn read(
        &self,
        asker: u64,
        message: u64,
        addr: u64,
        into: &mut [u8],
    ) -> Option<usize> {
        let mut state = self.state.lock();
        let transfers = state.transfers(asker);
        let transfer = transfers.iter_mut().find(|transfer| transfer.reads(message, addr));
        if let Some(transfer) = transfer {
            let (bytes, from) = transfer.take(addr, into.len())?;
            drop(state);
            let bytes = bytes.get(from..)?;
            let len = bytes.len().min(into.len());
            into.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
            return Some(len);
        }
        let span = Span { addr, len: into.len().min(MAX_TRANSFER) };
        self.start(&mut state, asker, span, Direction::Read(message));
        None
    }

    /// Starts to read a range for a message, as far as there is room. The first message of an asker
    /// has more room, because later ones may have been announced when it had none.
    pub(super) fn announce(&self, asker: u64, message: u64, addr: u64, len: usize) {
        let mut state = self.state.lock();
        let is_first =
            !state.transfers(asker).iter().any(|transfer| transfer.is_read_before(message));
        let max = if is_first { MAX_BYTES - MAX_TRANSFER } else { MAX_ANNOUNCED };
        let mut done = 0;
        while done < len {
            let Some(at) = addr.checked_add(done as u64) else { return };
            let transfers = state.transfers(asker);
            let known = transfers.iter().find(|transfer| transfer.reads(message, at));
            if let Some(transfer) = known {
                done += transfer.left(at);
                continue;
            }
            let span = Span { addr: at, len: (len - done).min(MAX_TRANSFER) };
            if state.bytes(asker) + span.len > max {
                return;
            }
            done += span.len;
            self.start(&mut state, asker, span, Direction::Read(message));
        }
    }

    /// Takes bytes over that are written to `addr`, and records their progress. Returns whether
    /// there was room for them.
    pub(super) fn hand_over(
        &self,
        asker: u64,
        addr: u64,
        from: &[u8],
        progress: &Arc<HandedOver>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.messages.is_none() || from.len() > MAX_TRANSFER || state.is_full(asker) {
            return false;
        }
        let last = state.askers.get_mut(&asker).and_then(|transfers| transfers.last_mut());
        if last.is_some_and(|last| last.extend(addr, from, progress, MAX_TRANSFER)) {
            return true;
        }
        let span = Span { addr, len: from.len() };
        let bytes = Direction::HandedOver(from.to_vec(), Claim::new(progress, from.len()));
        self.start(&mut state, asker, span, bytes);
        true
    }

    /// Returns the number of bytes, at the start of `from`, that a transfer has written to `addr`,
    /// or `None` if there is none. A transfer has then been started if there was room for one.
    pub(super) fn write(&self, asker: u64, addr: u64, from: &[u8]) -> Option<usize> {
        let mut state = self.state.lock();
        let transfers = state.transfers(asker);
        if let Some(transfer) = transfers.iter_mut().find(|known| known.writes(addr, from)) {
            return transfer.confirm(addr, from.len());
        }
        // The bytes have changed since then. A guest that changes them again and again must not
        // keep a peer waiting: at some time what has been written is good enough.
        let mut changes = transfers.iter_mut().filter(|known| known.has_written(addr));
        if let Some(transfer) = changes.nth(MAX_CHANGES) {
            return transfer.confirm(addr, from.len());
        }
        let bytes = from.get(..from.len().min(MAX_TRANSFER))?;
        let span = Span { addr, len: bytes.len() };
        self.start(&mut state, asker, span, Direction::Write(bytes.into()));
        None
    }

    /// Returns the state of the transfers of a range. Those that have failed are removed.
    pub(super) fn awaited(&self, asker: u64, addr: u64, len: u64) -> Awaited {
        let mut state = self.state.lock();
        let full = state.is_full(asker);
        let soon = if full { Awaited::Soon } else { Awaited::Nothing };
        let Some(transfers) = state.askers.get_mut(&asker) else { return soon };
        let overlaps = |transfer: &Transfer| transfer.span.overlaps(addr, len);
        if transfers.iter().any(|transfer| overlaps(transfer) && transfer.has_failed()) {
            transfers.retain(|transfer| !overlaps(transfer));
            return Awaited::Failed;
        }
        if transfers.iter().any(overlaps) { Awaited::Soon } else { soon }
    }

    /// Removes the transfers whose bytes an operation that has succeeded has used.
    pub(super) fn settle(&self, asker: u64) {
        let mut state = self.state.lock();
        if let Some(transfers) = state.askers.get_mut(&asker) {
            transfers.retain(|transfer| !transfer.is_used());
            if transfers.is_empty() {
                state.askers.remove(&asker);
            }
        }
    }

    /// Removes the reads of an asker, whose next message begins.
    pub(super) fn forget_reads(&self, asker: u64) {
        if let Some(transfers) = self.state.lock().askers.get_mut(&asker) {
            transfers.retain(|transfer| !transfer.is_read());
        }
    }

    /// Starts a transfer, unless the asker must wait for room.
    fn start(&self, state: &mut State, asker: u64, span: Span, direction: Direction) {
        if state.messages.is_none() || state.is_full(asker) {
            return;
        }
        self.used.store(true, Ordering::Relaxed);
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.askers.entry(asker).or_default().push(Transfer::new(number, span, direction));
        state.queue.push_back((asker, number));
        self.changed.notify_all();
    }

    /// Returns whether there is a VMM.
    pub(super) fn is_connected(&self) -> bool {
        self.state.lock().messages.is_some()
    }

    /// Sets the connection of a new VMM.
    pub fn connect(&self, messages: Arc<dyn Messages>) {
        self.state.lock().messages = Some(messages);
    }

    /// Ends all transfers, and forgets the connection of the VMM.
    pub fn disconnect(&self) {
        let mut state = self.state.lock();
        state.messages = None;
        state.late.clear();
        state.end_all();
        self.changed.notify_all();
    }

    /// Ends all transfers. The message that is with the VMM may still take place, and no other one
    /// does.
    pub fn end_all(&self) {
        self.state.lock().end_all();
        self.changed.notify_all();
    }

    /// Ends the connection of the VMM.
    pub(super) fn hang_up(&self) {
        let messages = self.state.lock().messages.clone();
        messages.inspect(|messages| messages.disconnect());
    }

    /// Ends the transfers of addresses that the VMM has unmapped. Their accesses fail.
    pub(super) fn end_span(&self, addr: u64, len: u64) {
        let mut state = self.state.lock();
        let transfers = state.askers.values_mut().flatten();
        for transfer in transfers.filter(|transfer| transfer.span.overlaps(addr, len)) {
            transfer.fail();
        }
        let running = state.running.as_ref();
        let running = running.filter(|running| running.known.span.overlaps(addr, len));
        running.inspect(|running| running.end.set());
        state.remove_handed_over();
    }

    /// Returns the time after which the transfers that wait now have probably ended, or zero if
    /// there are none.
    pub fn ends_in(&self) -> Duration {
        if !self.is_used() {
            return Duration::ZERO;
        }
        let state = self.state.lock();
        let count = state.queue.len() + usize::from(state.begun.is_some());
        state.lasting.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Returns whether there has been a transfer yet.
    #[inline]
    #[must_use]
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the counts of messages to the VMM.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.state.lock();
        let transfers = state.askers.values().flatten();
        let waiting = transfers.filter(|transfer| !transfer.has_ended()).count();
        Counts { waiting: waiting as u64, ..state.counts }
    }

    /// Makes [`Self::next`] return `None` from now on.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        state.end_all();
        self.changed.notify_all();
    }

    /// Waits for the next transfer. Returns `None` when the thread must end.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(job) = state.take() {
                return Some(job);
            }
            if state.askers.is_empty() {
                self.changed.wait(&mut state);
            } else if self.changed.wait_for(&mut state, MAX_AGE).timed_out() {
                state.remove_old();
            }
        }
    }

    /// Records the result of a transfer.
    pub fn finish(&self, job: &Job, result: Result<Option<Vec<u8>>, Unanswered>) {
        let mut state = self.state.lock();
        state.running = None;
        state.measure();
        state.counts.add(job, &result);
        let silent = matches!(result, Err(Unanswered::Late));
        if silent && job.bytes.is_some() {
            state.remove_answered();
            let Job { asker, number, span, .. } = *job;
            state.late.push(Known { asker, number, span });
        }
        if let Some(transfer) = state.transfer(job.asker, job.number) {
            transfer.finish(result);
        }
        if silent {
            // The others would take as long, one after the other.
            state.fail_waiting();
        }
        state.remove_handed_over();
        self.changed.notify_all();
    }
}

impl State {
    fn transfers(&mut self, asker: u64) -> &mut [Transfer] {
        self.askers.get_mut(&asker).map_or(&mut [], Vec::as_mut_slice)
    }

    fn transfer(&mut self, asker: u64, number: u64) -> Option<&mut Transfer> {
        self.transfers(asker).iter_mut().find(|transfer| transfer.number == number)
    }

    /// Returns whether the asker has to wait for room.
    fn is_full(&mut self, asker: u64) -> bool {
        if self.has_no_room(asker) {
            self.remove_old();
        }
        self.has_no_room(asker)
    }

    fn has_no_room(&self, asker: u64) -> bool {
        let Some(transfers) = self.askers.get(&asker) else {
            return self.askers.len() >= MAX_ASKERS;
        };
        transfers.len() >= MAX_TRANSFERS || self.bytes(asker) > MAX_BYTES - MAX_TRANSFER
    }

    /// Returns the number of bytes of the transfers of an asker.
    fn bytes(&self, asker: u64) -> usize {
        let transfers = self.askers.get(&asker).into_iter().flatten();
        transfers.map(|transfer| transfer.span.len).sum()
    }

    /// Forgets the writes that the VMM has answered, though late.
    fn remove_answered(&mut self) {
        let messages = self.messages.as_ref();
        let is_owed = |Span { addr, len }: Span| {
            messages.is_some_and(|messages| messages.is_owed(addr, len as u64))
        };
        self.late.retain(|late| is_owed(late.span));
    }

    /// Removes transfers that have ended and whose bytes were handed over: their progress tells
    /// the result.
    fn remove_handed_over(&mut self) {
        self.retain(|transfer| !(transfer.is_handed_over() && transfer.has_ended()));
    }

    /// Adds the time of the transfer that has ended to the average.
    fn measure(&mut self) {
        if let Some(begun) = self.begun.take() {
            let lasted = begun.elapsed().min(LONGEST);
            self.lasting = (self.lasting * 7 + lasted) / 8;
        }
    }

    /// Removes results that are too old to be used.
    fn remove_old(&mut self) {
        let now = Instant::now();
        self.retain(|transfer| !transfer.is_older(MAX_AGE, now));
    }

    fn retain(&mut self, keeps: impl Fn(&Transfer) -> bool) {
        self.askers.retain(|_, transfers| {
            transfers.retain(&keeps);
            !transfers.is_empty()
        });
    }

    fn end_all(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.askers.clear();
        self.queue.clear();
        self.running.as_ref().inspect(|running| running.end.set());
    }

    fn fail_waiting(&mut self) {
        self.queue.clear();
        let transfers = self.askers.values_mut().flatten();
        transfers.filter(|transfer| transfer.is_waiting()).for_each(Transfer::fail);
    }

    /// Takes the next transfer off the queue that has not been removed or ended.
    fn take(&mut self) -> Option<Job> {
        let messages = Arc::clone(self.messages.as_ref()?);
        while let Some((asker, number)) = self.queue.pop_front() {
            let transfer = self.transfer(asker, number).filter(|transfer| transfer.is_waiting());
            let Some(transfer) = transfer else { continue };
            transfer.stage = Stage::Running;
            let span = transfer.span;
            let bytes = match &mut transfer.direction {
                Direction::Read(_) => None,
                Direction::Write(bytes) => Some(Bytes::Shared(Arc::clone(bytes))),
                Direction::HandedOver(bytes, _) => Some(Bytes::Own(std::mem::take(bytes))),
            };
            let end = Arc::new(End::default());
            let known = Known { asker, number, span };
            self.running = Some(Running { known, end: Arc::clone(&end) });
            self.begun = Some(Instant::now());
            return Some(Job { asker, number, span, bytes, messages, end });
        }
        None
    }
}

#[cfg(test)]
mod tests;

//! The state of a holding CQ that is full: the entries that have no room, and the QPs that wait.
//!
//! A QP that finds such a CQ full takes no further work that needs an entry. So what a QP can still
//! add are the ends of what it has begun: its outstanding work requests, and one receive. Their
//! entries take less memory than they did.

use std::collections::{BTreeSet, VecDeque};

use arrayvec::ArrayVec;
use vrnic_abi::Qpn;
use vrnic_abi::cq::{Cqe, Flags, Status};

/// Number of QPs that are scheduled between two checks of the slice.
pub(super) const QPS_PER_CHECK: usize = 4;

/// The state of a holding CQ.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Entries without room, the oldest first. Their stamps are not set.
    entries: VecDeque<Cqe>,
    /// QPs that wait until there is room.
    waiting: BTreeSet<Qpn>,
    /// The QP whose entry was held back last. QPs are scheduled in turn, beginning after it, so
    /// that the first ones do not take all the room each time.
    last: Qpn,
    /// Number of free entries at which the guest gets an event, because few are left; zero for
    /// never.
    few: u32,
    /// True if the guest has been told that few are left, or that the CQ is full, and has not asked
    /// again.
    pub(super) told_few: bool,
    pub(super) told_full: bool,
}

impl Hold {
    /// Returns the state of an empty CQ whose guest gets an event when at most `few` entries are
    /// free.
    pub(super) fn new(few: u32) -> Self {
        Self { few, ..Self::default() }
    }

    /// Returns whether entries are held back.
    pub(super) fn any(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Returns the number of entries that are held back.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of unread entries from which on a CQ of this size must look closer before
    /// it writes another one.
    pub(super) fn limit(&self, size: u32) -> u32 {
        match (self.any(), self.few) {
            (true, _) => 0,
            (false, 0) => size,
            (false, _) if self.told_few => size,
            (false, few) => size.saturating_sub(few).saturating_sub(1),
        }
    }

    /// Returns whether few entries are free when another one has been written beside the unread
    /// ones, and the guest must be told.
    pub(super) fn is_few(&self, unread: u32, size: u32) -> bool {
        self.few != 0 && !self.told_few && size.saturating_sub(unread) <= self.few.saturating_add(1)
    }

    /// Holds an entry back.
    pub(super) fn push(&mut self, entry: Cqe) {
        self.last = entry.qpn;
        self.entries.push_back(entry);
    }

    /// Returns the oldest entry, as the entry at `index`.
    pub(super) fn front(&self, index: u32) -> Option<Cqe> {
        let oldest = *self.entries.front()?;
        Some(Cqe { stamp: vrnic_abi::stamp(index).into(), ..oldest })
    }

    /// Removes the oldest entry.
    pub(super) fn pop(&mut self) {
        self.entries.pop_front();
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }

    /// Removes the entries of a QP that has ended.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        self.entries.retain(|entry| entry.qpn != qpn);
    }

    /// Lets a QP wait.
    pub(super) fn wait(&mut self, qpn: Qpn) {
        self.waiting.insert(qpn);
    }

    /// Removes a QP from those that wait.
    pub(super) fn leave(&mut self, qpn: Qpn) {
        self.waiting.remove(&qpn);
    }

    /// Returns whether QPs wait.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes the next QPs that wait, and returns them.
    pub(super) fn take_waiting(&mut self) -> ArrayVec<Qpn, QPS_PER_CHECK> {
        let behind = self.waiting.range(Qpn::new(self.last.get().saturating_add(1))..);
        let next: ArrayVec<Qpn, QPS_PER_CHECK> =
            behind.chain(&self.waiting).take(QPS_PER_CHECK).copied().collect();
        next.iter().for_each(|qpn| {
            self.waiting.remove(qpn);
        });
        if let Some(last) = next.last() {
            self.last = *last;
        }
        next
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.entries, self.waiting) = (VecDeque::new(), BTreeSet::new());
    }
}

/// Returns whether an entry counts as solicited.
pub(super) fn is_solicited(entry: &Cqe) -> bool {
    let flags = Flags::from_bits_truncate(entry.flags.get());
    flags.contains(Flags::SOLICITED) || entry.status != Status::Success as u8
}

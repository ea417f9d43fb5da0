// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The consuming side of a completion queue's ring.
//!
//! A CQ knows the queue pairs that feed it. Entries with any other QP number belong to a destroyed
//! QP and are skipped, so destroying a QP need not walk through the ring. When a number is used
//! again (by a new QP, or by a QP that returns to Reset), its old entries are removed from the ring
//! first.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi as abi;

use abi::cq::waiting;

use super::changes::Changes;
use super::feeders::{Feeders, NO_QPN, feeder};
use super::patience::Patience;
use crate::completion::{Completion, QPN_WORD, SRQN_WORD, STAMP_WORD, WORDS};
use crate::doorbell::Life;
use crate::ring::Ring;

/// The consuming side of the ring.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) ring: Ring,
    pub(super) life: Life,
    /// The index of the next entry.
    pub(super) next: u32,
    pub(super) feeders: Feeders,
    pub(super) patience: Patience,
}

impl Consumer {
    /// Returns the consumer of an empty ring.
    pub(super) fn new(ring: Ring, life: Life, patience: Patience) -> Self {
        Self { ring, life, next: 0, feeders: Feeders::default(), patience }
    }

    /// Takes the next completion of a QP that feeds the queue.
    #[inline]
    pub(super) fn take(&mut self, changes: &Changes) -> Option<Completion> {
        loop {
            if let Some(completion) = self.step(changes)? {
                return Some(completion);
            }
        }
    }

    /// Takes the next completion. If the adapter is dead, also completes the outstanding requests
    /// as flushed.
    #[inline]
    pub(super) fn poll(&mut self, changes: &Changes) -> Option<Completion> {
        match self.take(changes) {
            None if self.life.has_ended() => self.flush(changes),
            taken => taken,
        }
    }

    /// Takes the remaining completions after the adapter has died: the last entries that it wrote,
    /// then requests without an entry.
    #[cold]
    pub(super) fn flush(&mut self, changes: &Changes) -> Option<Completion> {
        match self.take(changes) {
            None if self.feeders.follow(changes) => self.feeders.flush(),
            taken => taken,
        }
    }

    /// Takes the next entry, if there is one. It is not a completion if its QP does not feed the
    /// queue.
    #[inline]
    pub(super) fn step(&mut self, changes: &Changes) -> Option<Option<Completion>> {
        let entry = written(&self.ring, self.next)?;
        // A QP of which an entry has come was put down before it.
        if changes.any() && !self.feeders.follow(changes) {
            return None;
        }
        let completion = Completion::decode(load(entry));
        self.next = self.next.wrapping_add(1);
        let Some(credits) = self.feeders.find(feeder(completion.qpn, completion.srqn)) else {
            return Some(None);
        };
        credits.completed(&completion);
        Some(Some(completion))
    }
}

/// Returns the entry at `index` if the adapter has written it. Later reads of it are at least as
/// new as its stamp.
#[inline]
pub(super) fn written(ring: &Ring, index: u32) -> Option<&[AtomicU64; WORDS]> {
    let entry = ring.entry(index).first_chunk()?;
    let stamp = entry[STAMP_WORD].load(Ordering::Acquire) >> 32;
    (stamp == u64::from(abi::stamp(index))).then_some(entry)
}

/// Returns the index of the first entry from `first` on that the adapter has not written.
pub(super) fn end(ring: &Ring, first: u32) -> u32 {
    let written = |step| Ok(written(ring, first.wrapping_add(step)).is_some());
    let Ok(count) = waiting::<Infallible>(ring.size(), written);
    first.wrapping_add(count)
}

/// Removes the entries of a feeder, which the adapter writes no more: their number becomes one that
/// no feeder has. `freed` returns the index below which entries are free; a thread that polls may
/// move it meanwhile, and the adapter then writes entries of other feeders in their places.
pub(super) fn purge(ring: &Ring, number: u32, freed: impl Fn() -> u32) {
    let mut index = freed();
    for _ in 0..ring.size() {
        if let Some(entry) = written(ring, index) {
            disown(entry, number);
            index = index.wrapping_add(1);
            continue;
        }
        let now = freed();
        if !is_behind(now, index) {
            return;
        }
        index = now;
    }
}

/// Removes an entry if it is of this feeder.
fn disown(entry: &[AtomicU64; WORDS], number: u32) {
    let (qpn_word, srqn_word) = (&entry[QPN_WORD], &entry[SRQN_WORD]);
    let (qpn, srqn) = (qpn_word.load(Ordering::Relaxed), srqn_word.load(Ordering::Relaxed));
    // CAST: the lower halves.
    let (qp, srq) = (qpn as u32, srqn as u32);
    if feeder(qp, srq) == number {
        let (word, old) = if srq == 0 { (qpn_word, qpn) } else { (srqn_word, srqn) };
        // If this fails, another entry has taken its place.
        let _other = word.compare_exchange(old, old | NO_QPN, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Returns whether index `a` is after `b`.
pub(super) fn is_behind(a: u32, b: u32) -> bool {
    // CAST: the sign of the distance tells which comes first.
    a.wrapping_sub(b).cast_signed() > 0
}

#[inline]
pub(super) fn load(entry: &[AtomicU64; WORDS]) -> [u64; WORDS] {
    std::array::from_fn(|word| entry[word].load(Ordering::Relaxed))
}

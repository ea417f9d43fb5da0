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
use abi::doorbell::ArmRequest;

use super::credits::{Feeders, NO_QPN, feeder};
use crate::completion::{Completion, QPN_WORD, SRQN_WORD, STAMP_WORD, WORDS};
use crate::doorbell::CqDoorbell;
use crate::ring::Ring;

/// The consuming side of the ring.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) ring: Ring,
    pub(super) door: CqDoorbell,
    /// The index of the next entry.
    pub(super) next: u32,
    /// The last arm request.
    pub(super) armed: ArmRequest,
    pub(super) feeders: Feeders,
}

impl Consumer {
    /// Returns the consumer of an empty ring.
    pub(super) fn new(ring: Ring, door: CqDoorbell) -> Self {
        Self { ring, door, next: 0, armed: ArmRequest::default(), feeders: Feeders::default() }
    }

    /// Takes the next completion of a QP that feeds the queue.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.step()? {
                return Some(completion);
            }
        }
    }

    /// Takes the next completion. If the adapter is dead, also completes the outstanding requests
    /// as flushed.
    #[inline]
    pub(super) fn poll(&mut self) -> Option<Completion> {
        match self.take() {
            None if self.door.life.has_ended() => self.flush(),
            taken => taken,
        }
    }

    /// Takes the remaining completions after the adapter has died: the last entries that it wrote,
    /// then requests without an entry.
    #[cold]
    pub(super) fn flush(&mut self) -> Option<Completion> {
        match self.take() {
            None => self.feeders.flush(),
            taken => taken,
        }
    }

    /// Takes the next entry, if there is one. It is not a completion if its QP does not feed the
    /// queue.
    #[inline]
    pub(super) fn step(&mut self) -> Option<Option<Completion>> {
        let completion = Completion::decode(load(self.valid(self.next)?));
        self.next = self.next.wrapping_add(1);
        let Some(credits) = self.feeders.find(feeder(completion.qpn, completion.srqn)) else {
            return Some(None);
        };
        credits.completed(&completion);
        Some(Some(completion))
    }

    /// Returns the entry at `index` if the adapter has written it. Later reads of it are at least
    /// as new as its stamp.
    #[inline]
    pub(super) fn valid(&self, index: u32) -> Option<&[AtomicU64; WORDS]> {
        let entry = self.ring.entry(index).first_chunk()?;
        let stamp = entry[STAMP_WORD].load(Ordering::Acquire) >> 32;
        (stamp == u64::from(abi::stamp(index))).then_some(entry)
    }

    /// Returns the index of the first entry that the adapter has not written.
    pub(super) fn end(&self) -> u32 {
        let written = |step| Ok(self.valid(self.next.wrapping_add(step)).is_some());
        let Ok(count) = waiting::<Infallible>(self.ring.size(), written);
        self.next.wrapping_add(count)
    }

    /// Removes the entries of a feeder: their QP number becomes one that no QP has.
    pub(super) fn purge(&mut self, number: u32) {
        for step in 0..self.ring.size() {
            let Some(entry) = self.valid(self.next.wrapping_add(step)) else { return };
            let (qpn_word, srqn_word) = (&entry[QPN_WORD], &entry[SRQN_WORD]);
            let (qpn, srqn) = (qpn_word.load(Ordering::Relaxed), srqn_word.load(Ordering::Relaxed));
            // CAST: the lower halves.
            if feeder(qpn as u32, srqn as u32) == number {
                qpn_word.store(qpn | NO_QPN, Ordering::Relaxed);
                srqn_word.store(srqn & !NO_QPN, Ordering::Relaxed);
            }
        }
    }
}

#[inline]
pub(super) fn load(entry: &[AtomicU64; WORDS]) -> [u64; WORDS] {
    std::array::from_fn(|word| entry[word].load(Ordering::Relaxed))
}

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbell pages, and whether the adapter behind them is alive.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use abi::UarIndex;
use abi::uar::{ARMED_OFFSET, LIFE_OFFSET, SUMMARY_OFFSET, UAR_COUNT, UAR_LEN};
use rustix::io::Errno;
use rustix::thread::futex;
use vrnic_abi as abi;

use crate::heap::Shared;
use crate::mapping::{Area, Mapping, Word32, Word64};

/// The page by which an adapter that sleeps is woken.
#[derive(Clone, Debug)]
pub struct Kick {
    pub(super) page: Shared<Mapping>,
    is_memory: bool,
}

impl From<Shared<Mapping>> for Kick {
    /// Returns the page of the register that wakes the adapter.
    fn from(page: Shared<Mapping>) -> Self {
        Self { page, is_memory: false }
    }
}

impl Kick {
    /// Returns a page of memory, for the first word of which the adapter waits.
    #[must_use]
    pub fn memory(page: Shared<Mapping>) -> Self {
        Self { page, is_memory: true }
    }

    /// Returns the place of the page.
    pub(super) fn area(&self) -> Area {
        self.page.area()
    }

    fn wake(&self, index: UarIndex) {
        self.page.write_register(index.get());
        if self.is_memory
            && let Some(word) = self.page.word32(0)
        {
            // The call fails only if the page is gone, and the adapter with it.
            let _woken = futex::wake(word, futex::Flags::empty(), 1);
        }
    }
}

/// A doorbell page of this context, with the kick page that belongs to it.
#[derive(Debug)]
pub struct Uar {
    pub(super) index: UarIndex,
    pub(super) memory: Shared<Mapping>,
    summary: Word64,
    pub(super) armed: Word32,
    pub(super) life: Life,
    pub(super) kick: Kick,
}

/// Shows whether the adapter of a context is dead: by a word in the first UAR of the context
/// ([`abi::uar::Control::life`]), which contains the context's token until the adapter dies.
///
/// That UAR is mapped before the context has any queue, and no queue is created on a dead adapter.
/// So the word was set before the adapter died, for any reason, and is zero afterwards.
///
/// When the device goes away, the kernel replaces all pages of all mappings of a context by one
/// ordinary page (`rdma_umap_fault` in `drivers/infiniband/core/uverbs_main.c`). This page is zero
/// at first. From then on, a store to any mapping, such as a doorbell or an entry of a send queue,
/// may also change the word. So the token is random, and death is remembered.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(super) word: Word32,
    pub(super) state: Shared<LifeState>,
}

#[derive(Debug)]
pub(super) struct LifeState {
    /// The value of the word while the adapter is alive: random, and not zero.
    pub(super) token: u32,
    /// Set when the word was first seen to have another value.
    ended: AtomicBool,
}

impl Life {
    /// Sets the word, in the memory of a context's first UAR.
    ///
    /// # Errors
    /// `EIO` if the memory has no such word; `ENOMEM`.
    fn begin(memory: &Shared<Mapping>) -> Result<Self, Errno> {
        let word = Word32::new(memory, LIFE_OFFSET).ok_or(Errno::IO)?;
        // CAST: the lower half of a random number.
        let token = (RandomState::new().hash_one(LIFE_OFFSET) as u32).max(1);
        word.store(token, Ordering::Release);
        Ok(Self { word, state: Shared::new(LifeState { token, ended: AtomicBool::new(false) })? })
    }

    /// Returns whether the adapter is dead, and accesses no memory any more.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        let LifeState { token, ended } = &*self.state;
        if self.word.load(Ordering::Acquire) == *token && !ended.load(Ordering::Relaxed) {
            return false;
        }
        self.end();
        true
    }

    #[cold]
    fn end(&self) {
        self.state.ended.store(true, Ordering::Relaxed);
    }
}

impl Uar {
    /// Creates UAR number `index`, which is mapped at `memory`. `life` is `None` for the first UAR
    /// of a context.
    ///
    /// # Errors
    /// `EIO` if the kernel's answer is invalid: no such UAR, or too short a mapping; `ENOMEM`.
    pub(super) fn new(
        index: UarIndex,
        memory: Mapping,
        life: Option<Life>,
        kick: Kick,
    ) -> Result<Self, Errno> {
        if index.get() >= UAR_COUNT || memory.len() < UAR_LEN as usize {
            return Err(Errno::IO);
        }
        let memory = Shared::new(memory)?;
        let summary = Word64::new(&memory, SUMMARY_OFFSET).ok_or(Errno::IO)?;
        let armed = Word32::new(&memory, ARMED_OFFSET).ok_or(Errno::IO)?;
        let life = life.map_or_else(|| Life::begin(&memory), Ok)?;
        Ok(Self { index, memory, summary, armed, life, kick })
    }

    /// Tells the adapter that a slot of the group with this bit has changed, and wakes the adapter
    /// if it sleeps.
    #[inline]
    pub(super) fn ring(&self, bit: u64) {
        // SeqCst: the load of `armed` below must not pass this. The adapter sets `armed` and
        // then reads the summary, so one of us sees the other.
        self.summary.fetch_or(bit, Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.kick.wake(self.index);
    }

    /// Returns whether the adapter is a process of this system, which needs a processor, too.
    pub(super) fn is_process(&self) -> bool {
        self.kick.is_memory
    }

    /// Returns the state of the adapter, which all UARs of a context share.
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }
}

/// The doorbell pages that a context has mapped. Each is mapped once.
#[derive(Debug)]
pub struct UarTable {
    kick: Kick,
    known: Mutex<Vec<Shared<Uar>>>,
}

impl UarTable {
    /// Creates an empty table; `kick` is the context's kick page.
    #[must_use]
    pub fn new(kick: impl Into<Kick>) -> Self {
        Self { kick: kick.into(), known: Mutex::new(Vec::new()) }
    }

    /// Returns the UAR with this number; `map` maps it when it is needed for the first time.
    ///
    /// # Errors
    /// The errors of `map`; `EIO` if the kernel's answer is invalid; `ENOMEM`.
    pub fn get(
        &self,
        index: UarIndex,
        map: impl FnOnce() -> Result<Mapping, Errno>,
    ) -> Result<Shared<Uar>, Errno> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uar) = known.iter().find(|uar| uar.index == index) {
            return Ok(uar.clone());
        }
        let life = known.first().map(|first| first.life.clone());
        let uar = Shared::new(Uar::new(index, map()?, life, self.kick.clone())?)?;
        known.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        known.push(uar.clone());
        Ok(uar)
    }
}

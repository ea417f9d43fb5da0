// SPDX-License-Identifier: GPL-2.0
//! References that may outlive their object, for interrupt handlers.

use core::ptr::NonNull;

use kernel::{
    prelude::*,
    sync::{
        Arc,
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
    },
    time::{Delta, delay::fsleep},
};

/// Set in [`Inner::calls`] when the object goes; the bits below count calls under way.
const REVOKED: u32 = 1 << 31;
/// The time between two looks for the end of the last call.
const POLL: Delta = Delta::from_micros(20);

/// A counted reference to the core object `C`, revoked when the object goes.
///
/// Interrupt handlers and tables keep clones of it. A call through a revoked link does nothing,
/// and revoking waits for calls under way; so when the destroying operation has returned, no
/// handler uses the object any more. No lock is held during a call: a client's handler may use
/// its object in any way, which may lead to further calls through the same link.
///
/// # Invariants
///
/// [`Link::revoke`] returns before the object goes.
pub(crate) struct Link<C>(Arc<Inner<C>>);

/// Tells one object of the core from another; see [`Link::identity`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity(usize);

impl Identity {
    /// Returns the identity of the object there.
    pub(super) fn of<C>(object: *const C) -> Self {
        Self(object.addr())
    }
}

/// The parts of a link that its clones share.
///
/// # Invariants
///
/// `object` is alive until `revoke` has returned.
struct Inner<C> {
    object: NonNull<C>,
    calls: Atomic<u32>,
    /// Calls of [`Link::one_at_a_time`] that have not been carried out.
    wanted: Atomic<u32>,
    /// See [`Link::arm`].
    armed: Atomic<bool>,
    /// See [`Link::open`].
    open: Atomic<bool>,
    /// See [`Link::reports`].
    reports: Atomic<u64>,
}

// SAFETY: the pointer is followed only during counted calls, in which the object is alive by the
// type's invariants, to call functions of the core that are allowed on any CPU.
unsafe impl<C> Send for Inner<C> {}
// SAFETY: the pointer is followed only during counted calls, in which the object is alive by the
// type's invariants; all else is atomic.
unsafe impl<C> Sync for Inner<C> {}

impl<C> Clone for Link<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> PartialEq for Link<C> {
    /// Returns whether both are links made by the same [`Link::new`].
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<C> Link<C> {
    /// Creates a link to `object`.
    ///
    /// # Safety
    ///
    /// [`Link::revoke`] must be called before `object` goes.
    pub(super) unsafe fn new(object: NonNull<C>) -> Result<Self> {
        // INVARIANT: the caller promises to revoke the link before the object goes.
        let inner = Inner {
            object,
            calls: Atomic::new(0),
            wanted: Atomic::new(0),
            armed: Atomic::new(false),
            open: Atomic::new(false),
            reports: Atomic::new(0),
        };
        Ok(Self(Arc::new(inner, GFP_KERNEL)?))
    }

    /// Ends the link; sleeps until calls of [`Link::with`] under way have ended. To be called
    /// once.
    pub(super) fn revoke(&self) {
        self.0.calls.fetch_add(REVOKED, Full);
        while self.0.calls.load(Acquire) != REVOKED {
            fsleep(POLL);
        }
    }

    /// Calls `f` with the object, unless it has gone.
    pub(super) fn with<R>(&self, f: impl FnOnce(NonNull<C>) -> R) -> Option<R> {
        let before = self.0.calls.fetch_add(1, Acquire);
        let result = (before & REVOKED == 0).then(|| f(self.0.object));
        self.0.calls.fetch_sub(1, Release);
        result
    }

    /// Like [`Self::with`], but never on two processors at a time, and not recursively: if `f` is
    /// already running, the thread that runs it calls it once more.
    pub(super) fn one_at_a_time(&self, f: impl Fn(NonNull<C>)) {
        if self.0.wanted.fetch_add(1, Full) != 0 {
            return;
        }
        let mut seen = 1;
        loop {
            self.with(&f);
            match self.0.wanted.cmpxchg(seen, 0, Full) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Tells one object from another as long as both live.
    pub(crate) fn identity(&self) -> Identity {
        Identity(self.0.object.as_ptr().addr())
    }

    /// Returns the number of times that the client was notified of completions.
    pub(crate) fn reports(&self) -> u64 {
        self.0.reports.load(Relaxed)
    }

    /// Adds one to what [`Self::reports`] returns.
    pub(super) fn count(&self) {
        self.0.reports.fetch_add(1, Relaxed);
    }

    /// Records that the core has set all fields that a report needs.
    pub(super) fn open(&self) {
        self.0.open.store(true, Release);
    }

    /// Returns whether [`Self::open`] was called, after which all that its caller saw is visible.
    pub(super) fn is_open(&self) -> bool {
        self.0.open.load(Acquire)
    }

    /// Records that the client waits for a notification, or that a notification is due.
    pub(super) fn arm(&self) {
        self.0.armed.store(true, Relaxed);
    }

    /// Records that the client is being notified. Returns whether it waited for a notification, or
    /// one was due.
    pub(super) fn disarm(&self) -> bool {
        self.0.armed.xchg(false, Full)
    }
}

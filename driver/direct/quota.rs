// SPDX-License-Identifier: GPL-2.0
//! Limits of the address ranges and the device memory that processes may have: those of a context,
//! of all contexts of a user, and of all users together. The rest is left to kernel clients, which
//! have no limits. Of the device memory a context may have a quarter, a user half, and all users
//! three quarters.

use core::ops::Deref;

use abi::direct::RANGES;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc, Mutex,
        atomic::{Atomic, Relaxed},
    },
    task::Kuid,
};

use crate::rdma::user::mmap::Keeps;

/// Address ranges that a context may have.
const RANGES_OF_CONTEXT: u64 = 4;
/// Address ranges that a user may have. They are fewer than the blocks that processes may have.
const RANGES_OF_USER: u64 = 12;
/// Address ranges that all users may have.
const RANGES_OF_USERS: u64 = 24;
// CAST: to the wider type.
const _: () = assert!(RANGES_OF_USERS < RANGES as u64);

/// The part of a resource that a context, a user or all users may still take.
pub(crate) struct Quota {
    left: Atomic<u64>,
    limit: u64,
    /// What is taken here is taken there, too.
    whole: Option<Arc<Quota>>,
}

impl Quota {
    /// Returns a quota of which nothing is taken. It is a part of `whole`, if there is that.
    fn new(limit: u64, whole: Option<&Arc<Self>>) -> Result<Arc<Self>> {
        let whole = whole.cloned();
        Ok(Arc::new(Self { left: Atomic::new(limit), limit, whole }, GFP_KERNEL)?)
    }

    /// Takes a part; returns `None` if less is left.
    pub(crate) fn take(self: &Arc<Self>, amount: u64) -> Option<Share> {
        self.subtract(amount).then(|| Share { quota: self.clone(), amount })
    }

    /// Returns whether this much was left. It is taken then.
    fn subtract(&self, amount: u64) -> bool {
        let mut left = self.left.load(Relaxed);
        loop {
            let Some(rest) = left.checked_sub(amount) else { return false };
            match self.left.cmpxchg(left, rest, Relaxed) {
                Ok(_) => break,
                Err(now) => left = now,
            }
        }
        let taken = self.whole.as_ref().is_none_or(|whole| whole.subtract(amount));
        if !taken {
            self.left.fetch_add(amount, Relaxed);
        }
        taken
    }

    fn add(&self, amount: u64) {
        self.left.fetch_add(amount, Relaxed);
        if let Some(whole) = &self.whole {
            whole.add(amount);
        }
    }

    /// Returns whether a part of it is taken.
    fn is_used(&self) -> bool {
        self.left.load(Relaxed) != self.limit
    }
}

/// The quotas of a user, which exist while the user has a context or a part of a resource.
struct User {
    uid: Kuid,
    contexts: Arc<Quota>,
    ranges: Arc<Quota>,
    memory: Arc<Quota>,
}

impl User {
    fn is_used(&self) -> bool {
        [&self.contexts, &self.ranges, &self.memory].into_iter().any(|quota| quota.is_used())
    }
}

/// The quotas of a context.
pub(crate) struct ContextQuotas {
    /// The address ranges that it may still take.
    pub(crate) ranges: Arc<Quota>,
    /// The bytes of device memory that it may still take.
    pub(crate) memory: Arc<Quota>,
    /// Keeps the quotas of its user.
    _context: Share,
}

/// The quotas of all users of an adapter.
#[pin_data]
pub(crate) struct Quotas {
    ranges: Arc<Quota>,
    memory: Arc<Quota>,
    /// A quarter of the adapter's device memory.
    quarter: u64,
    #[pin]
    users: Mutex<KVec<User>>,
}

impl Quotas {
    /// Returns the quotas of an adapter with this much device memory.
    pub(crate) fn new(device_memory: u64) -> Result<Pin<KBox<Self>>> {
        let quarter = device_memory / 4;
        let ranges = Quota::new(RANGES_OF_USERS, None)?;
        let memory = Quota::new(3 * quarter, None)?;
        let users = new_mutex!(KVec::new(), "vrnic::Quotas");
        KBox::pin_init(pin_init!(Self { ranges, memory, quarter, users <- users }), GFP_KERNEL)
    }

    /// Returns how many bytes of device memory a context may have.
    pub(crate) fn max_device_memory(&self) -> u64 {
        self.quarter
    }

    /// Returns the quotas of a new context of this user.
    pub(crate) fn open(&self, uid: Kuid) -> Result<ContextQuotas> {
        let mut users = self.users.lock();
        users.retain(|user| user.is_used());
        if !users.iter().any(|user| user.uid == uid) {
            users.push(self.new_user(uid)?, GFP_KERNEL)?;
        }
        let user = users.iter().find(|user| user.uid == uid).ok_or(EINVAL)?;
        Ok(ContextQuotas {
            ranges: Quota::new(RANGES_OF_CONTEXT, Some(&user.ranges))?,
            memory: Quota::new(self.quarter, Some(&user.memory))?,
            _context: user.contexts.take(1).ok_or(ENOSPC)?,
        })
    }

    fn new_user(&self, uid: Kuid) -> Result<User> {
        Ok(User {
            uid,
            contexts: Quota::new(u64::MAX, None)?,
            ranges: Quota::new(RANGES_OF_USER, Some(&self.ranges))?,
            memory: Quota::new(2 * self.quarter, Some(&self.memory))?,
        })
    }
}

/// A part of a quota; given back on drop.
pub(crate) struct Share {
    quota: Arc<Quota>,
    amount: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.add(self.amount);
    }
}

/// A value that counts against a quota until it is dropped.
pub(crate) struct Counted<T> {
    // The fields are dropped in this order.
    value: T,
    _share: Share,
}

impl<T> Counted<T> {
    /// Counts a value by this share.
    pub(crate) fn new(value: T, share: Share) -> Self {
        Self { value, _share: share }
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// After the value has been dropped, the drop of its share only adds to numbers, and so waits for
/// nothing.
impl<T: Keeps> Keeps for Counted<T> {}

//! The translation and protection table: all objects that have a key, and the checks of every use
//! of a key.
//!
//! An entry is a cache line of atomic words under a sequence count, and its pages are in the memory
//! translation table ([`crate::memory::mtt`]), so a look-up writes nothing. The result of a look-up
//! is used while the guest's memory is held ([`GuestMemory::hold`]). A thread that ends an entry
//! makes it invalid, waits until the present holders have released the memory
//! ([`GuestMemory::drain`]), and then frees its pages and index or reports the end to its owner.
//!
//! [`GuestMemory::hold`]: crate::host::GuestMemory::hold
//! [`GuestMemory::drain`]: crate::host::GuestMemory::drain
//!
//! An entry is changed under the lock of its cold half. These locks are held for a few lines, never
//! while waiting for readers, and one at a time.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `entry` | an entry: the cache line that look-ups read, and the data behind it |
//! | `denied` | reasons for which an access is denied |
//! | `regions` | regions registered by command |
//! | `paging` | regions whose pages come and go |
//! | `fast` | regions that work requests register, and keys that they invalidate |
//! | `windows` | windows and their binding |
//! | `touch`, `message` | keys that are valid for one message; this message |
//! | `commands` | regions that live as long as a command |

mod commands;
mod denied;
mod entry;
mod fast;
mod message;
mod paging;
mod regions;
mod touch;
mod windows;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use vrnic_abi::qp::Access;
use vrnic_abi::{GuestAddr, Key};

pub use self::commands::{Buffer, CommandData, DataPages, Named, Piece, Pieces};
pub use self::denied::Denied;
use self::entry::{Back, Cold, Entry, Owner, Slot};
pub use self::entry::{ByteRange, Kind, Known, Mr};
pub use self::fast::Registration;
pub use self::message::{Message, Position, Stream};
use self::paging::Paging;
pub use self::paging::{Missing, PageSpan, Part};
pub use self::regions::Refused;
pub use self::windows::{Binding, Bound};
use crate::domain::Domain;
pub use crate::domain::User;
#[cfg(doc)]
use crate::host::Host;
use crate::limits::MAX_MR;
use crate::limits::meter::Meter;
use crate::memory::mtt::{Mtt, Table, Walk};
use crate::memory::pages::{Charge, PageBudget, Run};
use crate::sync::Mutex;

/// Number of entries that are allocated together.
const CHUNK: usize = if cfg!(loom) { 4 } else { 1024 };

/// A checked part of an entry. It is valid while the guest's memory is held.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    table: Table,
    offset: u64,
    one_touch: bool,
    relaxed: bool,
    mtt: &'a Mtt,
    held: PhantomData<&'a ()>,
}

impl<'a> Window<'a> {
    /// Returns a window of guest memory from `addr` on, without a key.
    fn physical(addr: GuestAddr, mtt: &'a Mtt) -> Self {
        let (table, one_touch, relaxed) = (Table::run(addr), false, false);
        Self { table, offset: 0, one_touch, relaxed, mtt, held: PhantomData }
    }

    /// Returns the contiguous memory from byte `at` of the window on, up to `len` bytes.
    #[inline]
    #[must_use]
    pub fn resolve(&self, at: u64, len: u64) -> Option<Run> {
        self.mtt.resolve(&self.table, self.offset.checked_add(at)?, len)
    }

    /// Iterates over `len` bytes of the window from byte `at` on. Returns `None` if they wrap
    /// around.
    #[inline]
    #[must_use]
    pub fn walk(&self, at: u64, len: u64) -> Option<Walk<'a>> {
        Some(self.mtt.walk(&self.table, self.offset.checked_add(at)?, len))
    }

    /// Returns whether [`Tpt::placed`] must be called when the message has been placed.
    #[inline]
    #[must_use]
    pub fn one_touch(&self) -> bool {
        self.one_touch
    }

    /// Returns whether its region allows any order of writes (`IBV_ACCESS_RELAXED_ORDERING`).
    #[must_use]
    pub fn relaxed(&self) -> bool {
        self.relaxed
    }
}

/// Returns whether a region allows any order of writes.
#[inline]
const fn is_relaxed(mr: &Mr) -> bool {
    mr.access.contains(Access::RELAXED_ORDERING)
}

/// The use of a key by a message of a peer.
#[derive(Clone, Copy, Debug)]
pub struct RemoteUse {
    /// The rights that it needs.
    pub need: Access,
    /// The number of the message, which is not known if the segment has arrived out of order.
    pub message: Option<u64>,
    /// True if the receiver's regions are not for its peer.
    pub windows_only: bool,
}

impl RemoteUse {
    /// Returns the use of any key with these rights, by the message with this number.
    #[must_use]
    pub const fn new(need: Access, number: u64) -> Self {
        Self { need, message: Some(number), windows_only: false }
    }
}

/// The table. Look-ups take no lock.
#[derive(Debug)]
pub struct Tpt {
    chunks: Box<[OnceLock<Chunk>]>,
    /// The function to which all entries belong.
    domain: Domain,
    mtt: Mtt,
    free: Mutex<Free>,
    /// The windows, and their maximum number.
    windows: Meter,
    budget: Arc<PageBudget>,
    /// Locked after the cold half of an entry.
    paging: Mutex<Paging>,
    /// True if pages of a region come and go, or did.
    has_paged: AtomicBool,
    /// The instances of the previous table, by index.
    before: Box<[u8]>,
}

impl Default for Tpt {
    fn default() -> Self {
        Self::new(MAX_MR - 1, &Arc::default())
    }
}

#[derive(Debug)]
struct Chunk {
    entries: Box<[Entry]>,
    backs: Box<[Back]>,
}

impl Chunk {
    /// Number of words of a chunk.
    const WORDS: u64 = (CHUNK * (size_of::<Entry>() + size_of::<Back>()) / 8) as u64;

    /// Creates free entries, whose last instances are given, or zero.
    fn new(instances: &[u8]) -> Self {
        let entries = (0..CHUNK).map(|_| Entry::default()).collect();
        let backs: Box<[Back]> = (0..CHUNK).map(|_| Back::default()).collect();
        for (back, instance) in backs.iter().zip(instances) {
            back.cold.lock().instance = *instance;
        }
        Self { entries, backs }
    }
}

#[derive(Debug, Default)]
struct Free {
    /// Freed indices, the one that is unused for longest first.
    list: VecDeque<u32>,
    /// The lowest index that was never used.
    fresh: u32,
    /// The charges of all allocated chunks.
    charges: Vec<Charge>,
    /// The maximum number of indices in use.
    limit: u32,
}

impl Free {
    /// Returns the number of indices in use.
    fn used(&self) -> usize {
        (self.fresh as usize).saturating_sub(1 + self.list.len())
    }
}

impl Tpt {
    /// Creates a table for `limit` keys, at most [`MAX_MR`] less one, whose memory counts against
    /// `budget`.
    #[must_use]
    pub fn new(limit: u32, budget: &Arc<PageBudget>) -> Self {
        let chunks = (0..MAX_MR as usize / CHUNK).map(|_| OnceLock::new()).collect();
        // Index 0 stays unused: a zero key is never valid.
        let limit = limit.min(MAX_MR - 1);
        let free = Mutex::new(Free { fresh: 1, limit, ..Free::default() });
        let (mtt, budget) = (Mtt::new(budget), Arc::clone(budget));
        Self {
            chunks,
            domain: Domain::NONE,
            mtt,
            free,
            windows: Meter::new(limit),
            budget,
            paging: Mutex::new(Paging::default()),
            has_paged: AtomicBool::new(false),
            before: Box::default(),
        }
    }

    /// Returns the table, which is empty, as that of a function.
    #[must_use]
    pub fn of(self, domain: Domain) -> Self {
        Self { domain, ..self }
    }

    /// Changes the maximum number of keys, and of windows among them. Those above it stay.
    pub fn set_limits(&self, keys: u32, windows: u32) {
        self.free.lock().limit = keys.min(MAX_MR - 1);
        self.windows.set_maximum(windows);
    }

    /// Returns the number of windows.
    #[must_use]
    pub fn windows(&self) -> u32 {
        self.windows.used()
    }

    /// Returns an empty table to replace this one. The memory of this one is freed when it is no
    /// longer used. The new table continues the instances, so that no key of this table is valid in
    /// it soon.
    #[must_use]
    pub fn successor(&self) -> Self {
        let instance = |index| match self.slot(index) {
            Some(slot) => slot.back.cold.lock().instance,
            None => self.before.get(index as usize).copied().unwrap_or_default(),
        };
        let end = self.end().max(self.before.len() as u32);
        let limit = self.free.lock().limit;
        let before = (0..end).map(instance).collect();
        let windows = Meter::new(self.windows.maximum());
        Self { before, windows, ..Self::new(limit, &self.budget).of(self.domain) }
    }

    /// Returns the number of words of the budget that its keys and their pages use.
    #[must_use]
    pub fn charged(&self) -> u64 {
        let chunks = self.free.lock().charges.len() as u64;
        chunks * Chunk::WORDS + self.mtt.charged()
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> Option<&Entry> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.get()?.entries.get(index % CHUNK)
    }

    fn slot(&self, index: u32) -> Option<Slot<'_>> {
        let entry = self.entry(index)?;
        let index = index as usize;
        let back = self.chunks.get(index / CHUNK)?.get()?.backs.get(index % CHUNK)?;
        Some(Slot { entry, back })
    }

    /// Returns the page tables of its regions.
    #[must_use]
    pub fn mtt(&self) -> &Mtt {
        &self.mtt
    }

    /// Returns the number of indices in use: regions and windows, valid or not, and commands.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.free.lock().used() as u64
    }

    /// Returns the highest index ever used, plus one.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.free.lock().fresh
    }

    /// Returns a view of an index, if it is in use.
    #[must_use]
    pub fn known(&self, index: u32) -> Option<Known> {
        let slot = self.slot(index)?;
        let (key, pdn, owner) = {
            let cold = slot.back.cold.lock();
            (cold.key, cold.pdn, cold.owner)
        };
        let kind = owner.kind()?;
        Some(Known { key, pdn, kind, valid: slot.entry.load(), windows: slot.back.bound() })
    }

    /// Allocates a free index.
    fn take_index(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if free.used() >= free.limit as usize {
            return None;
        }
        let nth = free.fresh as usize / CHUNK;
        if free.fresh <= free.limit && nth == free.charges.len() {
            free.charges.extend(Charge::new(&self.budget, Chunk::WORDS));
        }
        let index = if free.fresh <= free.limit && nth < free.charges.len() {
            free.fresh += 1;
            free.fresh - 1
        } else {
            free.list.pop_front()?
        };
        drop(free);
        let nth = index as usize / CHUNK;
        let before = || self.before.get(nth * CHUNK..).unwrap_or_default();
        self.chunks.get(nth)?.get_or_init(|| Chunk::new(before()));
        Some(index)
    }

    fn give_index(&self, index: u32) {
        self.free.lock().list.push_back(index);
    }

    /// Steps the instance of an allocated index. Returns its new key.
    fn new_key(&self, index: u32) -> Key {
        let instance = self.slot(index).map_or(0, |slot| {
            let mut cold = slot.back.cold.lock();
            cold.instance = cold.instance.wrapping_add(1);
            cold.instance
        });
        Key::new(index << 8 | u32::from(instance))
    }

    /// Removes all entries, and waits by `drain` until their last use has ended.
    pub fn clear(&self, drain: impl FnOnce()) {
        let mut left = Vec::new();
        let fresh = self.free.lock().fresh;
        for index in 1..fresh {
            let Some(slot) = self.slot(index) else { continue };
            let mut cold = slot.back.cold.lock();
            if cold.owner != Owner::None {
                slot.entry.invalidate();
                cold.owner = Owner::Leaving;
                left.push(index);
            }
        }
        drain();
        left.into_iter().for_each(|index| self.finish(index));
        self.windows.clear();
    }

    /// Frees an index and its resources. No thread uses it any more.
    fn finish(&self, index: u32) {
        let Some(slot) = self.slot(index) else { return };
        {
            let mut cold = slot.back.cold.lock();
            if cold.owner != Owner::Leaving {
                return;
            }
            if cold.paged {
                self.forget_pages(&cold.table);
            }
            self.mtt.free(&cold.table);
            *cold = Cold { instance: cold.instance, ..Cold::default() };
            slot.back.shut();
        }
        self.give_index(index);
    }

    /// Checks that the entries belong to the function of `user`, after the checks of PD, instance,
    /// bounds and rights.
    #[inline(always)]
    fn is_of(&self, user: User) -> Result<(), Denied> {
        if self.domain == user.domain { Ok(()) } else { Err(Denied::Foreign) }
    }

    /// Checks a local access: a range of the region `key`, by `user`, with the rights `need`. The
    /// result is valid as long as `_held`, the guest's memory, is held.
    ///
    /// # Errors
    /// Returns the first check that failed.
    #[inline(always)]
    pub fn check<'a, M>(
        &'a self,
        _held: &'a M,
        key: Key,
        user: User,
        range: ByteRange,
        need: Access,
    ) -> Result<Window<'a>, Denied> {
        let mr = self.entry(key.index()).and_then(Entry::load).ok_or(Denied::Invalid)?;
        if mr.kind != Kind::Region {
            return Err(Denied::Kind);
        }
        let offset = mr.check(key, user, range, need)?;
        // Only an access that reads needs no right of peers or writers.
        if mr.no_local_read && need.is_empty() {
            return Err(Denied::Rights);
        }
        self.is_of(user)?;
        let (Mr { table, .. }, one_touch, relaxed) = (mr, false, is_relaxed(&mr));
        Ok(Window { table, offset, one_touch, relaxed, mtt: &self.mtt, held: PhantomData })
    }

    /// Returns a window from an address on, without a key and a check.
    pub fn at(&self, addr: GuestAddr) -> Window<'_> {
        Window::physical(addr, &self.mtt)
    }

    /// Returns the first address of the region or window of a key, if it is valid.
    pub fn first_address(&self, key: Key) -> Option<u64> {
        self.entry(key.index()).and_then(Entry::load).map(|mr| mr.iova)
    }

    /// Checks a remote access, like [`Self::check`], by a message that `user` receives. If the key
    /// is valid for one message, and the number of the message is not known,
    /// [`Self::touch_ahead`] must follow. The window of a command must be split by
    /// [`Self::pieces`].
    ///
    /// # Errors
    /// Returns the first check that failed.
    #[inline(always)]
    pub fn check_remote<'a, M>(
        &'a self,
        _held: &'a M,
        key: Key,
        user: User,
        range: ByteRange,
        by: RemoteUse,
    ) -> Result<Window<'a>, Denied> {
        let slot = self.entry(key.index()).ok_or(Denied::Invalid)?;
        let mr = slot.load().ok_or(Denied::Invalid)?;
        if by.windows_only && mr.kind == Kind::Region {
            return Err(Denied::Kind);
        }
        let offset = mr.check(key, user, range, by.need)?;
        self.is_of(user)?;
        let Mr { table, one_touch, .. } = mr;
        if let Some(number) = by.message.filter(|_| one_touch) {
            let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
            self.touch(slot, key, Message { qpn: user.qpn, number })?;
        }
        let relaxed = is_relaxed(&mr);
        Ok(Window { table, offset, one_touch, relaxed, mtt: &self.mtt, held: PhantomData })
    }
}

//! The translation and protection table: everything that has a key, and the one place that checks
//! its use.
//!
//! An entry is a cache line of atomic words under a sequence count, its pages stand in the address
//! translation table ([`crate::memory::mtt`]): a look-up writes nothing. What it found is used
//! while the guest's memory is held ([`GuestMemory::hold`]). Who ends an entry makes it invalid,
//! waits until no thread holds the memory any more ([`GuestMemory::drain`]), and then gives its
//! pages and index back or tells its owner.
//!
//! [`GuestMemory::hold`]: crate::host::GuestMemory::hold
//! [`GuestMemory::drain`]: crate::host::GuestMemory::drain
//!
//! An entry is changed under the lock of its cold half. Those locks are held for a few lines each,
//! never while waiting for readers, and one at a time.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `entry` | an entry: the line that look-ups read, and what stands behind it |
//! | `denied` | why a use is refused |
//! | `regions` | regions registered by command |
//! | `fast` | regions registered, and keys invalidated, by work requests |
//! | `windows` | windows and their binding |
//! | `touch`, `message` | keys that are good for one message; that message |
//! | `commands` | regions that live as long as a command |

mod commands;
mod denied;
mod entry;
mod fast;
mod message;
mod regions;
mod touch;
mod windows;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use vrnic_abi::qp::Access;
use vrnic_abi::{GuestAddr, Key, Pdn, Qpn};

pub use self::commands::{CommandData, Piece, Pieces};
pub use self::denied::Denied;
use self::entry::{Back, Cold, Entry, Owner, Slot};
pub use self::entry::{ByteRange, Kind, Known, Mr, User};
pub use self::fast::Registration;
pub use self::message::Message;
pub use self::regions::Refused;
pub use self::touch::Placed;
pub use self::windows::{Binding, Bound};
#[cfg(doc)]
use crate::host::Host;
use crate::limits::MAX_MR;
use crate::memory::mtt::{Att, Table, Walk};
use crate::memory::pages::{Charge, PageBudget, Run};
use crate::sync::Mutex;

/// Entries that are made together.
const CHUNK: usize = if cfg!(loom) { 4 } else { 1024 };

/// A checked piece of an entry, for as long as the guest's memory is held.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    table: Table,
    offset: u64,
    one_touch: bool,
    att: &'a Att,
    held: PhantomData<&'a ()>,
}

impl<'a> Window<'a> {
    /// Guest memory from `addr` on, which needs no key.
    fn physical(addr: GuestAddr, att: &'a Att) -> Self {
        Self { table: Table::run(addr), offset: 0, one_touch: false, att, held: PhantomData }
    }

    /// The memory from byte `at` of the window on that follows without a gap, up to `len` bytes.
    #[inline]
    #[must_use]
    pub fn resolve(&self, at: u64, len: u64) -> Option<Run> {
        self.att.resolve(&self.table, self.offset.checked_add(at)?, len)
    }

    /// Walks along `len` bytes of the window from byte `at` on; `None` if they wrap.
    #[inline]
    #[must_use]
    pub fn walk(&self, at: u64, len: u64) -> Option<Walk<'a>> {
        Some(self.att.walk(&self.table, self.offset.checked_add(at)?, len))
    }

    /// Returns whether [`Tpt::placed`] wants to know when the message has been placed.
    #[inline]
    #[must_use]
    pub fn one_touch(&self) -> bool {
        self.one_touch
    }
}

/// The table. Look-ups take no lock.
#[derive(Debug)]
pub struct Tpt {
    chunks: Box<[OnceLock<Chunk>]>,
    att: Att,
    free: Mutex<Free>,
    /// Highest index.
    limit: u32,
    budget: Arc<PageBudget>,
    /// The instances of the table before this one, by index.
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
    /// Words that it takes.
    const WORDS: u64 = (CHUNK * (size_of::<Entry>() + size_of::<Back>()) / 8) as u64;

    /// Free entries, whose last instances are these, or zero.
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
    /// Indices given back, the longest unused first.
    list: VecDeque<u32>,
    /// The first index never used.
    fresh: u32,
    /// Of each chunk that was made.
    charges: Vec<Charge>,
}

impl Tpt {
    /// A table with room for so many keys, at most [`MAX_MR`] less one, whose memory is of
    /// `budget`.
    #[must_use]
    pub fn new(limit: u32, budget: &Arc<PageBudget>) -> Self {
        let limit = limit.min(MAX_MR - 1);
        let chunks = (0..=limit as usize / CHUNK).map(|_| OnceLock::new()).collect();
        // Index 0 stays unused: a zero key is never valid.
        let free = Mutex::new(Free { fresh: 1, ..Free::default() });
        let (att, budget) = (Att::new(budget), Arc::clone(budget));
        Self { chunks, att, free, limit, budget, before: Box::default() }
    }

    /// An empty table to put in the place of this one, which gives its memory back when nobody has
    /// it any more. Keys go on in their instances, so that none of this table is valid in the other
    /// soon.
    #[must_use]
    pub fn successor(&self) -> Self {
        let instance = |index| match self.slot(index) {
            Some(slot) => slot.back.cold.lock().instance,
            None => self.before.get(index as usize).copied().unwrap_or_default(),
        };
        let end = self.end().max(self.before.len() as u32);
        Self { before: (0..end).map(instance).collect(), ..Self::new(self.limit, &self.budget) }
    }

    /// Words of the budget that its keys and their pages have taken.
    #[must_use]
    pub fn charged(&self) -> u64 {
        let chunks = self.free.lock().charges.len() as u64;
        chunks * Chunk::WORDS + self.att.charged()
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

    /// The pages of its regions.
    #[must_use]
    pub fn att(&self) -> &Att {
        &self.att
    }

    /// Indices in use: regions and windows, valid or not, and commands.
    #[must_use]
    pub fn used(&self) -> u64 {
        let free = self.free.lock();
        u64::from(free.fresh - 1) - free.list.len() as u64
    }

    /// One past the highest index ever used.
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

    /// Takes a free index.
    fn take_index(&self) -> Option<u32> {
        let mut free = self.free.lock();
        let nth = free.fresh as usize / CHUNK;
        if free.fresh <= self.limit && nth == free.charges.len() {
            free.charges.extend(Charge::new(&self.budget, Chunk::WORDS));
        }
        let index = if free.fresh <= self.limit && nth < free.charges.len() {
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

    /// Steps the instance of an index that was taken; its new key.
    fn new_key(&self, index: u32) -> Key {
        let instance = self.slot(index).map_or(0, |slot| {
            let mut cold = slot.back.cold.lock();
            cold.instance = cold.instance.wrapping_add(1);
            cold.instance
        });
        Key::new(index << 8 | u32::from(instance))
    }

    /// Removes everything and waits by `drain` until the last use has ended.
    pub fn clear(&self, drain: impl FnOnce()) {
        let mut left = Vec::new();
        let fresh = self.free.lock().fresh;
        for index in 1..fresh {
            let Some(slot) = self.slot(index) else { continue };
            let mut cold = slot.back.cold.lock();
            if cold.owner != Owner::Nobody {
                slot.entry.invalidate();
                cold.owner = Owner::Leaving;
                left.push(index);
            }
        }
        drain();
        left.into_iter().for_each(|index| self.finish(index));
    }

    /// Gives back what an index had that is freed. No thread uses it any more.
    fn finish(&self, index: u32) {
        let Some(slot) = self.slot(index) else { return };
        {
            let mut cold = slot.back.cold.lock();
            if cold.owner != Owner::Leaving {
                return;
            }
            self.att.free(&cold.table);
            *cold = Cold { instance: cold.instance, ..Cold::default() };
            slot.back.shut();
        }
        self.give_index(index);
    }

    /// The check of local uses: a range of the region `key`, by an object of PD `pdn`, with
    /// the rights `need`. The answer holds as long as `_held`, the guest's memory, is
    /// held.
    ///
    /// # Errors
    /// The first check that failed.
    #[inline(always)]
    pub fn check<'a, M>(
        &'a self,
        _held: &'a M,
        (key, pdn): (Key, Pdn),
        range: ByteRange,
        need: Access,
    ) -> Result<Window<'a>, Denied> {
        let mr = self.entry(key.index()).and_then(Entry::load).ok_or(Denied::Invalid)?;
        if mr.kind != Kind::Region {
            return Err(Denied::Kind);
        }
        let offset = mr.check(key, User { pdn, qpn: Qpn::default() }, range, need)?;
        let Mr { table, .. } = mr;
        Ok(Window { table, offset, one_touch: false, att: &self.att, held: PhantomData })
    }

    /// Returns whether a key is good for one message, if it is valid.
    pub fn is_one_touch(&self, key: Key) -> bool {
        let entry = self.entry(key.index()).and_then(|slot| slot.load());
        entry.is_some_and(|mr| mr.one_touch)
    }

    /// The check of remote uses: as [`Self::check`], on behalf of a message that `user` receives as
    /// its number `message`. A command's window is to be taken apart: [`Self::pieces`].
    ///
    /// # Errors
    /// The first check that failed.
    #[inline(always)]
    pub fn check_remote<'a, M>(
        &'a self,
        _held: &'a M,
        (key, user): (Key, User),
        range: ByteRange,
        need: Access,
        message: u64,
    ) -> Result<Window<'a>, Denied> {
        let slot = self.entry(key.index()).ok_or(Denied::Invalid)?;
        let mr = slot.load().ok_or(Denied::Invalid)?;
        let offset = mr.check(key, user, range, need)?;
        let Mr { table, one_touch, .. } = mr;
        if one_touch {
            let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
            Self::touch(slot, key, Message { qpn: user.qpn, number: message })?;
        }
        Ok(Window { table, offset, one_touch, att: &self.att, held: PhantomData })
    }
}

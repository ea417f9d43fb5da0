//! Regions that work requests register, and keys that work requests invalidate.

use vrnic_abi::qp::Access;
use vrnic_abi::sq::{MemFlags, RegMrSeg};
use vrnic_abi::{Key, Pdn};

use super::Tpt;
use super::denied::Denied;
use super::entry::{ByteRange, Cold, Kind, Mr, Owner};
use crate::domain::User;
use crate::host::HeldMemory;
use crate::limits::MAX_MR_SIZE;
use crate::memory::pages::{PAGE_SHIFT_MAX, PAGE_SHIFT_MIN, PageList};

/// A registration from a work request, whose parameters have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Registration {
    /// The contents of the new region. Its pages are added when it is registered.
    mr: Mr,
    /// The QP of the work request.
    user: User,
    list: PageList,
    shift: u8,
    /// True if the key must be the present one of the region.
    same_key: bool,
}

impl Registration {
    /// Checks the parameters of a work request for a region of `user`, with this key
    /// and first address.
    ///
    /// # Errors
    /// [`Denied::Bounds`] if the pages are not enough for the region, or if the region is too long,
    /// wraps around, or is empty. [`Denied::Rights`] if remote write is allowed without local
    /// write.
    pub fn new(key: Key, user: User, addr: u64, seg: &RegMrSeg) -> Result<Self, Denied> {
        let (length, shift, count) = (seg.length.get(), seg.page_shift, seg.page_count.get());
        if !(PAGE_SHIFT_MIN..=PAGE_SHIFT_MAX).contains(&shift)
            || length == 0
            || length > MAX_MR_SIZE
            || addr.checked_add(length).is_none()
        {
            return Err(Denied::Bounds);
        }
        let offset = addr & ((1 << shift) - 1);
        if offset + length > u64::from(count) << shift {
            return Err(Denied::Bounds);
        }
        let access = Access::from_bits_truncate(seg.access.get());
        let writes = access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if writes && !access.contains(Access::LOCAL_WRITE) {
            return Err(Denied::Rights);
        }
        let flags = MemFlags::from_bits_truncate(seg.flags);
        let one_touch = flags.contains(MemFlags::ONE_TOUCH);
        let no_local_read = flags.contains(MemFlags::NO_LOCAL_READ);
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { addr };
        let mr = Mr {
            key,
            pdn: user.pdn,
            one_touch,
            no_local_read,
            access,
            iova,
            length,
            offset,
            kind: Kind::Region,
            ..Mr::default()
        };
        let list = PageList { addr: seg.table, count: count.into() };
        Ok(Self { mr, user, list, shift, same_key: flags.contains(MemFlags::SAME_KEY) })
    }
}

impl Tpt {
    /// Adds an invalid region for registrations of up to `max_pages` pages. Returns `None` if the
    /// table or the room for pages is full.
    pub fn insert_fast(&self, pdn: Pdn, max_pages: u32) -> Option<Key> {
        let table = self.mtt.reserve(u64::from(max_pages)).ok()?;
        let Some(index) = self.take_index() else {
            self.mtt.free(&table);
            return None;
        };
        let key = self.new_key(index);
        let slot = self.slot(index)?;
        let mut cold = slot.back.cold.lock();
        *cold = Cold {
            owner: Owner::Fast,
            instance: cold.instance,
            key,
            pdn,
            table,
            max_pages,
            ..Cold::default()
        };
        Some(key)
    }

    /// Makes an invalid region valid.
    ///
    /// # Errors
    /// Returns the check that failed. The region stays invalid then.
    pub fn register<M: HeldMemory>(&self, memory: &M, wanted: &Registration) -> Result<(), Denied> {
        let Mr { key, pdn, .. } = wanted.mr;
        let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
        let mut cold = slot.back.cold.lock();
        match cold.owner {
            Owner::Fast => {}
            Owner::None | Owner::Leaving => return Err(Denied::Invalid),
            _ => return Err(Denied::Kind),
        }
        if cold.pdn != pdn {
            return Err(Denied::Foreign);
        }
        if wanted.same_key && cold.key != key {
            return Err(Denied::Stale);
        }
        if slot.entry.load().is_some() {
            return Err(Denied::InUse);
        }
        if wanted.list.count > cold.max_pages.into() {
            return Err(Denied::Bounds);
        }
        self.is_of(wanted.user)?;
        let table = self.mtt.refill(memory, &cold.table, wanted.shift, wanted.list)?;
        cold.key = key;
        (cold.bound_to, cold.touched) = (None, None);
        slot.back.open();
        slot.entry.store(&Mr { table, ..wanted.mr });
        Ok(())
    }

    /// Invalidates a region of [`Self::insert_fast`] or a window of type 2, for a work request of
    /// `user` or, if `remote` is true, of its peer. Its last use ends when all threads that hold
    /// the guest's memory have released it.
    ///
    /// # Errors
    /// Returns the check that failed. The entry has not changed then.
    pub fn invalidate(&self, key: Key, user: User, remote: bool) -> Result<(), Denied> {
        let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
        let mut cold = slot.back.cold.lock();
        let mr = slot.entry.load().ok_or(Denied::Invalid)?;
        if !matches!(cold.owner, Owner::Fast | Owner::Window2) {
            return Err(Denied::Kind);
        }
        mr.check(key, user, ByteRange { addr: mr.iova, len: 0 }, Access::empty())?;
        let remote_rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if remote && !mr.access.intersects(remote_rights) {
            return Err(Denied::Rights);
        }
        self.is_of(user)?;
        if cold.owner == Owner::Fast {
            if !slot.back.close() {
                return Err(Denied::InUse);
            }
        } else {
            self.release_region(&mut cold);
        }
        slot.entry.invalidate();
        cold.touched = None;
        Ok(())
    }
}

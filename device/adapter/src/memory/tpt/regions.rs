//! Regions registered by command.

use super::Tpt;
use super::entry::{Cold, Mr, Owner};
use vrnic_abi::{GuestAddr, Key, Pdn};

/// The reason for which a region cannot be removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No region has this key.
    NotFound,
    /// Windows are bound to it.
    Busy,
    /// All access to it has been ended for good.
    Revoked,
}

/// Checks that an entry is a region registered by command, which has this key and was not revoked.
fn unrevoked(cold: &Cold, key: Key) -> Result<(), Refused> {
    match cold.owner {
        Owner::Region if cold.key != key => Err(Refused::NotFound),
        Owner::Region if cold.revoked => Err(Refused::Revoked),
        Owner::Region => Ok(()),
        _ => Err(Refused::NotFound),
    }
}

impl Tpt {
    /// Adds a region that gets its key in `make`. Returns `None` if the table is full.
    ///
    /// # Errors
    /// Returns the error of `make`. The table is unchanged then.
    pub fn insert<E>(&self, make: impl FnOnce(Key) -> Result<Mr, E>) -> Result<Option<Key>, E> {
        let Some(index) = self.take_index() else { return Ok(None) };
        let key = self.new_key(index);
        match make(key) {
            Ok(mr) => {
                self.install(Mr { key, ..mr });
                Ok(Some(key))
            }
            Err(error) => {
                self.give_index(index);
                Err(error)
            }
        }
    }

    /// Makes an entry a valid region. No other thread changes the entry at the same time.
    fn install(&self, mr: Mr) {
        let Some(slot) = self.slot(mr.key.index()) else { return };
        let mut cold = slot.back.cold.lock();
        let Mr { key, pdn, table, .. } = mr;
        *cold = Cold {
            owner: Owner::Region,
            instance: cold.instance,
            key,
            pdn,
            table,
            ..Cold::default()
        };
        // Opened before the entry is valid, so that no window is counted before.
        slot.back.open();
        slot.entry.store(&mr);
    }

    /// Removes a region of any kind, waits by `drain` until its last use has ended, and frees its
    /// pages. Returns its PD.
    ///
    /// # Errors
    /// Returns the reason. The region is unchanged then.
    pub fn remove(&self, key: Key, drain: impl FnOnce()) -> Result<Pdn, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let pdn = {
            let mut cold = slot.back.cold.lock();
            match cold.owner {
                Owner::Region if cold.key == key => {}
                Owner::Fast => {}
                _ => return Err(Refused::NotFound),
            }
            if !slot.back.close() {
                return Err(Refused::Busy);
            }
            slot.entry.invalidate();
            cold.owner = Owner::Leaving;
            cold.pdn
        };
        drain();
        self.finish(key.index());
        Ok(pdn)
    }

    /// Ends all access by the key of a region registered by command, and by the windows that are
    /// bound to it, which are not bound afterwards. Waits by `drain` until the last use has ended.
    /// The key stays in use until [`Self::remove`], which then finds no window. Does nothing if the
    /// region was revoked before.
    ///
    /// # Errors
    /// [`Refused::NotFound`].
    pub fn revoke(&self, key: Key, drain: impl FnOnce()) -> Result<(), Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        {
            let mut cold = slot.back.cold.lock();
            match unrevoked(&cold, key) {
                Err(Refused::Revoked) => return Ok(()),
                other => other?,
            }
            cold.revoked = true;
            self.die(slot, &mut cold);
        }
        // A binding that goes on at this time either finds the region invalid, or has taken the
        // lock of its window before the loop does.
        if !slot.back.close() {
            self.unbind_all(key.index());
            slot.back.shut();
        }
        drain();
        Ok(())
    }

    /// Ends the bindings of all windows of the region with this index, to which no more windows can
    /// be bound.
    fn unbind_all(&self, region: u32) {
        let end = self.end();
        for slot in (1..end).filter_map(|index| self.slot(index)) {
            let mut cold = slot.back.cold.lock();
            if cold.region == Some(region) {
                self.die(slot, &mut cold);
            }
        }
    }

    /// Returns the contents of a region registered by command, even if its single message has used
    /// it up.
    ///
    /// # Errors
    /// [`Refused::NotFound`] or [`Refused::Revoked`].
    pub fn region(&self, key: Key) -> Result<Mr, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let cold = slot.back.cold.lock();
        unrevoked(&cold, key)?;
        slot.entry.last().map(|mr| Mr { key, ..mr }).ok_or(Refused::NotFound)
    }

    /// Returns the contents of the region or window with this key or, if it is not valid, those
    /// that it had before.
    pub fn contents(&self, key: Key) -> Option<Mr> {
        let slot = self.slot(key.index())?;
        let cold = slot.back.cold.lock();
        let mr = slot.entry.last()?;
        // The table of any other entry that is not valid may belong to another one by now.
        let is_own = (mr.table.root, mr.table.depth) == (cold.table.root, cold.table.depth);
        if is_own { Some(mr) } else { slot.entry.load() }
    }

    /// Calls `each` with the address and the length of each part of the memory of a region or
    /// window, at least.
    pub fn each_part(&self, mr: &Mr, each: &mut dyn FnMut(GuestAddr, u64)) {
        self.mtt.each_part(&mr.table, mr.offset..mr.offset.saturating_add(mr.length), each);
    }

    /// Changes the PD and the rights of a region to those of `new`, and waits by `drain` until the
    /// last use of the old ones has ended. Returns its key. A valid region keeps its key and stays
    /// valid throughout. A region that its single message has used up gets a new key.
    ///
    /// # Errors
    /// Returns the reason. The region is unchanged then.
    pub fn amend(&self, key: Key, new: Mr, drain: impl FnOnce()) -> Result<Key, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let alive = {
            let mut cold = slot.back.cold.lock();
            unrevoked(&cold, key)?;
            if !slot.back.close() {
                return Err(Refused::Busy);
            }
            let alive = slot.entry.load().is_some();
            if alive {
                // The message that has used it is kept.
                cold.pdn = new.pdn;
                slot.entry.store(&Mr { key, ..new });
            }
            alive
        };
        drain();
        if alive {
            slot.back.open();
            return Ok(key);
        }
        let key = self.new_key(key.index());
        self.install(Mr { key, ..new });
        Ok(key)
    }

    /// Replaces a region by `new`, and waits by `drain` until the last use of the old one has
    /// ended. Returns the new key. The old pages are freed.
    ///
    /// # Errors
    /// Returns the reason. The region is unchanged then, and the caller still owns the pages of
    /// `new`.
    pub fn replace(&self, key: Key, new: Mr, drain: impl FnOnce()) -> Result<Key, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let old = {
            let mut cold = slot.back.cold.lock();
            unrevoked(&cold, key)?;
            if !slot.back.close() {
                return Err(Refused::Busy);
            }
            slot.entry.invalidate();
            cold.owner = Owner::Leaving;
            cold.table
        };
        drain();
        self.mtt.free(&old);
        let key = self.new_key(key.index());
        self.install(Mr { key, ..new });
        Ok(key)
    }
}

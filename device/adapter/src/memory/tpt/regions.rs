//! Regions registered by command.

use super::Tpt;
use super::entry::{Cold, Mr, Owner};
use vrnic_abi::{Key, Pdn};

/// Why a region cannot be removed or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is none of this key.
    NotFound,
    /// Windows are bound to it.
    Busy,
}

impl Tpt {
    /// Adds a region that learns its key from `make`; `None` when the table is full.
    ///
    /// # Errors
    /// Returns the error of `make`; the table is unchanged then.
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

    /// Makes an entry a valid region. No other thread changes the entry.
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
        // Before the entry is valid: what is counted from then on stays counted.
        slot.back.open();
        slot.entry.store(&mr);
    }

    /// Removes a region, of either making, waits by `drain` until its last use has ended, and gives
    /// its pages back. The PD that it belonged to.
    ///
    /// # Errors
    /// The region is as it was then.
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

    /// Returns the contents of a region registered by command, even if it has been used up by its
    /// one touch.
    ///
    /// # Errors
    /// [`Refused::NotFound`].
    pub fn region(&self, key: Key) -> Result<Mr, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let cold = slot.back.cold.lock();
        if cold.owner != Owner::Region || cold.key != key {
            return Err(Refused::NotFound);
        }
        slot.entry.last().map(|mr| Mr { key, ..mr }).ok_or(Refused::NotFound)
    }

    /// Gives a region the PD and the rights of `new`, and waits by `drain` until the last use of
    /// what it was has ended; its key. A region that is valid keeps its key and is valid all the
    /// time; one that has died at a touch gets a new one.
    ///
    /// # Errors
    /// The region is as it was then.
    pub fn amend(&self, key: Key, new: Mr, drain: impl FnOnce()) -> Result<Key, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let alive = {
            let mut cold = slot.back.cold.lock();
            if cold.owner != Owner::Region || cold.key != key {
                return Err(Refused::NotFound);
            }
            if !slot.back.close() {
                return Err(Refused::Busy);
            }
            let alive = slot.entry.load().is_some();
            if alive {
                // The message that touched it stays remembered.
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

    /// Puts `new` in the place of a region, waiting by `drain` until the last use of what it was
    /// has ended; its new key. The region's pages are given back.
    ///
    /// # Errors
    /// The region is as it was then, and the pages of `new` are still the caller's.
    pub fn replace(&self, key: Key, new: Mr, drain: impl FnOnce()) -> Result<Key, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let old = {
            let mut cold = slot.back.cold.lock();
            if cold.owner != Owner::Region || cold.key != key {
                return Err(Refused::NotFound);
            }
            if !slot.back.close() {
                return Err(Refused::Busy);
            }
            slot.entry.invalidate();
            cold.owner = Owner::Leaving;
            cold.table
        };
        drain();
        self.att.free(&old);
        let key = self.new_key(key.index());
        self.install(Mr { key, ..new });
        Ok(key)
    }
}

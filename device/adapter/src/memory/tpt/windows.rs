//! Windows and their binding.

use vrnic_abi::Qpn;
use vrnic_abi::admin::MwType;
use vrnic_abi::qp::Access;
use vrnic_abi::{Key, Pdn};

use super::Tpt;
use super::denied::Denied;
use super::entry::{ByteRange, Cold, Entry, Kind, Mr, Owner};
use super::regions::Refused;
use crate::domain::User;

/// Parameters of a binding.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Key of the region.
    pub lkey: Key,
    /// The first address, in the address space of the region.
    pub addr: u64,
    /// Number of bytes; zero unbinds.
    pub length: u64,
    /// Remote rights, and zero-based addresses.
    pub access: Access,
    /// True if the window is valid for a single message.
    pub one_touch: bool,
    /// True if the key must be the present one of the window.
    pub same_key: bool,
}

/// The result of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The window was not bound before.
    Fresh,
    /// An earlier binding has ended. Its last use ends when all threads that hold the guest's
    /// memory have released it.
    Replaced,
}

const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

impl Tpt {
    /// Adds a window that is not bound. Returns `None` if the table is full, or if there are too
    /// many windows.
    pub fn insert_window(&self, pdn: Pdn, kind: MwType) -> Option<Key> {
        let counted = self.windows.take(1)?;
        let index = self.take_index()?;
        let key = self.new_key(index);
        let mut cold = self.slot(index)?.back.cold.lock();
        let owner = match kind {
            MwType::Type1 => Owner::Window1,
            MwType::Type2 => Owner::Window2,
        };
        *cold = Cold { owner, instance: cold.instance, key, pdn, ..Cold::default() };
        counted.keep();
        Some(key)
    }

    /// Removes a window, bound or not, and waits by `drain` until its last use has ended. Returns
    /// its PD.
    ///
    /// # Errors
    /// [`Refused::NotFound`].
    pub fn remove_window(&self, key: Key, drain: impl FnOnce()) -> Result<Pdn, Refused> {
        let slot = self.slot(key.index()).ok_or(Refused::NotFound)?;
        let pdn = {
            let mut cold = slot.back.cold.lock();
            if !matches!(cold.owner, Owner::Window1 | Owner::Window2) {
                return Err(Refused::NotFound);
            }
            slot.entry.invalidate();
            self.release_region(&mut cold);
            cold.owner = Owner::Leaving;
            cold.pdn
        };
        drain();
        self.finish(key.index());
        self.windows.give(1);
        Ok(pdn)
    }

    /// Binds the window that `key` names, and changes its key to this one, for a work request of
    /// `user`.
    ///
    /// # Errors
    /// Returns the check that failed. The window is unchanged then.
    pub fn bind(&self, key: Key, user: User, wanted: &Binding) -> Result<Bound, Denied> {
        let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
        let mut cold = slot.back.cold.lock();
        let bound = slot.entry.load().is_some();
        let qpn = match cold.owner {
            Owner::Window1 => Qpn::default(),
            Owner::Window2 => user.qpn,
            Owner::None | Owner::Leaving => return Err(Denied::Invalid),
            _ => return Err(Denied::Kind),
        };
        if cold.pdn != user.pdn {
            return Err(Denied::Foreign);
        }
        if wanted.same_key && cold.key != key {
            return Err(Denied::Stale);
        }
        if cold.owner == Owner::Window2 && bound {
            return Err(Denied::InUse);
        }
        let new = match wanted.length {
            0 if cold.owner == Owner::Window2 => return Err(Denied::Bounds),
            0 => {
                self.is_of(user)?;
                None
            }
            _ => Some(Mr { key, qpn, ..self.hold_region(user, wanted)? }),
        };
        slot.entry.invalidate();
        self.release_region(&mut cold);
        cold.key = key;
        (cold.bound_to, cold.touched) = (None, None);
        if let Some(new) = new {
            cold.region = Some(wanted.lkey.index());
            slot.entry.store(&new);
        }
        Ok(if bound { Bound::Replaced } else { Bound::Fresh })
    }

    /// Counts a window at its region. Returns the window's contents without its key.
    fn hold_region(&self, user: User, wanted: &Binding) -> Result<Mr, Denied> {
        let region = self.slot(wanted.lkey.index()).ok_or(Denied::Invalid)?;
        // Failed look-ups by other PDs take no reference, so they cannot delay deregistration.
        view(region.entry, user, wanted)?;
        self.is_of(user)?;
        if !region.back.hold() {
            return Err(Denied::Invalid);
        }
        // From here on the region cannot be removed. Checks that it is still the same one.
        view(region.entry, user, wanted).inspect_err(|_| region.back.release())
    }

    /// Removes a bound window from the count of its region.
    pub(super) fn release_region(&self, cold: &mut Cold) {
        if let Some(region) = cold.region.take().and_then(|region| self.slot(region)) {
            region.back.release();
        }
    }
}

/// Returns the part of a region for a binding.
fn view(region: &Entry, user: User, wanted: &Binding) -> Result<Mr, Denied> {
    let mr = region.load().ok_or(Denied::Invalid)?;
    if mr.kind != Kind::Region {
        return Err(Denied::Kind);
    }
    let writes = wanted.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
    let need = if writes { Access::LOCAL_WRITE } else { Access::empty() };
    let range = ByteRange { addr: wanted.addr, len: wanted.length };
    let offset = mr.check(wanted.lkey, user, range, need)?;
    if !mr.access.contains(Access::MW_BIND) || mr.one_touch {
        return Err(Denied::NotBindable);
    }
    let of_region = mr.access & Access::RELAXED_ORDERING;
    let access = wanted.access & (REMOTE | Access::ZERO_BASED) | of_region;
    let iova = if access.contains(Access::ZERO_BASED) { 0 } else { wanted.addr };
    let Binding { length, one_touch, .. } = *wanted;
    Ok(Mr { kind: Kind::Window, one_touch, access, iova, length, offset, ..mr })
}

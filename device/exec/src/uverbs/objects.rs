//! The objects of a device file, by handle.

use std::collections::BTreeMap;

use rustix::io::Errno;
use vrnic_abi::qp::{Access, Type};
use vrnic_abi::{Cqn, Key, Pdn, Qpn, Srqn, UarIndex, Xrcdn};

use super::routes::Opening;
use super::write::QpCap;

/// Maximum number of objects of a file. The adapter has limits of its own for most kinds.
const MAX: usize = 1 << 20;

/// An object.
#[derive(Clone, Copy, Debug)]
pub enum Object {
    /// An address handle of this protection domain.
    Ah(u32),
    /// A memory window.
    Mw(Key),
    /// A memory region.
    Mr(Region),
    /// A queue pair.
    Qp(Qp),
    /// A shared receive queue.
    Srq(Srq),
    /// A completion queue, with its doorbell page.
    Cq(Cqn, UarIndex),
    /// Device memory of so many bytes.
    Dm(u64),
    /// An XRC domain.
    Xrcd(Xrcdn),
    /// A protection domain.
    Pd(Pdn),
}

/// A memory region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// The key of the region.
    pub key: Key,
    /// The protection domain.
    pub pdn: Pdn,
    /// The rights to the region.
    pub access: Access,
    /// The address of the memory in the process.
    pub start: u64,
    /// The number of bytes.
    pub length: u64,
    /// The first address, as work requests name it.
    pub iova: u64,
    /// What the memory is.
    pub kind: RegionKind,
}

/// What the memory of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Memory that was there when it was registered.
    Present,
    /// Memory that may come later.
    OnDemand,
    /// Device memory.
    Device,
}

/// A queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Qp {
    /// The number of the queue pair.
    pub qpn: Qpn,
    /// The type of the queue pair.
    pub kind: Type,
    /// The doorbell page of the queue pair.
    pub uar: UarIndex,
    /// The sizes of the queues.
    pub cap: QpCap,
    /// True if each send work request is signaled.
    pub signals_all: bool,
    /// The send queue in device memory: the offset and the length there.
    pub device_sq: Option<(u64, u64)>,
    /// The opening, if the queue pair is a target of XRC, which has no queues.
    pub target: Option<Target>,
}

/// The opening of a target of XRC.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The handle of the XRC domain.
    pub handle: u32,
    /// The number of the XRC domain.
    pub xrcdn: Xrcdn,
    /// The number of the opening.
    pub opening: Opening,
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct Srq {
    /// The number of the SRQ.
    pub srqn: Srqn,
    /// The doorbell page of the SRQ.
    pub uar: UarIndex,
    /// The number of its entries.
    pub max_wr: u32,
    /// The number of segments of a receive.
    pub max_sge: u32,
    /// log2 of the length of an entry.
    pub log_stride: u8,
    /// The handle of the XRC domain, of one for XRC.
    pub xrcd: Option<u32>,
}

/// The objects of a file.
#[derive(Debug, Default)]
pub struct Objects {
    all: BTreeMap<u32, Object>,
    next: u32,
}

impl Objects {
    /// Checks that there is room for another object.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn check_room(&self) -> Result<(), Errno> {
        if self.all.len() < MAX { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Adds an object. Returns its handle.
    pub fn insert(&mut self, object: Object) -> u32 {
        while self.all.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let handle = self.next;
        self.next = handle.wrapping_add(1);
        self.all.insert(handle, object);
        handle
    }

    /// Adds an object with the lowest handle, which is below this bound. Returns the handle.
    pub fn insert_below(&mut self, bound: u32, object: Object) -> Option<u32> {
        let handle = (0..bound).find(|handle| !self.all.contains_key(handle))?;
        self.all.insert(handle, object);
        Some(handle)
    }

    /// Changes an object.
    pub fn replace(&mut self, handle: u32, object: Object) {
        self.all.insert(handle, object);
    }

    /// Removes an object.
    pub fn remove(&mut self, handle: u32) {
        let _removed = self.all.remove(&handle);
    }

    /// Returns what `pick` makes of an object.
    ///
    /// # Errors
    /// `ENOENT` if there is no such object, `EINVAL` if it is of another kind, for which `pick`
    /// returns nothing (`rdma_lookup_get_uobject` in drivers/infiniband/core/rdma_core.c).
    pub fn get<T>(&self, handle: u32, pick: impl FnOnce(&Object) -> Option<T>) -> Result<T, Errno> {
        pick(self.all.get(&handle).ok_or(Errno::NOENT)?).ok_or(Errno::INVAL)
    }

    /// Returns a protection domain.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn pd(&self, handle: u32) -> Result<Pdn, Errno> {
        self.get(handle, |object| match object {
            Object::Pd(pdn) => Some(*pdn),
            _ => None,
        })
    }

    /// Returns a completion queue.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn cq(&self, handle: u32) -> Result<(Cqn, UarIndex), Errno> {
        self.get(handle, |object| match object {
            Object::Cq(cqn, uar) => Some((*cqn, *uar)),
            _ => None,
        })
    }

    /// Returns a queue pair.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn qp(&self, handle: u32) -> Result<Qp, Errno> {
        self.get(handle, |object| match object {
            Object::Qp(qp) => Some(*qp),
            _ => None,
        })
    }

    /// Returns a shared receive queue.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn srq(&self, handle: u32) -> Result<Srq, Errno> {
        self.get(handle, |object| match object {
            Object::Srq(srq) => Some(*srq),
            _ => None,
        })
    }

    /// Returns a memory region.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn region(&self, handle: u32) -> Result<Region, Errno> {
        self.get(handle, |object| match object {
            Object::Mr(region) => Some(*region),
            _ => None,
        })
    }

    /// Returns the number of bytes of device memory.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn device_memory(&self, handle: u32) -> Result<u64, Errno> {
        self.get(handle, |object| match object {
            Object::Dm(length) => Some(*length),
            _ => None,
        })
    }

    /// Returns the memory region with a key.
    #[must_use]
    pub fn region_of_key(&self, key: u32) -> Option<Region> {
        self.all.values().find_map(|object| match object {
            Object::Mr(region) if region.key.get() == key => Some(*region),
            _ => None,
        })
    }

    /// Returns an XRC domain.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn xrcd(&self, handle: u32) -> Result<Xrcdn, Errno> {
        self.get(handle, |object| match object {
            Object::Xrcd(xrcdn) => Some(*xrcdn),
            _ => None,
        })
    }

    /// Returns whether queues of this file use an XRC domain.
    #[must_use]
    pub fn uses_xrcd(&self, handle: u32) -> bool {
        self.all.values().any(|object| match object {
            Object::Srq(srq) => srq.xrcd == Some(handle),
            Object::Qp(qp) => qp.target.is_some_and(|target| target.handle == handle),
            _ => false,
        })
    }

    /// Returns whether an address handle belongs to a protection domain.
    #[must_use]
    pub fn has_address_handle(&self, pd: u32) -> bool {
        self.all.values().any(|object| matches!(object, Object::Ah(of) if *of == pd))
    }

    /// Takes all objects, in an order in which they can be destroyed.
    pub fn take_all(&mut self) -> Vec<Object> {
        let mut all: Vec<_> = std::mem::take(&mut self.all).into_values().collect();
        all.sort_by_key(|object| match object {
            Object::Ah(_) => 0,
            Object::Qp(_) => 1,
            Object::Mw(_) => 2,
            Object::Mr(_) => 3,
            Object::Srq(_) => 4,
            Object::Cq(..) => 5,
            Object::Dm(_) => 6,
            Object::Xrcd(_) => 7,
            Object::Pd(_) => 8,
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_other_kinds_are_invalid_and_unknown_ones_are_not_found() {
        let mut objects = Objects::default();
        let pd = objects.insert(Object::Pd(7.into()));
        let ah = objects.insert(Object::Ah(pd));
        assert_eq!(objects.pd(pd), Ok(7.into()));
        assert_eq!(objects.cq(pd), Err(Errno::INVAL));
        assert_eq!(objects.pd(99), Err(Errno::NOENT));
        assert!(objects.has_address_handle(pd));
        objects.remove(ah);
        assert!(!objects.has_address_handle(pd));
    }
}

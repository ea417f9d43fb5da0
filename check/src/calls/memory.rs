//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use crate::calls::pointers::originals;
use crate::calls::real::interpose;
use crate::checker::{here, inside, watch};
use crate::ffi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ZERO_BASED, IBV_REREG_MR_CHANGE_ACCESS,
    IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, ibv_context, ibv_dm, ibv_mr, ibv_pd,
};
use crate::model::ends::{self, Use};
use crate::model::regions::{Backing, Region};
use crate::model::tables::Tables;
use crate::stack::Place;

/// What the program has registered.
#[derive(Clone, Copy)]
struct Wanted {
    /// The first address that requests use.
    start: u64,
    length: usize,
    access: u32,
    backing: Backing,
}

impl Wanted {
    fn memory(address: *mut c_void, length: usize, access: u32) -> Self {
        if access & IBV_ACCESS_ZERO_BASED != 0 {
            // Devices differ in where such a region begins.
            let backing = Backing::Elsewhere;
            return Self { start: 0, length: usize::MAX, access, backing };
        }
        let backing = Backing::Memory(address as u64);
        Self { start: address as u64, length, access, backing }
    }

    /// Memory with addresses of the program's choice, which a region from zero on does not have.
    fn chosen(address: *mut c_void, length: usize, iova: u64, access: u32) -> Self {
        let wanted = Self::memory(address, length, access);
        let is_from_zero = access & IBV_ACCESS_ZERO_BASED != 0;
        Self { start: if is_from_zero { wanted.start } else { iova }, ..wanted }
    }
}

/// Notes a region.
fn registered(tables: &Tables, mr: *mut ibv_mr, wanted: &Wanted, place: Place) {
    if mr.is_null() {
        return;
    }
    // SAFETY: the library has just returned it.
    let (device, pd, key) = unsafe { ((*mr).context as usize, (*mr).pd as usize, (*mr).lkey) };
    let region = Region {
        device,
        domain: tables.base(pd),
        key,
        start: wanted.start,
        length: wanted.length as u64,
        access: wanted.access,
        backing: wanted.backing,
        made: place,
        users: AtomicU32::new(0),
        ended: Mutex::default(),
    };
    add(tables, mr, region);
}

fn add(tables: &Tables, mr: *mut ibv_mr, region: Region) {
    let Some(device) = tables.devices.get(region.device) else { return };
    let region = tables.regions.insert(mr as usize, region);
    device.regions.write().insert(region.key, region);
}

interpose! {
    /// Registers memory.
    fn ibv_reg_mr(pd: *mut ibv_pd, address: *mut c_void, length: usize, access: c_int)
        -> *mut ibv_mr, or ptr::null_mut(); |real| {
        let mr = real();
        let wanted = Wanted::memory(address, length, access.cast_unsigned());
        watch(|tables| registered(tables, mr, &wanted, here("ibv_reg_mr")));
        mr
    }

    /// Registers memory with addresses of the program's choice.
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, address: *mut c_void, length: usize, iova: u64,
        access: c_int) -> *mut ibv_mr, or ptr::null_mut(); |real| {
        let mr = real();
        let wanted = Wanted::chosen(address, length, iova, access.cast_unsigned());
        watch(|tables| registered(tables, mr, &wanted, here("ibv_reg_mr_iova")));
        mr
    }

    /// Registers memory with addresses of the program's choice and optional rights.
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, address: *mut c_void, length: usize, iova: u64,
        access: c_uint) -> *mut ibv_mr, or ptr::null_mut(); |real| {
        let mr = real();
        let wanted = Wanted::chosen(address, length, iova, access);
        watch(|tables| registered(tables, mr, &wanted, here("ibv_reg_mr")));
        mr
    }

    /// Registers memory of another device.
    fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, file: c_int,
        access: c_int) -> *mut ibv_mr, or ptr::null_mut(); |real| {
        let mr = real();
        let backing = Backing::Elsewhere;
        let wanted = Wanted { start: iova, length, access: access.cast_unsigned(), backing };
        watch(|tables| registered(tables, mr, &wanted, here("ibv_reg_dmabuf_mr")));
        mr
    }

    /// Imports a region of another process.
    fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr, or ptr::null_mut(); |real| {
        let mr = real();
        // The other process knows what it is.
        let backing = Backing::Elsewhere;
        let access = IBV_ACCESS_LOCAL_WRITE;
        let wanted = Wanted { start: 0, length: usize::MAX, access, backing };
        watch(|tables| registered(tables, mr, &wanted, here("ibv_import_mr")));
        mr
    }

    /// Gives back an imported region.
    fn ibv_unimport_mr(mr: *mut ibv_mr) -> (); |real| {
        watch(|tables| remove(tables, mr, here("ibv_unimport_mr")));
        real();
    }

    /// Deregisters a region.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int, or libc::ENOSYS; |real| {
        let removed = watch(|tables| {
            let place = here("ibv_dereg_mr");
            remove(tables, mr, place).map(|(region, found)| (region, found, place))
        });
        let error = real();
        watch(|tables| {
            let Some((region, found, place)) = removed.flatten() else { return };
            if error != 0 {
                if let Some(device) = tables.devices.get(region.device) {
                    device.regions.write().insert(region.key, Arc::clone(&region));
                    *region.ended.lock() = None;
                }
                tables.regions.restore(mr as usize, region);
            } else if let Some(found) = found {
                ends::ended_in_use(&region, &found, place);
            }
        });
        error
    }

    /// Changes a region.
    fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, address: *mut c_void,
        length: usize, access: c_int) -> c_int, or libc::ENOSYS; |real| {
        let place = watch(|_| here("ibv_rereg_mr")).unwrap_or_default();
        let removed = watch(|tables| remove(tables, mr, place)).flatten();
        let error = real();
        watch(|tables| {
            let Some((old, found)) = removed else { return };
            if error == 0 && let Some(found) = found {
                ends::ended_in_use(&old, &found, place);
            }
            let changed = if error == 0 { flags.cast_unsigned() } else { 0 };
            let has_access = changed & IBV_REREG_MR_CHANGE_ACCESS != 0;
            let access = if has_access { access.cast_unsigned() } else { old.access };
            let wanted = Wanted::memory(address, length, access);
            changed_region(tables, mr, &old, &wanted, changed, place);
        });
        error
    }
}

/// Notes a region with changes.
fn changed_region(
    tables: &Tables,
    mr: *mut ibv_mr,
    old: &Region,
    wanted: &Wanted,
    changed: u32,
    place: Place,
) {
    let has = |flag: u32| changed & flag != 0;
    // SAFETY: the region exists, because the call has succeeded or has left it as it was.
    let (pd, key) = unsafe { ((*mr).pd as usize, (*mr).lkey) };
    let is_from_zero = wanted.access & IBV_ACCESS_ZERO_BASED != 0;
    let moved = has(IBV_REREG_MR_CHANGE_TRANSLATION) || (changed != 0 && is_from_zero);
    add(
        tables,
        mr,
        Region {
            device: old.device,
            domain: if has(IBV_REREG_MR_CHANGE_PD) { tables.base(pd) } else { old.domain },
            key,
            start: if moved { wanted.start } else { old.start },
            length: if moved { wanted.length as u64 } else { old.length },
            access: wanted.access,
            backing: if moved { wanted.backing } else { old.backing },
            made: if changed == 0 { old.made } else { place },
            users: AtomicU32::new(0),
            ended: Mutex::default(),
        },
    );
}

/// Forgets a region before it ends. Returns what uses it.
fn remove(tables: &Tables, mr: *mut ibv_mr, place: Place) -> Option<(Arc<Region>, Option<Use>)> {
    let region = tables.regions.remove(mr as usize)?;
    let found = ends::find_use(tables, &region);
    if let Some(device) = tables.devices.get(region.device) {
        device.end(&region, place);
    }
    Some((region, found))
}

/// Registers memory of the adapter itself.
///
/// # Safety
/// The conditions of `ibv_reg_dm_mr` apply.
pub(super) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    memory: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the program has a live domain.
    let context = unsafe { (*pd).context };
    let original = originals(context).and_then(|originals| originals.reg_dm_mr);
    let Some(original) = original else { return ptr::null_mut() };
    // SAFETY: the program calls this function with these arguments.
    let mr = inside(|| unsafe { original(pd, memory, offset, length, access) });
    let wanted = Wanted { start: 0, length, access, backing: Backing::Elsewhere };
    watch(|tables| registered(tables, mr, &wanted, here("ibv_reg_dm_mr")));
    mr
}

/// Allocates a region without memory.
///
/// # Safety
/// The conditions of `ibv_alloc_null_mr` apply.
pub(super) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: the program has a live domain.
    let context: *mut ibv_context = unsafe { (*pd).context };
    let original = originals(context).and_then(|originals| originals.alloc_null_mr);
    let Some(original) = original else { return ptr::null_mut() };
    // SAFETY: the program calls this function with these arguments.
    let mr = inside(|| unsafe { original(pd) });
    let (access, backing) = (IBV_ACCESS_LOCAL_WRITE, Backing::Elsewhere);
    let wanted = Wanted { start: 0, length: usize::MAX, access, backing };
    watch(|tables| registered(tables, mr, &wanted, here("ibv_alloc_null_mr")));
    mr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_from_zero_on_does_not_begin_at_a_chosen_address() {
        let address = ptr::without_provenance_mut(0x1000);
        let wanted = Wanted::chosen(address, 64, 0x9000, IBV_ACCESS_ZERO_BASED);
        assert_eq!((wanted.start, wanted.length), (0, usize::MAX));
        let wanted = Wanted::chosen(address, 64, 0x9000, 0);
        assert_eq!((wanted.start, wanted.length), (0x9000, 64));
        assert_eq!(wanted.backing, Backing::Memory(0x1000));
    }
}

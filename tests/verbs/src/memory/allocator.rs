//! An allocator for parent domains that counts its calls.

use std::alloc::{self, Layout};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ffi;

/// The areas that are allocated now, by their addresses.
static AREAS: Mutex<Option<HashMap<usize, Area>>> = Mutex::new(None);

struct Area {
    layout: Layout,
    resource: u64,
}

fn areas() -> MutexGuard<'static, Option<HashMap<usize, Area>>> {
    AREAS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what the allocated areas are for, as numbers of `enum vrnicdv_res_type`, in ascending
/// order.
#[must_use]
pub fn resources() -> Vec<u64> {
    let mut all: Vec<u64> = areas().iter().flatten().map(|(_, area)| area.resource).collect();
    all.sort_unstable();
    all
}

/// Allocates memory, which is not zeroed.
pub(crate) unsafe extern "C" fn allocate(
    _domain: *mut ffi::ibv_pd,
    _context: *mut c_void,
    size: usize,
    alignment: usize,
    resource: u64,
) -> *mut c_void {
    let layout = Layout::from_size_align(size, alignment).ok().filter(|layout| layout.size() > 0);
    let Some(layout) = layout else { return std::ptr::null_mut() };
    // SAFETY: the size is not zero, and the memory has as many bytes.
    let memory = unsafe {
        let memory = alloc::alloc(layout);
        if !memory.is_null() {
            memory.write_bytes(0xff, size);
        }
        memory
    };
    areas().get_or_insert_default().insert(memory.addr(), Area { layout, resource });
    memory.cast()
}

/// Frees memory of [`allocate`].
pub(crate) unsafe extern "C" fn free(
    _domain: *mut ffi::ibv_pd,
    _context: *mut c_void,
    memory: *mut c_void,
    _resource: u64,
) {
    if let Some(area) = areas().as_mut().and_then(|areas| areas.remove(&memory.addr())) {
        // SAFETY: allocated above with this layout, and not freed before.
        unsafe { alloc::dealloc(memory.cast(), area.layout) };
    }
}

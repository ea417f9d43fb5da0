//! Protection domains.

use std::ffi::c_int;
use std::ptr;

use crate::calls::pointers::originals;
use crate::calls::real::interpose;
use crate::checker::{here, inside, watch};
use crate::ffi::{ibv_context, ibv_parent_domain_init_attr, ibv_pd};
use crate::model::ends;
use crate::model::objects::Domain;
use crate::model::tables::Tables;
use crate::stack::Place;

/// Notes a protection domain.
fn allocated(tables: &Tables, pd: *mut ibv_pd, base: usize, place: Place) {
    if pd.is_null() {
        return;
    }
    // SAFETY: the library has just returned it.
    let device = unsafe { (*pd).context } as usize;
    let base = if base == 0 { pd as usize } else { base };
    tables.domains.insert(pd as usize, Domain { device, made: place, base });
}

interpose! {
    /// Allocates a protection domain.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd, or ptr::null_mut(); |real| {
        let pd = real();
        watch(|tables| allocated(tables, pd, 0, here("ibv_alloc_pd")));
        pd
    }

    /// Imports a protection domain of another process.
    fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd,
        or ptr::null_mut(); |real| {
        let pd = real();
        watch(|tables| allocated(tables, pd, 0, here("ibv_import_pd")));
        pd
    }

    /// Gives back an imported protection domain.
    fn ibv_unimport_pd(pd: *mut ibv_pd) -> (); |real| {
        watch(|tables| tables.domains.remove(pd as usize));
        real();
    }

    /// Deallocates a protection domain.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int, or libc::ENOSYS; |real| {
        let address = pd as usize;
        let domain = watch(|tables| tables.domains.remove(address)).flatten();
        let error = real();
        if error != 0 && let Some(domain) = domain {
            watch(|tables| {
                if error == libc::EBUSY {
                    let user = user_of_domain(tables, address);
                    ends::refused("a protection domain", &user, domain.made, here("ibv_dealloc_pd"));
                }
                tables.domains.restore(address, domain);
            });
        }
        error
    }
}

/// Returns the name of an object of a domain.
fn user_of_domain(tables: &Tables, domain: usize) -> String {
    let pair = tables.pairs.all().into_iter().find(|pair| pair.domain == domain);
    let pair = pair.map(|pair| pair.name());
    let region = || {
        let region = tables.regions.all().into_iter().find(|region| region.domain == domain);
        region.map(|region| region.name())
    };
    let shared = || {
        let shared = tables.shared.all().into_iter().find(|queue| queue.domain == domain);
        shared.map(|shared| shared.name())
    };
    pair.or_else(region).or_else(shared).unwrap_or_else(|| "an object".to_owned())
}

/// Allocates a domain that stands for another one.
///
/// # Safety
/// The conditions of `ibv_alloc_parent_domain` apply.
pub(super) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let original = originals(context).and_then(|originals| originals.alloc_parent_domain);
    let Some(original) = original else { return ptr::null_mut() };
    // SAFETY: the program calls this function with these arguments.
    let pd = inside(|| unsafe { original(context, attr) });
    watch(|tables| {
        if pd.is_null() {
            return;
        }
        // SAFETY: the call has succeeded, so the attributes can be read.
        let base = tables.base(unsafe { (*attr).pd } as usize);
        allocated(tables, pd, base, here("ibv_alloc_parent_domain"));
    });
    pd
}

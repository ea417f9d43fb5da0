// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Protection domains, thread domains and parent domains. By a *thread domain* the user promises
//! that one thread at a time uses the objects made in it; a *parent domain* joins a thread domain
//! and a protection domain (ibv_alloc_td(3), ibv_alloc_parent_domain(3)). Queue pairs of such a
//! domain take no locks. A parent domain may also name an allocator of the program, from which the
//! memory of rings then comes.

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use rustix::io::Errno;
use vrnic_queues::allocator::{Allocator, Functions, Resource};
use vrnic_queues::heap::Shared;
use vrnic_queues::lock::Sharing;
use vrnic_queues::source::Source;

use super::bindings as c;
use super::context::Context;
use super::object::Object;
use super::{check, commands, pointer, status};

type Pd = Object<c::ibv_pd, Domain>;
type Td = Object<c::ibv_td, Shared<()>>;

/// Attributes of a parent domain that may be given.
const PARENT_ATTRIBUTES: u32 =
    c::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | c::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;

/// The functions of an allocator, as libibverbs declares them and without its type of domains.
type AllocFn = unsafe extern "C" fn(*mut c::ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
type FreeFn = unsafe extern "C" fn(*mut c::ibv_pd, *mut c_void, *mut c_void, u64);
type Alloc = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, u64);

/// The plugin's part of a protection domain. The counts tell whether a parent domain uses it.
enum Domain {
    /// A domain that the kernel knows.
    Plain(Shared<()>),
    /// A domain that only the plugin knows. It has the kernel's number of the domain `_of`.
    Parent { _of: Shared<()>, thread: Option<Shared<()>>, allocator: Option<Shared<Allocator>> },
}

/// Implements `alloc_pd`.
pub(super) unsafe extern "C" fn alloc(context: *mut c::ibv_context) -> *mut c::ibv_pd {
    pointer(Pd::begin().and_then(|pd| {
        let users = Shared::new(())?;
        // SAFETY: `context` is libibverbs' own, `pd` is ours.
        unsafe { commands::alloc_pd(context, pd.base()) }?;
        Ok(pd.complete(Domain::Plain(users)))
    }))
}

/// `import_pd`. The kernel checks the handle when it is used.
pub(super) unsafe extern "C" fn import(
    context: *mut c::ibv_context,
    handle: u32,
) -> *mut c::ibv_pd {
    pointer(Pd::begin().and_then(|pd| {
        let users = Shared::new(())?;
        // SAFETY: ours, and no code knows it yet.
        let public = unsafe { &mut *pd.base() };
        (public.context, public.handle) = (context, handle);
        Ok(pd.complete(Domain::Plain(users)))
    }))
}

/// Implements `unimport_pd`.
pub(super) unsafe extern "C" fn unimport(pd: *mut c::ibv_pd) {
    // SAFETY: made by `import`, and given up by the caller.
    unsafe { Pd::free(pd) };
}

/// `dealloc_pd`, of either kind.
pub(super) unsafe extern "C" fn dealloc(pd: *mut c::ibv_pd) -> c_int {
    // SAFETY: made by `alloc` or `alloc_parent`, live.
    let result = match unsafe { Pd::own(pd) } {
        None => Err(Errno::INVAL),
        Some(Domain::Parent { allocator: Some(used), .. }) if !used.is_unique() => Err(Errno::BUSY),
        Some(Domain::Parent { .. }) => Ok(()),
        Some(Domain::Plain(users)) if !users.is_unique() => Err(Errno::BUSY),
        // SAFETY: made by `alloc`, live.
        Some(Domain::Plain(_)) => check(unsafe { c::ibv_cmd_dealloc_pd(pd) }),
    };
    if result.is_ok() {
        // SAFETY: made by `alloc` or `alloc_parent`, live, and given up by the caller.
        unsafe { Pd::free(pd) };
    }
    status(result)
}

/// Implements `alloc_td`.
pub(super) unsafe extern "C" fn alloc_thread(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_td_init_attr,
) -> *mut c::ibv_td {
    // SAFETY: valid by libibverbs' promise.
    if unsafe { (*attr).comp_mask } != 0 {
        return pointer(Err(Errno::OPNOTSUPP));
    }
    pointer(Td::begin().and_then(|td| {
        let users = Shared::new(())?;
        // SAFETY: ours, and no code knows it yet.
        unsafe { (*td.base()).context = context };
        Ok(td.complete(users))
    }))
}

/// Implements `dealloc_td`.
pub(super) unsafe extern "C" fn dealloc_thread(td: *mut c::ibv_td) -> c_int {
    // SAFETY: made by `alloc_thread`, live.
    match unsafe { Td::own(td) } {
        Some(users) if users.is_unique() => {
            // SAFETY: made by `alloc_thread`, live, and given up by the caller.
            unsafe { Td::free(td) };
            0
        }
        Some(_) => status(Err(Errno::BUSY)),
        None => status(Err(Errno::INVAL)),
    }
}

/// Implements `alloc_parent_domain`.
pub(super) unsafe extern "C" fn alloc_parent(
    context: *mut c::ibv_context,
    attr: *mut c::ibv_parent_domain_init_attr,
) -> *mut c::ibv_pd {
    // SAFETY: valid by libibverbs' promise, and so are the objects that it names.
    pointer(unsafe { try_alloc_parent(context, &*attr) })
}

/// # Safety
/// The objects in `attr` must be live.
unsafe fn try_alloc_parent(
    context: *mut c::ibv_context,
    attr: &c::ibv_parent_domain_init_attr,
) -> Result<*mut c::ibv_pd, Errno> {
    if attr.comp_mask & !PARENT_ATTRIBUTES != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: the caller passes attributes whose protection domain is live.
    let of = match unsafe { Pd::own(attr.pd) } {
        Some(Domain::Plain(users)) => users.clone(),
        Some(Domain::Parent { .. }) | None => return Err(Errno::INVAL),
    };
    // SAFETY: the caller passes attributes whose thread domain is null or live.
    let thread = unsafe { Td::own(attr.td) }.cloned();
    let parent = Pd::begin()?;
    // SAFETY: `parent` is ours and unknown to others, the other live.
    unsafe {
        (*parent.base()).context = context;
        (*parent.base()).handle = (*attr.pd).handle;
    }
    // SAFETY: the program's functions and context, for the domain that is being made.
    let allocator = unsafe { allocator(attr, parent.base()) }?;
    Ok(parent.complete(Domain::Parent { _of: of, thread, allocator }))
}

/// Returns the allocator that the attributes of `parent` name.
///
/// # Safety
/// Functions in `attr` must obey ibv_alloc_parent_domain(3).
unsafe fn allocator(
    attr: &c::ibv_parent_domain_init_attr,
    parent: *mut c::ibv_pd,
) -> Result<Option<Shared<Allocator>>, Errno> {
    if attr.comp_mask & c::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS == 0 {
        return Ok(None);
    }
    let (Some(alloc), Some(free)) = (attr.alloc, attr.free) else { return Err(Errno::INVAL) };
    let context = match attr.comp_mask & c::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT {
        0 => ptr::null_mut(),
        _ => attr.pd_context,
    };
    // SAFETY: the functions differ from the declared ones only in the type of the domain's pointer.
    let functions = unsafe {
        Functions {
            alloc: mem::transmute::<AllocFn, Alloc>(alloc),
            free: mem::transmute::<FreeFn, Free>(free),
            domain: parent.cast(),
            context,
        }
    };
    // SAFETY: the caller's promise.
    Shared::new(unsafe { Allocator::new(functions) }).map(Some)
}

/// Returns the source of the memory of an object in a domain of a context.
///
/// # Safety
/// `pd` must be null or live.
pub(super) unsafe fn source(context: &Context, pd: *mut c::ibv_pd, resource: Resource) -> Source {
    // SAFETY: the caller passes null or a live protection domain.
    let source = match unsafe { Pd::own(pd) } {
        Some(Domain::Parent { allocator, .. }) => Source::new(allocator.clone(), resource),
        _ => Source::pages(resource),
    };
    source.of_file(context.ring_file.clone())
}

/// Returns how many threads may use the objects of a domain at a time.
///
/// # Safety
/// `pd` must be null or live.
pub(super) unsafe fn sharing(pd: *mut c::ibv_pd) -> Sharing {
    // SAFETY: the caller passes null or a live protection domain.
    match unsafe { Pd::own(pd) } {
        // SAFETY: this is the user's promise for objects in a thread domain.
        Some(Domain::Parent { thread: Some(_), .. }) => unsafe { Sharing::one_thread() },
        _ => Sharing::ANY,
    }
}

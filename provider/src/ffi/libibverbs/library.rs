// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The libibverbs that has loaded the plugin. A process may have more than one: the system's, and
//! copies that Python wheels bring.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::io::Write;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use vrnic_layouts::{LAYOUTS, Layout, Seen};

use crate::ffi::bindings as c;

/// The file name of the system's libibverbs.
pub(in crate::ffi) const SYSTEM: &str = "libibverbs.so.1";
/// Bytes of the name of a function that registers plugins.
const NAME: usize = 32;
/// Bytes of a `verbs_qp` of any layout.
const QP: usize = 512;
/// What a visitor of stack frames returns to go on, and to stop.
const NEXT: c_int = 0;
const STOP: c_int = 4;

// Of libgcc_s, which Rust's own backtraces use.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

/// A loaded libibverbs. It stays loaded.
pub(in crate::ffi) struct Library {
    handle: NonNull<c_void>,
    /// The number of its private interface.
    number: u32,
    /// The function that registers plugins.
    register: NonNull<c_void>,
    /// An address in it.
    inside: *const c_void,
}

/// The release, the number and the file of a library, for messages.
impl fmt::Display for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut room = [0; libc::PATH_MAX as usize];
        let path = self.path(&mut room).map_or(&b"libibverbs"[..], CStr::to_bytes);
        write!(formatter, "{} (", path.escape_ascii())?;
        match self.release() {
            Some(release) => write!(formatter, "rdma-core {release}")?,
            None => write!(formatter, "rdma-core of an unknown release")?,
        }
        write!(formatter, ", private interface {})", self.number)
    }
}

impl Library {
    /// Returns the library that has loaded the plugin: the innermost one that this call comes from.
    /// If none has, because the program is linked against the plugin, returns the system's.
    pub(in crate::ffi) fn of_caller() -> Option<Self> {
        let mut walk = Walk { tried: ptr::null(), found: None };
        // SAFETY: `visit` gets the struct, which lives until the call ends.
        unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
        walk.found.or_else(Self::of_system)
    }

    fn of_system() -> Option<Self> {
        // SAFETY: a name that ends.
        let handle =
            NonNull::new(unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) })?;
        let inside = find(handle, c"ibv_get_device_list")?;
        Self::open(&place(inside.as_ptr())?)
    }

    /// Opens the object at this place, if it is a libibverbs.
    fn open(place: &libc::Dl_info) -> Option<Self> {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: a name that ends, of a loaded object.
        let handle = NonNull::new(unsafe { libc::dlopen(place.dli_fname, flags) })?;
        let (number, register) = LAYOUTS.iter().map(|layout| layout.number).find_map(|number| {
            let mut name = [0; NAME];
            write!(&mut name[..], "verbs_register_driver_{number}").ok()?;
            Some((number, find(handle, CStr::from_bytes_until_nul(&name).ok()?)?))
        })?;
        let inside = register.as_ptr().cast_const();
        // The handle also finds functions of libraries that the object needs.
        let own = self::place(inside)?.dli_fbase == place.dli_fbase;
        own.then_some(Self { handle, number, register, inside })
    }

    /// Returns the address of a function that the library exports.
    pub(in crate::ffi) fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        find(self.handle, name)
    }

    /// Returns the layout of the library's private interface, if the plugin knows it.
    pub(in crate::ffi) fn layout(&self) -> Option<&'static Layout> {
        vrnic_layouts::find(&Seen {
            number: self.number,
            comp_mask: self.comp_mask()?,
            release: self.release(),
            exports: |name: &CStr| self.function(name).is_some(),
        })
    }

    /// Registers the plugin.
    ///
    /// # Safety
    /// The table and all that it names must live forever, and fit the layout of the library.
    pub(in crate::ffi) unsafe fn register(&self, ops: *const c::verbs_device_ops) {
        type Register = unsafe extern "C" fn(*const c::verbs_device_ops);
        // SAFETY: the function of this name has this type in every release.
        let register: Register = unsafe { std::mem::transmute(self.register) };
        // SAFETY: the caller's promise.
        unsafe { register(ops) };
    }

    /// Returns the offset of `comp_mask` in `verbs_qp`: the one where the library sees the flag of
    /// a queue pair with the newer interface.
    fn comp_mask(&self) -> Option<usize> {
        type Extended = unsafe extern "C" fn(*mut c::ibv_qp) -> *mut c::ibv_qp_ex;
        #[repr(C, align(8))]
        struct Room([u8; QP]);
        let function = self.function(c"ibv_qp_to_qp_ex")?;
        // SAFETY: the function of this name has this type in every release.
        let extended: Extended = unsafe { std::mem::transmute(function) };
        vrnic_layouts::find_comp_mask(|offset| {
            let mut qp = Room([0; QP]);
            let Some(mask) = qp.0.get_mut(offset..offset + 4) else { return false };
            mask.copy_from_slice(&c::VERBS_QP_EX.to_ne_bytes());
            // SAFETY: the function reads only the mask, which is in the room in every layout.
            !unsafe { extended((&raw mut qp).cast()) }.is_null()
        })
    }

    /// Returns the release in the name of the library's file.
    fn release(&self) -> Option<u32> {
        let mut room = [0; libc::PATH_MAX as usize];
        vrnic_layouts::release(self.path(&mut room)?.to_str().ok()?.rsplit('/').next()?)
    }

    /// Returns the file that the library was loaded from.
    fn path<'a>(&self, room: &'a mut [c_char; libc::PATH_MAX as usize]) -> Option<&'a CStr> {
        let name = place(self.inside)?.dli_fname;
        // SAFETY: null, or a text that lives as long as the library; the room is as long as the
        // call asks for.
        if name.is_null() || unsafe { libc::realpath(name, room.as_mut_ptr()) }.is_null() {
            return None;
        }
        // SAFETY: filled in by the call with a text that ends.
        Some(unsafe { CStr::from_ptr(room.as_ptr()) })
    }
}

/// Returns the address of a symbol that a handle finds.
fn find(handle: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: an open handle and a name that ends.
    NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
}

/// Returns which loaded object an address is in.
fn place(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; there is room for the answer.
    let known = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed, which is valid, and filled in by the call.
    known.then(|| unsafe { info.assume_init() })
}

/// The search for a libibverbs among the functions that have called each other.
struct Walk {
    /// The start of the object of the frame before.
    tried: *const c_void,
    found: Option<Library>,
}

/// Looks at a frame.
///
/// # Safety
/// `frame` must be one of `_Unwind_Backtrace`, and `walk` a [`Walk`] that no other code uses.
unsafe extern "C" fn visit(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the caller passes a frame and a walk.
    let (address, walk) = unsafe { (_Unwind_GetIP(frame), &mut *walk.cast::<Walk>()) };
    let Some(place) = place(ptr::without_provenance(address)) else { return NEXT };
    if walk.tried == place.dli_fbase.cast_const() {
        return NEXT;
    }
    walk.tried = place.dli_fbase;
    walk.found = Library::open(&place);
    if walk.found.is_some() { STOP } else { NEXT }
}

//! The functions of the library itself, which this library's functions call.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The version of the functions that all programs since 2007 use. Later functions have later ones,
/// and are found without a version.
const VERSION: &CStr = c"IBVERBS_1.1";
/// The file of the library.
const LIBRARY: &CStr = c"libibverbs.so.1";
/// The file of the library of the connection manager.
const MANAGER: &CStr = c"librdmacm.so.1";
/// How the names of the functions of that library begin.
const MANAGED: &[u8] = b"rdma_";
/// The begin of the names of copies of the library.
const FILE: &[u8] = b"/libibverbs-";

/// A function of the library.
#[derive(Debug)]
pub(super) struct Real {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Real {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the function's address; none if the library does not have it.
    pub(super) fn address(&self) -> Option<*mut c_void> {
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            address = find(self.name);
            self.address.store(address, Ordering::Release);
        }
        (!address.is_null()).then_some(address)
    }
}

/// Looks for a function in the libraries after this one, or else in the library itself, which a
/// program may have loaded for one of its own libraries only.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the names are strings that end with zero, and the handle is a special one.
    let next = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), VERSION.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    // SAFETY: as above.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    let is_managed = name.to_bytes().starts_with(MANAGED);
    let file = if is_managed { MANAGER } else { LIBRARY };
    // SAFETY: the name is a string that ends with zero. The library is loaded already, if somebody
    // calls its functions.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    let library = if library.is_null() && !is_managed { other_copy() } else { library };
    if library.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the handle is that of a library that stays loaded, because it is not closed.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Returns the handle of a copy of the library that has another name, such as that of a Python
/// wheel.
fn other_copy() -> *mut c_void {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a file that is loaded.
        let name = unsafe { (*info).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: the loader's names end with zero.
        let name = unsafe { CStr::from_ptr(name) };
        let is_copy = name.to_bytes().windows(FILE.len()).any(|part| part == FILE);
        if is_copy {
            // SAFETY: the caller passes this variable.
            unsafe { *found.cast::<Option<CString>>() = Some(name.to_owned()) };
        }
        c_int::from(is_copy)
    }
    let mut found: Option<CString> = None;
    // SAFETY: the function has the right type, and the variable lives until it has returned.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    let Some(name) = found else { return ptr::null_mut() };
    // SAFETY: the name is a string that ends with zero.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// Defines functions that stand in for those of the library. `or` is the result if the library does
/// not have the function. The name between bars calls it. A thread that is cancelled during this
/// call unwinds through the function.
///
/// What a library calls itself is not the program's. The functions after `within` call one that
/// does not look at them, and the one after it says whether the caller is such a library.
macro_rules! interpose {
    (within $inside:path, $is_inside:path; $($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty
        $(, or $missing:expr)?; |$real:ident| $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The conditions of the library's function with this name.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $result {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            static REAL: $crate::calls::real::Real = {
                let name = concat!(stringify!($name), "\0").as_bytes();
                match std::ffi::CStr::from_bytes_with_nul(name) {
                    Ok(name) => $crate::calls::real::Real::new(name),
                    Err(_) => unreachable!(),
                }
            };
            let Some(address) = REAL.address() else { return $($missing)? };
            // SAFETY: the library's function of this name has this type.
            let function: Function = unsafe { std::mem::transmute(address) };
            // SAFETY: the program calls this function with these arguments.
            let $real = || $inside(|| unsafe { function($($arg),*) });
            if $is_inside() {
                return $real();
            }
            $body
        }
    )*};
    ($($functions:tt)*) => {
        $crate::calls::real::interpose! {
            within $crate::checker::inside, $crate::checker::is_inside;
            $($functions)*
        }
    };
}

pub(super) use interpose;

// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The check for a known release of libibverbs. Its private ABI has changed more than once without
//! a new number, and a plugin built for one release would call wrong functions in another. So the
//! plugin does not register with a release that it does not know.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use super::bindings as c;
use super::environment::warn;

/// The releases that build.rs knows, separated by spaces.
const RELEASES: &str = env!("VRNIC_RDMA_CORE_RELEASES");

/// Room for the path of a file.
type Room = [c_char; libc::PATH_MAX as usize];

/// Returns whether the plugin is written for the release of the loaded libibverbs, and warns the
/// user if it is not.
pub(super) fn is_known() -> bool {
    let mut room = [0; libc::PATH_MAX as usize];
    let Some(path) = path(&mut room) else {
        warn(format_args!(
            "the release of libibverbs is unknown; this plugin is written for {RELEASES} and is not used"
        ));
        return false;
    };
    let release = release(path);
    let known = release.is_some_and(|release| RELEASES.split(' ').any(|known| known == release));
    if !known {
        warn(format_args!(
            "{} is rdma-core {}; this plugin is written for {RELEASES} and is not used",
            path.to_bytes().escape_ascii(),
            release.unwrap_or("of an unknown release"),
        ));
    }
    known
}

/// Returns the file that the library was loaded from.
fn path(room: &mut Room) -> Option<&CStr> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let function = c::verbs_register_driver_34 as *const c_void;
    // SAFETY: an address in the library, and room for the answer.
    if unsafe { libc::dladdr(function, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed, which is valid, and filled in by the call.
    let name = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: null, or a text that lives as long as the library; the room is as long as the call
    // asks for.
    if name.is_null() || unsafe { libc::realpath(name, room.as_mut_ptr()) }.is_null() {
        return None;
    }
    // SAFETY: filled in by the call with a text that ends.
    Some(unsafe { CStr::from_ptr(room.as_ptr()) })
}

/// Returns the release in a file name such as `libibverbs.so.1.14.56.1`. It follows the two numbers
/// of the library itself.
fn release(path: &CStr) -> Option<&str> {
    let name = path.to_str().ok()?.rsplit('/').next()?;
    name.strip_prefix("libibverbs.so.")?.splitn(3, '.').nth(2)
}

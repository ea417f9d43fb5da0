// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which libibverbs has loaded us. What it and its plugins say to each other changed more than once under one number of the
//! private ABI, so a plugin built for one release would call wrong functions in another: it stays out of those.

use std::ffi::{CStr, OsStr, c_void};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::bindings as c;

/// The releases that build.rs knows, with spaces between.
const RELEASES: &str = env!("VRNIC_RDMA_CORE_RELEASES");

/// Whether the library is of a release that this plugin is written for.
///
/// # Errors
/// What to tell the user when it is not.
pub(super) fn check() -> Result<(), String> {
    let Some(path) = path() else {
        return Err(format!("cannot tell of which release libibverbs is; written for {RELEASES}"));
    };
    match release(&path) {
        Some(release) if RELEASES.split(' ').any(|known| known == release) => Ok(()),
        release => Err(format!(
            "{} is rdma-core {}, this plugin is written for {RELEASES}: it stays unused. Build it for that release",
            path.display(),
            release.unwrap_or("of an unknown release"),
        )),
    }
}

/// The file that the library was loaded from.
fn path() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let function = c::verbs_register_driver_34 as *const c_void;
    // SAFETY: an address in the library, and room for the answer.
    if unsafe { libc::dladdr(function, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed, which is valid, and filled in by the call; the name lives as long as the library.
    let name = unsafe { info.assume_init().dli_fname.as_ref().map(|name| CStr::from_ptr(name)) }?;
    fs::canonicalize(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}

/// The release in a file name such as `libibverbs.so.1.14.56.1`, behind the two numbers of the library itself.
fn release(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix("libibverbs.so.")?.splitn(3, '.').nth(2)
}

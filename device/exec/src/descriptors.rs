//! The descriptors of the supervisor. Programs make it open files, and must not exhaust them: it
//! could then answer no program any more.

use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Number of descriptors that the supervisor keeps for what it opens for a moment.
const RESERVED: u64 = 64;

/// Checks that there is room for a file that is kept for a program. The kernel gives each file the
/// lowest free descriptor, so a high one shows that few are left.
///
/// # Errors
/// `EMFILE` if only the descriptors are left that the supervisor keeps for itself.
pub fn check_room(file: &impl AsRawFd) -> Result<(), Errno> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let number = u64::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    if number < limit.saturating_sub(RESERVED) { Ok(()) } else { Err(Errno::MFILE) }
}

//! Members of multicast groups (`ib_uverbs_attach_mcast` in
//! drivers/infiniband/core/uverbs_cmd.c).

use std::sync::Arc;

use rustix::io::Errno;

use crate::uverbs::file::OpenFile;
use crate::uverbs::write::Mcast;

/// Makes a queue pair a member of a group, which it may be already.
///
/// # Errors
/// The adapter's refusal.
pub fn attach(file: &mut OpenFile, command: &Mcast) -> Result<(), Errno> {
    let qpn = file.objects.qp(command.qp_handle)?.qpn;
    let device = Arc::clone(file.device());
    file.groups.join(device.driver(), qpn, (command.qp_handle, command.gid))
}

/// Ends a membership.
///
/// # Errors
/// `EINVAL` if there is none.
pub fn detach(file: &mut OpenFile, command: &Mcast) -> Result<(), Errno> {
    let qpn = file.objects.qp(command.qp_handle)?.qpn;
    let device = Arc::clone(file.device());
    file.groups.leave(device.driver(), qpn, (command.qp_handle, command.gid))
}

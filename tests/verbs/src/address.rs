//! Address handles and multicast groups.

use std::io;
use std::mem;
use std::ptr::NonNull;

use super::memory::Pd;
use super::qp::Qp;
use super::{check, ffi, object};
use crate::model::Path;

/// An address handle.
pub struct Ah {
    pub(crate) raw: NonNull<ffi::ibv_ah>,
}

impl Ah {
    /// Creates an address handle.
    pub fn new(pd: &Pd, path: &Path) -> io::Result<Self> {
        // SAFETY: all-zero is valid for this struct of integers.
        let mut attr: ffi::ibv_ah_attr = unsafe { mem::zeroed() };
        attr.is_global = 1;
        attr.port_num = path.port;
        attr.grh = ffi::ibv_global_route {
            dgid: ffi::ibv_gid { raw: path.dgid },
            flow_label: path.flow_label,
            sgid_index: path.sgid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        };
        // SAFETY: the PD is live and the struct complete.
        Ok(Self { raw: object(unsafe { ffi::ibv_create_ah(pd.raw(), &raw mut attr) })? })
    }
}

impl Qp {
    /// Attaches the QP to a multicast group.
    pub fn attach(&self, gid: [u8; 16], lid: u16) -> io::Result<()> {
        let gid = ffi::ibv_gid { raw: gid };
        // SAFETY: the handle is live.
        check(unsafe { ffi::ibv_attach_mcast(self.raw(), &raw const gid, lid) })
    }

    /// Detaches the QP from the group.
    pub fn detach(&self, gid: [u8; 16], lid: u16) -> io::Result<()> {
        let gid = ffi::ibv_gid { raw: gid };
        // SAFETY: the handle is live.
        check(unsafe { ffi::ibv_detach_mcast(self.raw(), &raw const gid, lid) })
    }
}

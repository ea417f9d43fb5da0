//! Address handles and multicast groups.

use std::io;

use super::objects::Objects;
use crate::rpc::calls::{AttachMcast, CreateAh, DetachMcast};
use crate::verbs::address::Ah;

impl Objects {
    pub(super) fn create_ah(&mut self, c: &CreateAh) -> io::Result<u32> {
        let ah = Ah::new(self.pds.get(c.pd)?, &c.path)?;
        let handle = self.handle();
        self.ahs.insert(handle, ah);
        Ok(handle)
    }

    pub(super) fn destroy_ah(&mut self, ah: u32) -> io::Result<()> {
        self.ahs.destroy(ah, Ah::destroy)
    }

    pub(super) fn attach_mcast(&mut self, c: &AttachMcast) -> io::Result<()> {
        self.qps.get(c.qp)?.attach(c.gid, c.lid)
    }

    pub(super) fn detach_mcast(&mut self, c: &DetachMcast) -> io::Result<()> {
        self.qps.get(c.qp)?.detach(c.gid, c.lid)
    }
}

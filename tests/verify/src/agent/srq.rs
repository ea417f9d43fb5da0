//! Shared receive queues.

use std::io;

use super::objects::Objects;
use super::work::posted;
use crate::model::SrqAttr;
use crate::rpc::calls::{CreateSrq, ModifySrq, PostSrqRecv, Posted, SrqInfo};
use crate::verbs::srq::Srq;

impl Objects {
    pub(super) fn create_srq(&mut self, c: &CreateSrq) -> io::Result<SrqInfo> {
        let (srq, attr) = Srq::new(self.pds.get(c.pd)?, c.max_wr, c.max_sge)?;
        let handle = self.handle();
        self.srqs.insert(handle, srq);
        Ok(SrqInfo { srq: handle, attr })
    }

    pub(super) fn modify_srq(&mut self, c: &ModifySrq) -> io::Result<()> {
        self.srqs.get(c.srq)?.modify(c.max_wr, c.limit)
    }

    pub(super) fn query_srq(&mut self, srq: u32) -> io::Result<SrqAttr> {
        self.srqs.get(srq)?.query()
    }

    pub(super) fn destroy_srq(&mut self, srq: u32) -> io::Result<()> {
        self.srqs.destroy(srq, Srq::destroy)
    }

    pub(super) fn post_srq_recv(&mut self, c: &PostSrqRecv) -> io::Result<Posted> {
        let result = self.srqs.get(c.srq)?.post_recv(&c.requests);
        Ok(posted(c.requests.len(), result))
    }
}

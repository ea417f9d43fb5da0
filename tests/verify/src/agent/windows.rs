//! Windows and other operations on memory.

use std::io;

use super::objects::Objects;
use crate::model::Wc;
use crate::rpc::calls::{
    AllocMw, BindMw, MrInfo, MwInfo, PostBind, PostCommand, RegMrFaulting, ReregMr,
};
use crate::verbs::answer::{self, Wanted};
use crate::verbs::window::Mw;

impl Objects {
    pub(super) fn rereg_mr(&mut self, c: &ReregMr) -> io::Result<MrInfo> {
        let pd = c.pd.map(|pd| self.pds.get(pd)).transpose()?;
        let mr = self.mrs.get(c.mr)?;
        mr.change(pd, &c.change)?;
        let (lkey, rkey) = mr.keys();
        Ok(MrInfo { mr: c.mr, lkey, rkey })
    }

    pub(super) fn alloc_mw(&mut self, c: &AllocMw) -> io::Result<MwInfo> {
        let mw = Mw::new(self.pds.get(c.pd)?, c.mw_type)?;
        let rkey = mw.key();
        let handle = self.handle();
        self.mws.insert(handle, mw);
        Ok(MwInfo { mw: handle, rkey })
    }

    pub(super) fn dealloc_mw(&mut self, mw: u32) -> io::Result<()> {
        self.mws.destroy(mw, Mw::destroy)
    }

    pub(super) fn bind_mw(&mut self, c: &BindMw) -> io::Result<u32> {
        let mr = c.mr.map(|mr| self.mrs.get(mr)).transpose()?;
        let qp = self.qps.get(c.qp)?;
        let mw = self.mws.get_mut(c.mw)?;
        mw.bind(qp, mr, &c.bind)?;
        Ok(mw.key())
    }

    pub(super) fn post_bind(&mut self, c: &PostBind) -> io::Result<()> {
        let mr = c.mr.map(|mr| self.mrs.get(mr)).transpose()?;
        self.qps.get(c.qp)?.post_bind(self.mws.get(c.mw)?, c.rkey, mr, &c.bind)
    }

    pub(super) fn reg_mr_faulting(
        &mut self,
        c: &RegMrFaulting,
    ) -> io::Result<(Option<i32>, Vec<Wc>)> {
        let PostBind { qp, mw, rkey, bind, .. } = &c.window;
        let (pd, cq, qp) = (self.pds.get(c.pd)?, self.cqs.get(c.cq)?, self.qps.get(*qp)?);
        let mw = self.mws.get(*mw)?;
        let wanted = Wanted { addr: c.addr, length: c.length, access: c.access };
        let mut bound = Vec::new();
        let error = answer::reg_mr(pd, wanted, || {
            qp.post_bind_to_key(mw, *rkey, c.guess, bind)?;
            while bound.is_empty() {
                bound = cq.poll(1)?;
            }
            Ok(())
        })?;
        Ok((error.raw_os_error(), bound))
    }

    pub(super) fn post_command(&mut self, c: &PostCommand) -> io::Result<()> {
        self.qps.get(c.qp)?.post_command(&c.command)
    }
}

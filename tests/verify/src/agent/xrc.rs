//! XRC: domains, the targets and shared receive queues in them.

use std::fs::File;
use std::io;

use super::objects::Objects;
use crate::rpc::calls::{CreateXrcSrq, OpenTarget, OpenXrcd, QpInfo, SrqInfo, XrcSrqInfo};
use crate::verbs::qp::Qp;
use crate::verbs::srq::Srq;
use crate::verbs::xrc::Xrcd;

impl Objects {
    pub(super) fn open_xrcd(&mut self, c: &OpenXrcd) -> io::Result<u32> {
        let file = c.path.as_ref().map(File::open).transpose()?;
        let xrcd = Xrcd::open(self.context()?, file.as_ref(), c.flags)?;
        let handle = self.handle();
        self.xrcds.insert(handle, xrcd);
        Ok(handle)
    }

    pub(super) fn close_xrcd(&mut self, xrcd: u32) -> io::Result<()> {
        self.xrcds.destroy(xrcd, Xrcd::close)
    }

    pub(super) fn create_xrc_srq(&mut self, c: &CreateXrcSrq) -> io::Result<XrcSrqInfo> {
        let (pd, xrcd, cq) = (self.pds.get(c.pd)?, self.xrcds.get(c.xrcd)?, self.cqs.get(c.cq)?);
        let (srq, attr) = Srq::for_xrc(pd, xrcd, cq, (c.max_wr, c.max_sge))?;
        let number = srq.number()?;
        let handle = self.handle();
        self.srqs.insert(handle, srq);
        Ok(XrcSrqInfo { number, info: SrqInfo { srq: handle, attr } })
    }

    pub(super) fn create_target(&mut self, xrcd: u32) -> io::Result<QpInfo> {
        let target = Qp::target(self.xrcds.get(xrcd)?)?;
        Ok(self.keep_target(target))
    }

    pub(super) fn open_target(&mut self, c: &OpenTarget) -> io::Result<QpInfo> {
        let target = Qp::open(self.xrcds.get(c.xrcd)?, c.qpn)?;
        Ok(self.keep_target(target))
    }

    fn keep_target(&mut self, target: Qp) -> QpInfo {
        let qpn = target.number();
        let qp = self.handle();
        self.qps.insert(qp, target);
        QpInfo { qp, qpn, cap: crate::model::QpCap::default() }
    }
}

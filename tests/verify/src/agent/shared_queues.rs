//! Shared receive queues; XRC domains, the targets and shared receive queues in them.

use std::fs::File;
use std::io;

use super::calls::calls;
use super::objects::Objects;
use super::queue_pairs::posted;
use crate::rpc::values::{Posted, QpInfo, SrqInfo, XrcSrqInfo};
use vrnic_verbs::model::{QpCap, RecvWr, SrqAttr};
use vrnic_verbs::qp::Qp;
use vrnic_verbs::srq::Srq;
use vrnic_verbs::xrc::Xrcd;

calls! { SharedQueues:
    /// Creates an SRQ.
    fn create_srq(&mut self, pd: u32, max_wr: u32, max_sge: u32) -> io::Result<SrqInfo> {
        let (srq, attr) = Srq::new(self.pds.get(pd)?, max_wr, max_sge)?;
        Ok(SrqInfo { srq: self.srqs.add(srq), attr })
    }

    /// Changes the size of an SRQ, or arms its limit event.
    fn modify_srq(&mut self, srq: u32, max_wr: Option<u32>, limit: Option<u32>) -> io::Result<()> {
        self.srqs.get(srq)?.modify(max_wr, limit)
    }

    /// Reads the attributes of an SRQ.
    fn query_srq(&mut self, srq: u32) -> io::Result<SrqAttr> {
        self.srqs.get(srq)?.query()
    }

    /// Destroys an SRQ.
    fn destroy_srq(&mut self, srq: u32) -> io::Result<()> {
        self.srqs.destroy(srq, Srq::destroy)
    }

    /// Posts receive work requests to an SRQ.
    fn post_srq_recv(&mut self, srq: u32, requests: Vec<RecvWr>) -> io::Result<Posted> {
        Ok(posted(requests.len(), self.srqs.get(srq)?.post_recv(&requests)))
    }

    /// Opens the XRC domain of a file, or an unnamed one; `flags` are `O_CREAT` and `O_EXCL`.
    fn open_xrcd(&mut self, path: Option<String>, flags: i32) -> io::Result<u32> {
        let file = path.map(File::open).transpose()?;
        let xrcd = Xrcd::open(self.context()?, file.as_ref(), flags)?;
        Ok(self.xrcds.add(xrcd))
    }

    /// Closes an XRC domain.
    fn close_xrcd(&mut self, xrcd: u32) -> io::Result<()> {
        self.xrcds.destroy(xrcd, Xrcd::close)
    }

    /// Creates an XRC SRQ whose completions go to `cq`.
    fn create_xrc_srq(
        &mut self,
        pd: u32,
        xrcd: u32,
        cq: u32,
        max_wr: u32,
        max_sge: u32,
    ) -> io::Result<XrcSrqInfo> {
        let (pd, xrcd, cq) = (self.pds.get(pd)?, self.xrcds.get(xrcd)?, self.cqs.get(cq)?);
        let (srq, attr) = Srq::for_xrc(pd, xrcd, cq, (max_wr, max_sge))?;
        let number = srq.number()?;
        Ok(XrcSrqInfo { number, info: SrqInfo { srq: self.srqs.add(srq), attr } })
    }

    /// Creates an XRC target.
    fn create_target(&mut self, xrcd: u32) -> io::Result<QpInfo> {
        let target = Qp::target(self.xrcds.get(xrcd)?)?;
        Ok(self.keep_qp(target, QpCap::default()))
    }

    /// Opens an XRC target by its number.
    fn open_target(&mut self, xrcd: u32, qpn: u32) -> io::Result<QpInfo> {
        let target = Qp::open(self.xrcds.get(xrcd)?, qpn)?;
        Ok(self.keep_qp(target, QpCap::default()))
    }
}

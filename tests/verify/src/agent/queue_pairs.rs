//! Queue pairs: their attributes, destinations and work requests.

use std::io;

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::{CreateQp, Posted, QpInfo};
use vrnic_verbs::address::Ah;
use vrnic_verbs::model::{Path, QpAttr, QpCap, RecvWr, SendWr};
use vrnic_verbs::qp::{InitAttr, Qp};
use vrnic_verbs::wr::Refused;

calls! { QueuePairs:
    /// Creates a QP.
    fn create_qp(&mut self, wanted: CreateQp) -> io::Result<QpInfo> {
        let CreateQp { qp_type, cap, signal_all, .. } = wanted;
        let (pd, srq) = (self.pds.get(wanted.pd)?, wanted.srq.map(|srq| self.srqs.get(srq)));
        let (send_cq, recv_cq) = (self.cqs.get(wanted.send_cq)?, self.cqs.get(wanted.recv_cq)?);
        let srq = srq.transpose()?;
        let init = InitAttr { pd, send_cq, recv_cq, srq, qp_type, cap, signal_all };
        let plain = || match wanted.max_headers {
            0 if wanted.block_loopback => Qp::unlooped(&init),
            0 if self.extended => Qp::extended(&init),
            0 => Qp::new(&init),
            length => Qp::raw_packets(&init, length, self.extended),
        };
        #[cfg(feature = "vrnic")]
        let (qp, cap) = wanted.extras.map_or_else(plain, |extras| Qp::direct(&init, &extras))?;
        #[cfg(not(feature = "vrnic"))]
        let (qp, cap) = plain()?;
        Ok(self.keep_qp(qp, cap))
    }

    /// Sets attributes of a QP.
    fn modify_qp(&mut self, qp: u32, attr: QpAttr, mask: u32) -> io::Result<()> {
        self.qps.get(qp)?.modify(&attr, mask)
    }

    /// Reads the attributes of a QP.
    fn query_qp(&mut self, qp: u32) -> io::Result<QpAttr> {
        self.qps.get(qp)?.query()
    }

    /// Limits the rate of a QP in kbit/s; 0 is no limit.
    fn limit_qp_rate(&mut self, qp: u32, kilobits: u32, burst: u32) -> io::Result<()> {
        self.qps.get(qp)?.limit_rate(kilobits, burst)
    }

    /// Queries attributes of a QP that the device does not have.
    fn query_qp_absent(&mut self, qp: u32) -> io::Result<Vec<u64>> {
        self.qps.get(qp)?.query_absent()
    }

    /// Destroys a QP.
    fn destroy_qp(&mut self, qp: u32) -> io::Result<()> {
        self.qps.destroy(qp, Qp::destroy)
    }

    /// Creates an address handle.
    fn create_ah(&mut self, pd: u32, path: Path) -> io::Result<u32> {
        let ah = Ah::new(self.pds.get(pd)?, &path)?;
        Ok(self.ahs.add(ah))
    }

    /// Destroys an address handle.
    fn destroy_ah(&mut self, ah: u32) -> io::Result<()> {
        self.ahs.destroy(ah, Ah::destroy)
    }

    /// Attaches a QP to a multicast group.
    fn attach_mcast(&mut self, qp: u32, gid: [u8; 16], lid: u16) -> io::Result<()> {
        self.qps.get(qp)?.attach(gid, lid)
    }

    /// Detaches a QP from a multicast group.
    fn detach_mcast(&mut self, qp: u32, gid: [u8; 16], lid: u16) -> io::Result<()> {
        self.qps.get(qp)?.detach(gid, lid)
    }

    /// Posts send work requests. After that, zeroes a range (buffer, offset, length) if there is
    /// one.
    fn post_send(
        &mut self,
        qp: u32,
        requests: Vec<SendWr>,
        wipe: Option<(u32, u64, u64)>,
    ) -> io::Result<Posted> {
        let paths = requests.iter().map(|r| r.to.map(|to| self.ahs.get(to.ah)).transpose());
        let paths = paths.collect::<io::Result<Vec<_>>>()?;
        let result = self.qps.get(qp)?.post_send_to(&requests, &paths);
        if let Some((buffer, offset, len)) = wipe {
            self.buffers.get(buffer)?.write(offset as usize, &vec![0; len as usize])?;
        }
        Ok(posted(requests.len(), result))
    }

    /// Posts send work requests together with the extended interface, or aborts them at the end. If
    /// this fails, none is posted.
    fn post_together(&mut self, qp: u32, requests: Vec<SendWr>, abort: bool) -> io::Result<()> {
        self.qps.get(qp)?.post_together(&requests, abort)
    }

    /// Posts receive work requests.
    fn post_recv(&mut self, qp: u32, requests: Vec<RecvWr>) -> io::Result<Posted> {
        Ok(posted(requests.len(), self.qps.get(qp)?.post_recv(&requests)))
    }
}

impl Objects {
    pub(super) fn keep_qp(&mut self, made: Qp, cap: QpCap) -> QpInfo {
        let qpn = made.number();
        QpInfo { qp: self.qps.add(made), qpn, cap }
    }
}

pub(super) fn posted(all: usize, result: Result<(), Refused>) -> Posted {
    match result {
        Ok(()) => Posted { count: all, refused: None },
        Err(r) => Posted { count: r.posted, refused: Some((&r.error).into()) },
    }
}

//! Work queues, tables of them, and QPs that spread frames over them.

use std::io;

use super::calls::calls;
use super::objects::Objects;
use super::queue_pairs::posted;
use crate::rpc::values::{Posted, QpInfo, WqInfo};
use vrnic_verbs::model::{Hash, QpCap, RecvWr, WqAttr, WqChange};
use vrnic_verbs::qp::Qp;
use vrnic_verbs::rss::{Wq, WqTable};

calls! { WorkQueues:
    /// Creates a work queue.
    fn create_wq(&mut self, pd: u32, cq: u32, attr: WqAttr) -> io::Result<WqInfo> {
        let (wq, max_wr) = Wq::new(self.pds.get(pd)?, self.cqs.get(cq)?, &attr)?;
        let number = wq.number();
        Ok(WqInfo { wq: self.wqs.add(wq), number, max_wr })
    }

    /// Changes a work queue.
    fn modify_wq(&mut self, wq: u32, change: WqChange) -> io::Result<()> {
        self.wqs.get(wq)?.modify(&change)
    }

    /// Posts receive work requests to a work queue.
    fn post_wq_recv(&mut self, wq: u32, requests: Vec<RecvWr>) -> io::Result<Posted> {
        Ok(posted(requests.len(), self.wqs.get(wq)?.post_recv(&requests)))
    }

    /// Destroys a work queue.
    fn destroy_wq(&mut self, wq: u32) -> io::Result<()> {
        self.wqs.destroy(wq, Wq::destroy)
    }

    /// Creates a table with this log2 of its number of entries, in which work queues take turns.
    fn create_wq_table(&mut self, log_entries: u32, wqs: Vec<u32>) -> io::Result<u32> {
        let queues = wqs.iter().map(|wq| self.wqs.get(*wq)).collect::<io::Result<Vec<_>>>()?;
        let table = WqTable::new(self.context()?, log_entries, &queues)?;
        Ok(self.wq_tables.add(table))
    }

    /// Destroys a table.
    fn destroy_wq_table(&mut self, table: u32) -> io::Result<()> {
        self.wq_tables.destroy(table, WqTable::destroy)
    }

    /// Creates a QP of this type that spreads frames over the work queues of a table.
    fn create_spreading_qp(
        &mut self,
        pd: u32,
        table: u32,
        qp_type: u32,
        hash: Hash,
    ) -> io::Result<QpInfo> {
        let (pd, table) = (self.pds.get(pd)?, self.wq_tables.get(table)?);
        let qp = Qp::spreading(pd, table, qp_type, &hash)?;
        Ok(self.keep_qp(qp, QpCap::default()))
    }
}

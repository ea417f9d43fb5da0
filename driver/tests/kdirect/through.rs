// SPDX-License-Identifier: GPL-2.0
//! Requests whose blocks the disk's controller moves through the window. Everything of a request is
//! posted at once, and one request of the disk moves all of its blocks.

use kernel::prelude::*;

use crate::{
    desk::{Desk, Pair},
    kclient::work::Op,
    message::Ask,
    ranges,
};

impl Desk<'_> {
    /// Gives the peer blocks of the disk: WRITEs that wait for the bytes that the controller
    /// stores, the answer behind them, and then TRANSFERs, which give the blocks back.
    pub(crate) fn give_through(&mut self, ask: &Ask, length: usize) -> Result {
        let count = self.post_rdma(ask, length, true)?;
        self.post_answer()?;
        self.post_transfers(ask, count)?;
        if let Err(error) = self.use_disk_through(ask, length) {
            pr_info!("the disk has refused a read: {error:?}\n");
            self.ranges.put()?;
        }
        // If a WRITE fails, the TRANSFERs behind it are flushed. So the WRITEs are looked at first.
        self.rdma_succeeds(count)?;
        self.transfers_succeed(count)
    }

    /// Takes blocks from the peer: READs, TRANSFERs, which end when the controller has read all
    /// bytes, and the answer behind them.
    pub(crate) fn take_through(&mut self, ask: &Ask, length: usize) -> Result {
        let count = self.post_rdma(ask, length, false)?;
        self.post_transfers(ask, count)?;
        self.post_answer()?;
        // The controller must not read what has not arrived.
        self.rdma_succeeds(count)?;
        if let Err(error) = self.use_disk_through(ask, length) {
            pr_info!("the disk has refused a write: {error:?}\n");
            self.ranges.put()?;
        }
        self.transfers_succeed(count)
    }

    /// Arms the ranges and posts a WRITE or READ of each. Returns their number.
    fn post_rdma(&mut self, ask: &Ask, length: usize, write: bool) -> Result<usize> {
        let count = length.div_ceil(ranges::LENGTH);
        for nth in 0..count {
            let (part, remote) = self.place(ask, nth, length)?;
            self.ranges.arm(nth, &part, write, ask.limit_ms.get())?;
            let data = self.ranges.part(nth, part.len())?;
            let Pair { rdma, .. } = self.pairs.get(nth).ok_or(EINVAL)?;
            let op = if write { Op::Write(remote) } else { Op::Read(remote) };
            self.connection.rdma_in_range(rdma, data, &op)?;
        }
        Ok(count)
    }

    fn rdma_succeeds(&self, count: usize) -> Result {
        for Pair { rdma, .. } in self.pairs.iter().take(count) {
            self.success(rdma)?;
        }
        Ok(())
    }

    fn post_transfers(&self, ask: &Ask, count: usize) -> Result {
        for (nth, Pair { transfer, .. }) in self.pairs.iter().enumerate().take(count) {
            self.ranges.post(nth, transfer, ask.limit_ms.get())?;
        }
        Ok(())
    }

    fn transfers_succeed(&self, count: usize) -> Result {
        for Pair { transfer, .. } in self.pairs.iter().take(count) {
            self.success(transfer)?;
        }
        Ok(())
    }

    /// Has the disk move the bytes of all ranges, unless the peer does not want that.
    fn use_disk_through(&self, ask: &Ask, length: usize) -> Result {
        if ask.silent.get() != 0 {
            return Ok(());
        }
        let count = length.div_ceil(ranges::LENGTH);
        let (sector, write) = (ask.sector.get(), ask.write.get() != 0);
        self.disks.transfer_through(
            write,
            sector,
            length,
            self.connection,
            self.ranges.first(count),
        )
    }
}

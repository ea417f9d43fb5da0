// SPDX-License-Identifier: GPL-2.0
//! Requests whose blocks the disk's controller moves through the window. Everything of a request is
//! posted at once, and one request of the disk moves all of its blocks.

use kernel::prelude::*;

use crate::{
    desk::{Desk, Pair},
    kclient::{mapped::Part, remote::Remote, work::Op},
    message::Ask,
    ranges::{self, End},
};

impl Desk<'_> {
    /// Gives the peer blocks of the disk: WRITEs that wait for the bytes that the controller
    /// stores, the answer after them, and then TRANSFERs, which give the blocks back.
    pub(crate) fn give_through(&mut self, ask: &Ask, length: usize) -> Result {
        let count = self.post_rdma(ask, length, true)?;
        self.post_answer()?;
        self.post_transfers(ask, count)?;
        let moved = self.use_disk_through(ask, length, self.ranges.first(count));
        self.end_unless_moved(moved, "read")?;
        // If a WRITE fails, the TRANSFERs after it are flushed. So the WRITEs are looked at first.
        self.rdma_succeeds(count)?;
        self.transfers_succeed(count)
    }

    /// Takes blocks from the peer: READs, TRANSFERs, which end when the controller has read all
    /// bytes, and the answer after them.
    pub(crate) fn take_through(&mut self, ask: &Ask, length: usize) -> Result {
        let count = self.post_rdma(ask, length, false)?;
        self.post_transfers(ask, count)?;
        self.post_answer()?;
        // The controller must not read what has not arrived.
        self.rdma_succeeds(count)?;
        let moved = self.use_disk_through(ask, length, self.ranges.first(count));
        self.end_unless_moved(moved, "write")?;
        self.transfers_succeed(count)
    }

    /// Takes blocks from the peer through one range: a READ whose pieces all have the same place,
    /// and one request of the disk that has the page of the range once for each piece. So each
    /// piece arrives when the controller has read the piece before it, and the controller, which
    /// begins at once, waits for pieces that have not arrived.
    pub(crate) fn take_by_one_range(&mut self, ask: &Ask, length: usize) -> Result {
        let remote = Remote::new(ask.address.get(), ask.key.get());
        self.ranges.arm(0, &Part::new(&self.packets, 0..length)?, false, ask.limit_ms.get())?;
        let mut pieces = KVec::new();
        for at in (0..length).step_by(ranges::LENGTH) {
            pieces.push(self.ranges.part(0, ranges::LENGTH.min(length - at))?, GFP_KERNEL)?;
        }
        let Pair { rdma, .. } = self.pairs.first().ok_or(EINVAL)?;
        self.connection.rdma_in_ranges(rdma, &pieces, &Op::Read(remote))?;
        self.post_transfers(ask, 1)?;
        self.post_answer()?;
        let ends = self.ranges.first_again(pieces.len())?;
        let moved = self.use_disk_through(ask, length, &ends);
        self.end_unless_moved(moved, "write")?;
        self.rdma_succeeds(1)?;
        self.transfers_succeed(1)
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
            self.connection.rdma_in_ranges(rdma, &[data], &op)?;
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

    /// Has the disk move all bytes through the ranges of `ends`, one after the other, unless the
    /// peer does not want that.
    fn use_disk_through(&self, ask: &Ask, length: usize, ends: &[End]) -> Result {
        if ask.silent.get() != 0 {
            return Ok(());
        }
        let (sector, write) = (ask.sector.get(), ask.write.get() != 0);
        self.disks.transfer_through(write, sector, length, self.connection, ends)
    }
}

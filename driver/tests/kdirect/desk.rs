// SPDX-License-Identifier: GPL-2.0
//! The objects of one connection of the server: its ranges or marks, packet memory and requests.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        atomic::{Atomic, Relaxed},
    },
    time::Delta,
};

use crate::{
    MAX_LENGTH, RANGES,
    disk::{Disks, SECTOR},
    kclient::{
        connection::Connection,
        mapped::{Mapped, Part},
        memory::Memory,
        remote::Remote,
        request::{Outcome, Request},
        work::Op,
    },
    message::{Answer, Ask},
    module_parameters,
    ranges::{self, Ranges, Way},
};

/// The time between two looks for a reason to stop.
const POLL_INTERVAL: Delta = Delta::from_millis(100);

/// The TRANSFER of a range, or AWAIT, and the WRITE or READ next to it.
pub(crate) struct Pair {
    pub(crate) transfer: Arc<Request>,
    pub(crate) rdma: Arc<Request>,
}

/// The objects of a connection.
pub(crate) struct Desk<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) disks: &'a Disks,
    /// True when the server has to end.
    stopping: &'a Atomic<bool>,
    pub(crate) ranges: Ranges<'a>,
    /// Memory of the adapter, with a place for each range.
    pub(crate) packets: Arc<Mapped>,
    pub(crate) pairs: KVec<Pair>,
    receive: Arc<Request>,
    answer: Arc<Request>,
    incoming: Arc<Mapped>,
    outgoing: Arc<Mapped>,
}

impl<'a> Desk<'a> {
    /// Makes all of it, and posts the first receive.
    pub(crate) fn new(
        connection: &'a Connection,
        disks: &'a Disks,
        stopping: &'a Atomic<bool>,
    ) -> Result<Self> {
        let mut pairs = KVec::new();
        for _ in 0..RANGES {
            let pair = Pair { transfer: Request::new()?, rdma: Request::new()? };
            pairs.push(pair, GFP_KERNEL)?;
        }
        let way = Way::from_number(module_parameters::way.value())?;
        let this = Self {
            connection,
            disks,
            stopping,
            ranges: Ranges::get(connection, RANGES, way)?,
            packets: connection.map(Memory::of_device(connection.device(), MAX_LENGTH)?)?,
            pairs,
            receive: Request::new()?,
            answer: Request::new()?,
            incoming: connection.map(Memory::new(1, PAGE_SIZE)?)?,
            outgoing: connection.map(Memory::new(1, PAGE_SIZE)?)?,
        };
        this.await_ask()?;
        Ok(this)
    }

    fn await_ask(&self) -> Result {
        self.connection.receive(&self.receive, &self.incoming, size_of::<Ask>())
    }

    /// Answers requests until the peer or the server ends, or something fails. When the peer has
    /// ended the ranges are given back here, else with the connection.
    pub(crate) fn serve(mut self) -> Result {
        loop {
            match self.success(&self.receive) {
                Err(ECONNRESET) => return self.ranges.put(),
                received => received?,
            };
            // Otherwise a client that never pauses would prevent the end of the server.
            if self.stopping.load(Relaxed) {
                return Err(ESHUTDOWN);
            }
            let ask: Ask = self.incoming.load()?;
            self.await_ask()?;
            let length = ask.length.get() as usize;
            if length == 0 || length > MAX_LENGTH || length % SECTOR != 0 {
                pr_err!("a peer has asked for {length} bytes, which is not allowed\n");
                return Err(EINVAL);
            }
            self.outgoing.store(&Answer { sector: ask.sector })?;
            match (ask.write.get(), self.ranges.way()) {
                (0, Way::Window | Way::OneRange) => self.give_through(&ask, length)?,
                (_, Way::OneRange) => self.take_by_one_range(&ask, length)?,
                (_, Way::Window) => self.take_through(&ask, length)?,
                (0, _) => self.give(&ask, length)?,
                _ => self.take(&ask, length)?,
            }
            self.success(&self.answer)?;
        }
    }

    /// Gives the peer blocks of the disk. Everything is posted before the disk begins: the data and
    /// the answer leave by themselves.
    fn give(&mut self, ask: &Ask, length: usize) -> Result {
        let count = length.div_ceil(ranges::LENGTH);
        for (nth, pair) in self.pairs.iter().take(count).enumerate() {
            let (part, remote) = self.place(ask, nth, length)?;
            self.ranges.arm(nth, &part, true, ask.limit_ms.get())?;
            self.ranges.post(nth, &pair.transfer, ask.limit_ms.get())?;
            self.connection.rdma(&pair.rdma, &part, &Op::Write(remote))?;
        }
        self.post_answer()?;
        let moved = self.use_disk(ask, 0..length, 0..count);
        self.end_unless_moved(moved, "read")?;
        for pair in self.pairs.iter().take(count) {
            self.success(&pair.transfer)?;
            self.success(&pair.rdma)?;
        }
        Ok(())
    }

    /// Takes blocks from the peer to the disk, one range after the other: the ranges of READs open
    /// in their order, each when the transfer before it has ended.
    fn take(&mut self, ask: &Ask, length: usize) -> Result {
        let count = length.div_ceil(ranges::LENGTH);
        for nth in 0..count {
            let (part, remote) = self.place(ask, nth, length)?;
            let Pair { transfer, rdma } = self.pairs.get(nth).ok_or(EINVAL)?;
            self.ranges.arm(nth, &part, false, ask.limit_ms.get())?;
            self.connection.rdma(rdma, &part, &Op::Read(remote))?;
            self.ranges.post(nth, transfer, ask.limit_ms.get())?;
            if nth + 1 == count {
                self.post_answer()?;
            }
            self.success(rdma)?;
            let at = nth * ranges::LENGTH;
            let moved = match self.ranges.wait_open(nth)? {
                true => self.use_disk(ask, at..at + part.len(), nth..nth + 1),
                false => Ok(()),
            };
            self.end_unless_moved(moved, "write")?;
            let Pair { transfer, .. } = self.pairs.get(nth).ok_or(EINVAL)?;
            self.success(transfer)?;
        }
        Ok(())
    }

    /// Returns the memory of a range, of `length` bytes in all, and its place at the peer.
    pub(crate) fn place(&self, ask: &Ask, nth: usize, length: usize) -> Result<(Part, Remote)> {
        let at = nth * ranges::LENGTH;
        let part = Part::new(&self.packets, at..length.min(at + ranges::LENGTH))?;
        // CAST: to the wider type.
        let address = ask.address.get().checked_add(at as u64).ok_or(EINVAL)?;
        Ok((part, Remote::new(address, ask.key.get())))
    }

    pub(crate) fn post_answer(&self) -> Result {
        self.connection.send(&self.answer, &self.outgoing, size_of::<Answer>(), None)
    }

    /// Moves bytes of packet memory from or to the disk, unless the peer does not want that.
    fn use_disk(
        &self,
        ask: &Ask,
        bytes: core::ops::Range<usize>,
        ranges: core::ops::Range<usize>,
    ) -> Result {
        if ask.silent.get() != 0 {
            return Ok(());
        }
        // CAST: to the wider type.
        let sectors = (bytes.start / SECTOR) as u64;
        let sector = ask.sector.get().checked_add(sectors).ok_or(EINVAL)?;
        let ends = self.ranges.first(ranges.end).get(ranges.start..).ok_or(EINVAL)?;
        let write = ask.write.get() != 0;
        self.disks.first().transfer(write, sector, (&self.packets, bytes), self.connection, ends)
    }

    /// Ends the transfers of all ranges if the disk has refused this request.
    pub(crate) fn end_unless_moved(&mut self, moved: Result, request: &str) -> Result {
        let Err(error) = moved else { return Ok(()) };
        pr_info!("the disk has refused a {request}: {error:?}\n");
        self.ranges.put()
    }

    /// Waits for a request, which must have succeeded. The log says how one has failed.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` if the peer has ended, `ESHUTDOWN` if the server has to.
    pub(crate) fn success(&self, request: &Request) -> Result<Outcome> {
        loop {
            match self.connection.wait(request, POLL_INTERVAL) {
                Err(ETIMEDOUT) if self.stopping.load(Relaxed) => return Err(ESHUTDOWN),
                Err(ETIMEDOUT) => {}
                Ok(outcome) => {
                    return outcome.success().inspect_err(|_| {
                        pr_info!("vendor error of the device: {}\n", outcome.vendor);
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

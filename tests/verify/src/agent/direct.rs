//! Verbs that only vrnic has, and actions against its adapter and driver.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::{CqInfo, MrInfo};
use crate::rpc::vrnic::{RegMrFaulting, Scribbled, Target};
use vrnic_verbs::adapter::answer::{self, Wanted};
use vrnic_verbs::adapter::direct::CommandWr;
use vrnic_verbs::adapter::hostile::{self, Mapping, Named};
use vrnic_verbs::adapter::transfer::Range;
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::Mr;
use vrnic_verbs::model::{Bind, Wc};
use vrnic_verbs::prng::Rng;

/// Number of words that are written into a mapping before the clock is read.
const BURST: usize = 64;

calls! { Direct:
    /// Creates a CQ. If `any_vector` is true, the driver chooses its vector. Also returns the
    /// vector.
    fn create_cq_direct(
        &mut self,
        cqe: i32,
        channel: Option<u32>,
        vector: i32,
        any_vector: bool,
    ) -> io::Result<(CqInfo, u32)> {
        let channel = channel.map(|h| self.channels.get(h)).transpose()?;
        let (cq, vector) = Cq::direct(self.context()?, cqe, channel, (vector, any_vector))?;
        Ok((self.keep_cq(cq), vector))
    }

    /// Creates a holding CQ, which reports when at most `few` entries are free.
    fn create_holding_cq(&mut self, cqe: i32, few: u32) -> io::Result<CqInfo> {
        let cq = Cq::holding(self.context()?, cqe, few)?;
        Ok(self.keep_cq(cq))
    }

    /// Returns the state of a CQ, by the numbers of `enum vrnicdv_cq_state`.
    fn cq_state(&mut self, cq: u32) -> io::Result<u32> {
        Ok(self.cqs.get(cq)?.state()? as u32)
    }

    /// Registers a range of the agent's addresses with these flags.
    fn reg_direct(
        &mut self,
        pd: u32,
        addr: u64,
        length: u64,
        access: u32,
        mem_flags: u32,
    ) -> io::Result<MrInfo> {
        let mr = Mr::direct(self.pds.get(pd)?, addr..addr + length, access, mem_flags)?;
        Ok(self.keep_mr(mr))
    }

    /// Posts a binding of a window of any type with these flags. Returns its key.
    fn bind_direct(
        &mut self,
        qp: u32,
        mw: u32,
        mr: u32,
        bind: Bind,
        mem_flags: u32,
    ) -> io::Result<u32> {
        let mw = self.mws.get_mut(mw)?;
        mw.bind_direct(self.qps.get(qp)?, Some(self.mrs.get(mr)?), &bind, mem_flags)?;
        Ok(mw.key())
    }

    /// Posts a command.
    fn post_command(&mut self, qp: u32, command: CommandWr) -> io::Result<()> {
        self.qps.get(qp)?.post_command(&command)
    }

    /// Allocates an address range for a QP.
    fn alloc_range(&mut self, qp: u32) -> io::Result<u32> {
        let range = Range::new(self.qps.get(qp)?)?;
        Ok(self.ranges.add(range))
    }

    /// Arms, queries, ends and frees an address range that was not allocated for this QP. Returns
    /// the errno of each call.
    fn misuse_range(&mut self, qp: u32, number: u32, dm: u32) -> io::Result<Vec<Option<i32>>> {
        let (range, memory) = (Range::forged(self.qps.get(qp)?, number), self.dms.get(dm)?);
        let results = [
            range.arm(memory, (0, 1), 1000, (true, true)),
            range.state().map(drop),
            range.done(),
            range.destroy().map_err(|(_, error)| error),
        ];
        let errno = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        Ok(results.map(errno).into())
    }

    /// Frees an address range.
    fn free_range(&mut self, range: u32) -> io::Result<()> {
        self.ranges.destroy(range, Range::destroy)
    }

    /// Arms an address range for a mapped transfer of the first bytes of device memory, for a WRITE
    /// or a READ.
    fn arm_range(
        &mut self,
        range: u32,
        dm: u32,
        length: u32,
        limit_ms: u32,
        write: bool,
    ) -> io::Result<()> {
        let memory = self.dms.get(dm)?;
        self.ranges.get(range)?.arm(memory, (0, length), limit_ms, (write, true))
    }

    /// Posts the request that completes when the transfer of an address range ends.
    fn post_transfer(&mut self, range: u32, wr_id: u64) -> io::Result<()> {
        self.ranges.get(range)?.post(wr_id)
    }

    /// Reports that the bytes of an address range have been moved.
    fn range_done(&mut self, range: u32) -> io::Result<()> {
        self.ranges.get(range)?.done()
    }

    /// Returns the number of bytes moved, the two valid bits, and the cause of a failure.
    fn query_range(&mut self, range: u32) -> io::Result<(u32, u8, u8, u8)> {
        let state = self.ranges.get(range)?.state()?;
        Ok((state.count, state.pci_valid, state.adapter_valid, state.failure))
    }

    /// Posts an AWAIT.
    fn post_await(
        &mut self,
        qp: u32,
        wr_id: u64,
        word: u32,
        mark: u32,
        limit_ms: u32,
    ) -> io::Result<()> {
        self.qps.get(qp)?.post_await(wr_id, (word, mark), limit_ms)
    }

    /// Stores a mark.
    fn mark(&mut self, qp: u32, word: u32, mark: u32, failed: bool) -> io::Result<()> {
        self.qps.get(qp)?.mark(word, mark, failed)
    }

    /// Registers a range whose key a program can guess, with a response that cannot be written.
    /// When the kernel begins to write the response, posts a binding to the guessed key. Returns
    /// the errno, and the completions of the binding.
    fn reg_mr_faulting(&mut self, c: RegMrFaulting) -> io::Result<(Option<i32>, Vec<Wc>)> {
        let (pd, cq, qp) = (self.pds.get(c.pd)?, self.cqs.get(c.cq)?, self.qps.get(c.qp)?);
        let mw = self.mws.get(c.mw)?;
        let wanted = Wanted { addr: c.addr, length: c.length, access: c.access };
        let mut bound = Vec::new();
        let error = answer::reg_mr(pd, wanted, || {
            qp.post_bind_to_key(mw, c.rkey, c.guess, &c.bind)?;
            while bound.is_empty() {
                bound = cq.poll(1)?;
            }
            Ok(())
        })?;
        Ok((error.raw_os_error(), bound))
    }

    /// Resizes a CQ with a command whose response cannot be written. Returns the errno.
    fn resize_cq_faulting(
        &mut self,
        cq: u32,
        buffer: u32,
        log_size: u8,
    ) -> io::Result<Option<i32>> {
        let (cq, ring) = (self.cqs.get(cq)?, self.buffers.get(buffer)?.addr());
        Ok(answer::resize_cq(cq, 1 << log_size, ring, log_size)?.raw_os_error())
    }

    /// Writes garbage into the memory that the process shares with the device, for some time.
    fn scribble(&mut self, target: Target, seed: u64, duration_ms: u64) -> io::Result<Scribbled> {
        let all = hostile::mappings()?;
        let wanted = |m: &&Mapping| m.device || target != Target::Device;
        let targets: Vec<_> = all.iter().filter(wanted).cloned().collect();
        if !targets.iter().any(|m| m.device == (target == Target::Device)) {
            return Err(io::Error::other(format!("nothing to scribble on among {all:?}")));
        }
        let mut rng = Rng::new(seed);
        let deadline = Instant::now() + Duration::from_millis(duration_ms);
        let mut stores = 0;
        if target == Target::Entries {
            stores += hostile::plausible(&targets, &self.named()?, &mut rng);
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        while Instant::now() < deadline {
            for mapping in &targets {
                mapping.scribble(&mut rng, BURST);
                stores += BURST as u64;
            }
        }
        let bytes = targets.iter().map(|m| m.length() as u64).sum();
        Ok(Scribbled { mappings: targets.len() as u64, bytes, stores })
    }
}

impl Objects {
    /// Returns every buffer with every key.
    fn named(&self) -> io::Result<Vec<Named>> {
        let keys: Vec<_> = self.mrs.iter().map(|(_, mr)| mr.keys()).collect();
        let addrs = self.buffers.iter().map(|(_, buffer)| buffer.addr());
        let named: Vec<_> = addrs
            .flat_map(|addr| keys.iter().map(move |(key, _)| Named { addr, key: *key }))
            .collect();
        match named.is_empty() {
            true => Err(io::Error::other("no region for entries to name")),
            false => Ok(named),
        }
    }
}

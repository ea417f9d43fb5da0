//! Loops that keep the device busy: a round trip to the suite for each step would leave it idle.

use std::io;
use std::time::{Duration, Instant};

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::{CasIncrement, FetchAddMany, Stream};
use vrnic_verbs::cq::Cq;
use vrnic_verbs::model::{Op, RecvWr, SendWr, Sge, Status, Wc, flags};

/// Waits for completions until the deadline.
fn completions(cq: &Cq, deadline: Instant) -> io::Result<Vec<Wc>> {
    loop {
        let done = cq.poll(usize::MAX)?;
        if let Some(bad) = done.iter().find(|wc| wc.status != Status::Success as u32) {
            return Err(io::Error::other(format!(
                "work request {} completed with status {} (vendor error {:#x})",
                bad.wr_id, bad.status, bad.vendor_err
            )));
        }
        if !done.is_empty() {
            return Ok(done);
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other("no completion in time"));
        }
        std::thread::yield_now();
    }
}

/// Fails unless the completion is of this work request.
fn in_order(wc: &Wc, wr_id: u64) -> io::Result<()> {
    if wc.wr_id != wr_id {
        let text = format!("work request {} completed, not {wr_id}", wc.wr_id);
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Sizes that a CQ is to have, one after the other, over and over.
struct Sizes<'a> {
    sizes: std::iter::Cycle<std::slice::Iter<'a, i32>>,
    taken: u64,
}

impl<'a> Sizes<'a> {
    fn new(sizes: &'a [i32]) -> Self {
        Self { sizes: sizes.iter().cycle(), taken: 0 }
    }

    /// The CQ stays as it is.
    fn none() -> Self {
        Self::new(&[])
    }

    /// Gives the CQ its next size.
    fn next(&mut self, cq: &Cq) -> io::Result<()> {
        let Some(size) = self.sizes.next() else { return Ok(()) };
        cq.resize(*size).map_err(|e| io::Error::other(format!("resize to {size}: {e}")))?;
        self.taken += 1;
        Ok(())
    }
}

/// The deadline `ms` from now.
fn after(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

calls! { Streams:
    /// Posts copies of one signaled work request, `depth` at a time, until `count` completed.
    fn stream(&mut self, stream: Stream) -> io::Result<()> {
        self.run_stream(&stream, &mut Sizes::none()).map(|_| ())
    }

    /// Streams as `stream` does, and resizes the CQ after each poll that found something;
    /// answers how often.
    fn stream_resizing(&mut self, stream: Stream, sizes: Vec<i32>) -> io::Result<u64> {
        self.run_stream(&stream, &mut Sizes::new(&sizes))
    }

    /// Keeps `depth` receives without buffers posted and takes `count` completions, resizing
    /// the CQ as `stream_resizing` does; answers how often.
    fn receive_resizing(
        &mut self,
        qp: u32,
        cq: u32,
        count: u64,
        depth: u64,
        sizes: Vec<i32>,
        timeout_ms: u64,
    ) -> io::Result<u64> {
        let (qp, cq) = (self.qps.get(qp)?, self.cqs.get(cq)?);
        let deadline = after(timeout_ms);
        let mut sizes = Sizes::new(&sizes);
        let (mut posted, mut completed) = (0, 0);
        while completed < count {
            while posted < count && posted - completed < depth {
                qp.post_recv(&[RecvWr { wr_id: posted, sges: Vec::new() }]).map_err(|r| r.error)?;
                posted += 1;
            }
            for wc in completions(cq, deadline)? {
                in_order(&wc, completed)?;
                completed += 1;
            }
            sizes.next(cq)?;
        }
        Ok(sizes.taken)
    }

    /// Fetch-and-adds `count` times, `depth` at a time; answers the values fetched.
    fn fetch_add_many(&mut self, work: FetchAddMany) -> io::Result<Vec<u64>> {
        let (qp, cq) = (self.qps.get(work.qp)?, self.cqs.get(work.cq)?);
        let buffer = self.buffers.get(work.buffer)?;
        let deadline = after(work.timeout_ms);
        let (mut posted, mut fetched) = (0, Vec::new());
        while (fetched.len() as u64) < work.count {
            while posted < work.count && posted - (fetched.len() as u64) < work.depth {
                let addr = buffer.addr() + posted % work.depth * 8;
                qp.post_send(&[SendWr {
                    wr_id: posted,
                    op: Op::FetchAdd,
                    flags: flags::SIGNALED,
                    sges: vec![Sge { addr, length: 8, lkey: work.lkey }],
                    raddr: work.raddr,
                    rkey: work.rkey,
                    compare_add: work.add,
                    ..SendWr::default()
                }])
                .map_err(|r| r.error)?;
                posted += 1;
            }
            for wc in completions(cq, deadline)? {
                let mut word = [0; 8];
                buffer.read((wc.wr_id % work.depth * 8) as usize, &mut word)?;
                fetched.push(u64::from_le_bytes(word));
            }
        }
        Ok(fetched)
    }

    /// Increments a word by compare-and-swap until `count` swaps succeeded; answers the
    /// attempts.
    fn cas_increment(&mut self, work: CasIncrement) -> io::Result<u64> {
        let (qp, cq) = (self.qps.get(work.qp)?, self.cqs.get(work.cq)?);
        let buffer = self.buffers.get(work.buffer)?;
        let deadline = after(work.timeout_ms);
        let (mut expected, mut swapped, mut attempts) = (0, 0, 0);
        while swapped < work.count {
            qp.post_send(&[SendWr {
                wr_id: attempts,
                op: Op::CmpSwp,
                flags: flags::SIGNALED,
                sges: vec![Sge { addr: buffer.addr(), length: 8, lkey: work.lkey }],
                raddr: work.raddr,
                rkey: work.rkey,
                compare_add: expected,
                swap: expected.wrapping_add(1),
                ..SendWr::default()
            }])
            .map_err(|r| r.error)?;
            completions(cq, deadline)?;
            attempts += 1;
            let mut word = [0; 8];
            buffer.read(0, &mut word)?;
            let found = u64::from_le_bytes(word);
            if found == expected {
                swapped += 1;
                expected = expected.wrapping_add(1);
            } else {
                expected = found;
            }
        }
        Ok(attempts)
    }
}

impl Objects {
    fn run_stream(&mut self, c: &Stream, sizes: &mut Sizes<'_>) -> io::Result<u64> {
        let (qp, cq) = (self.qps.get(c.qp)?, self.cqs.get(c.cq)?);
        let deadline = after(c.timeout_ms);
        let (mut posted, mut completed) = (0, 0);
        while completed < c.count {
            while posted < c.count && posted - completed < c.depth {
                let mut request = c.request.clone();
                request.wr_id = posted;
                for sge in &mut request.sges {
                    sge.addr += posted % c.depth * c.step;
                }
                qp.post_send(&[request]).map_err(|r| r.error)?;
                posted += 1;
            }
            for wc in completions(cq, deadline)? {
                in_order(&wc, completed)?;
                completed += 1;
            }
            sizes.next(cq)?;
        }
        Ok(sizes.taken)
    }
}

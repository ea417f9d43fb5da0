//! Loops that keep the device busy. A round trip to the suite for each step would leave it idle.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::Stream;
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::model::{RecvWr, SendWr, Status, Wc};
use vrnic_verbs::wr::Refused;

/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(60);

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

/// Fails unless this is the completion of this work request.
fn in_order(wc: &Wc, wr_id: u64) -> io::Result<()> {
    if wc.wr_id != wr_id {
        let text = format!("work request {} completed, not {wr_id}", wc.wr_id);
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Sizes that a CQ gets one after the other, again and again.
struct Sizes<'a> {
    sizes: std::iter::Cycle<std::slice::Iter<'a, i32>>,
    taken: u64,
}

impl<'a> Sizes<'a> {
    fn new(sizes: &'a [i32]) -> Self {
        Self { sizes: sizes.iter().cycle(), taken: 0 }
    }

    /// Resizes the CQ to its next size.
    fn next(&mut self, cq: &Cq) -> io::Result<()> {
        let Some(size) = self.sizes.next() else { return Ok(()) };
        cq.resize(*size).map_err(|e| io::Error::other(format!("resize to {size}: {e}")))?;
        self.taken += 1;
        Ok(())
    }
}

calls! { Streams:
    /// Posts copies of one signaled work request, `depth` at a time, until `count` have completed.
    fn stream(&mut self, stream: Stream) -> io::Result<()> {
        self.run_stream(&stream, |_, _| Ok(()))
    }

    /// Like `stream`, and resizes the CQ after each poll that has found completions. Returns the
    /// number of resizes.
    fn stream_resizing(&mut self, stream: Stream, sizes: Vec<i32>) -> io::Result<u64> {
        let mut sizes = Sizes::new(&sizes);
        self.run_stream(&stream, |cq, _| sizes.next(cq))?;
        Ok(sizes.taken)
    }

    /// Keeps `depth` receives without buffers posted and takes `count` completions. Resizes the CQ
    /// as `stream_resizing` does. Returns the number of resizes.
    fn receive_resizing(
        &mut self,
        qp: u32,
        cq: u32,
        count: u64,
        depth: u64,
        sizes: Vec<i32>,
    ) -> io::Result<u64> {
        let (qp, cq) = (self.qps.get(qp)?, self.cqs.get(cq)?);
        let mut sizes = Sizes::new(&sizes);
        let receive = |wr_id| qp.post_recv(&[RecvWr { wr_id, sges: Vec::new() }]);
        keep_posted((count, depth), cq, receive, |_| sizes.next(cq))?;
        Ok(sizes.taken)
    }

    /// Streams fetch-and-adds, whose results are written to `buffer`. Returns the fetched values.
    fn fetch_add_many(&mut self, stream: Stream, buffer: u32) -> io::Result<Vec<u64>> {
        let (buffer, mut fetched) = (self.buffers.get(buffer)?, Vec::new());
        self.run_stream(&stream, |_, done| {
            for wr_id in done {
                fetched.push(word(buffer, wr_id % stream.depth * stream.step)?);
            }
            Ok(())
        })?;
        Ok(fetched)
    }

    /// Increments a word with copies of a compare-and-swap, whose results are written to `buffer`,
    /// until `count` swaps have succeeded. Returns the number of attempts.
    fn cas_increment(&mut self, work: Stream, buffer: u32) -> io::Result<u64> {
        let (qp, cq) = (self.qps.get(work.qp)?, self.cqs.get(work.cq)?);
        let buffer = self.buffers.get(buffer)?;
        let deadline = Instant::now() + TIMEOUT;
        let (mut expected, mut swapped, mut attempts) = (0u64, 0, 0);
        while swapped < work.count {
            let (compare_add, swap) = (expected, expected.wrapping_add(1));
            let request = SendWr { wr_id: attempts, compare_add, swap, ..work.request.clone() };
            qp.post_send(&[request]).map_err(|r| r.error)?;
            completions(cq, deadline)?;
            attempts += 1;
            let found = word(buffer, 0)?;
            swapped += u64::from(found == expected);
            expected = if found == expected { swap } else { found };
        }
        Ok(attempts)
    }
}

impl Objects {
    /// Runs a stream. Calls `polled` after each poll that has found completions, with the CQ and
    /// the requests that have completed.
    fn run_stream(
        &self,
        c: &Stream,
        mut polled: impl FnMut(&Cq, Range<u64>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (qp, cq) = (self.qps.get(c.qp)?, self.cqs.get(c.cq)?);
        let send = |wr_id: u64| {
            let mut request = SendWr { wr_id, ..c.request.clone() };
            request.sges.iter_mut().for_each(|sge| sge.addr += wr_id % c.depth * c.step);
            qp.post_send(&[request])
        };
        keep_posted((c.count, c.depth), cq, send, |done| polled(cq, done))
    }
}

/// Keeps `depth` work requests posted until `count` have completed in order. Calls `polled` after
/// each poll that has found completions, with the requests that have completed.
fn keep_posted(
    (count, depth): (u64, u64),
    cq: &Cq,
    post: impl Fn(u64) -> Result<(), Refused>,
    mut polled: impl FnMut(Range<u64>) -> io::Result<()>,
) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let (mut posted, mut completed) = (0, 0);
    while completed < count {
        while posted < count && posted - completed < depth {
            post(posted).map_err(|refused| refused.error)?;
            posted += 1;
        }
        let first = completed;
        for wc in completions(cq, deadline)? {
            in_order(&wc, completed)?;
            completed += 1;
        }
        polled(first..completed)?;
    }
    Ok(())
}

/// Returns the word at an offset of a buffer.
fn word(buffer: &Buffer, offset: u64) -> io::Result<u64> {
    let mut word = [0; 8];
    buffer.read(offset as usize, &mut word)?;
    Ok(u64::from_le_bytes(word))
}

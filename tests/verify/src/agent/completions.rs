//! Completion queues, completion channels and asynchronous events.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::CqInfo;
use vrnic_verbs::cq::{Channel, Cq};
use vrnic_verbs::model::{AsyncEvent, Wc};

calls! { Completions:
    /// Opens a completion channel.
    fn create_channel(&mut self) -> io::Result<u32> {
        let channel = Channel::new(self.context()?)?;
        Ok(self.channels.add(channel))
    }

    /// Closes a completion channel.
    fn destroy_channel(&mut self, channel: u32) -> io::Result<()> {
        self.channels.destroy(channel, Channel::destroy)
    }

    /// Creates a CQ.
    fn create_cq(&mut self, cqe: i32, channel: Option<u32>, vector: i32) -> io::Result<CqInfo> {
        let channel = channel.map(|h| self.channels.get(h)).transpose()?;
        let cq = Cq::new(self.context()?, cqe, channel, vector, self.extended)?;
        Ok(self.keep_cq(cq))
    }

    /// Creates a CQ that loses completions when it is full.
    fn create_overrunning_cq(&mut self, cqe: i32) -> io::Result<CqInfo> {
        let cq = Cq::overrunning(self.context()?, cqe)?;
        Ok(self.keep_cq(cq))
    }

    /// Creates a CQ of the extended interface that one thread uses at a time.
    fn create_single_threaded_cq(&mut self, cqe: i32, channel: u32) -> io::Result<CqInfo> {
        let channel = self.channels.get(channel)?;
        let cq = Cq::single_threaded(self.context()?, cqe, Some(channel))?;
        Ok(self.keep_cq(cq))
    }

    /// Begins to take completions of an extended CQ one by one, if there are any.
    fn begin_series(&mut self, cq: u32) -> io::Result<Option<Wc>> {
        self.cqs.get_mut(cq)?.begin_series()
    }

    /// Takes the next completion of a series.
    fn next_of_series(&mut self, cq: u32) -> io::Result<Option<Wc>> {
        self.cqs.get_mut(cq)?.next_of_series()
    }

    /// Ends a series.
    fn end_series(&mut self, cq: u32) -> io::Result<()> {
        self.cqs.get_mut(cq)?.end_series()
    }

    /// Resizes a CQ to at least `cqe` entries. Returns the number of its entries.
    fn resize_cq(&mut self, cq: u32, cqe: i32) -> io::Result<u32> {
        let cq = self.cqs.get(cq)?;
        cq.resize(cqe)?;
        Ok(cq.capacity())
    }

    /// Destroys a CQ.
    fn destroy_cq(&mut self, cq: u32) -> io::Result<()> {
        self.cqs.destroy(cq, Cq::destroy)
    }

    /// Arms a CQ.
    fn arm(&mut self, cq: u32, solicited_only: bool) -> io::Result<()> {
        self.cqs.get(cq)?.arm(solicited_only)
    }

    /// Sets interrupt moderation: completions, and µs.
    fn moderate(&mut self, cq: u32, count: u16, period: u16) -> io::Result<()> {
        self.cqs.get(cq)?.moderate(count, period)
    }

    /// Waits for a completion event. Returns the CQ's handle.
    fn wait_channel(&mut self, channel: u32, timeout_ms: u64) -> io::Result<Option<u32>> {
        let identity = self.channels.get(channel)?.wait(Duration::from_millis(timeout_ms))?;
        identity
            .map(|id| {
                self.cqs
                    .find(|cq| cq.identity() == id)
                    .ok_or_else(|| io::Error::other("event of a CQ that does not exist"))
            })
            .transpose()
    }

    /// Polls until `count` completions have come or the time is over. Returns those that have come.
    fn poll(&mut self, cq: u32, count: usize, timeout_ms: u64) -> io::Result<Vec<Wc>> {
        let cq = self.cqs.get(cq)?;
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let mut done = Vec::new();
        loop {
            let more = cq.poll(count - done.len())?;
            let idle = more.is_empty();
            done.extend(more);
            if done.len() >= count || Instant::now() >= deadline {
                return Ok(done);
            }
            if idle {
                // With one processor, spinning would prevent the rest of the guest from running.
                thread::yield_now();
            }
        }
    }

    /// Waits for the next asynchronous event.
    fn wait_async(&mut self, timeout_ms: u64) -> io::Result<Option<AsyncEvent>> {
        let event = self.context()?.async_event(Duration::from_millis(timeout_ms))?;
        Ok(event.map(|e| AsyncEvent {
            kind: e.kind,
            qp: self.qps.find(|qp| qp.identity() == e.object),
            cq: self.cqs.find(|cq| cq.identity() == e.object),
            srq: self.srqs.find(|srq| srq.identity() == e.object),
        }))
    }
}

impl Objects {
    pub(super) fn keep_cq(&mut self, made: Cq) -> CqInfo {
        let capacity = made.capacity();
        CqInfo { cq: self.cqs.add(made), capacity }
    }
}
